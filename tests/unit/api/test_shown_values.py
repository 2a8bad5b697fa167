# SPDX-License-Identifier: Apache-2.0
"""Errors show values of Go's own types as JSON."""

from typing import Any

import pytest

from refloat.api.meta import Object
from refloat.api.validation import job, meta, pdb
from refloat.api.validation import pod as validation
from tests.unit.api import pod_cases

WRONG = "<x>&"
AS_JSON = '"\\u003cx\\u003e\\u0026"'
QUOTED = f'"{WRONG}"'

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]"
SELECTOR = f"spec.affinity.podAffinity.{REQUIRED}[0].labelSelector"


def container(**fields: Any) -> Object:
    return {"containers": [{"name": "c", "image": "i", **fields}]}


def init(**fields: Any) -> Object:
    return {"initContainers": [{"name": "i", "image": "i", **fields}]}


def volume(**source: Any) -> Object:
    return {"volumes": [{"name": "v", **source}]}


def toleration(**fields: Any) -> Object:
    return {"tolerations": [{"key": "k", **fields}]}


def node_terms(**term: Any) -> Object:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}


def spread(**fields: Any) -> Object:
    whole = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", **fields}
    return {"topologySpreadConstraints": [whole]}


def selecting(**expression: Any) -> Object:
    term = {"topologyKey": "z", "labelSelector": {"matchExpressions": [expression]}}
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def restart_rule(**rule: Any) -> Object:
    whole = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}, **rule}
    return container(restartPolicy="Never", restartPolicyRules=[whole])


PROBE = {"httpGet": {"path": "/", "port": 80, "scheme": WRONG}}
MOUNT = {"name": "v", "mountPath": "/m"}
EMPTY = volume(emptyDir={})
DISK = {"diskName": "d", "diskURI": "/subscriptions/d"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
TYPE = {"type": WRONG}
FILE = {"type": "Unconfined", "localhostProfile": WRONG}

C, S = "spec.containers[0]", "spec.securityContext"

TYPED = [
    ("spec.restartPolicy", {"restartPolicy": WRONG}),
    ("spec.dnsPolicy", {"dnsPolicy": WRONG}),
    ("spec.preemptionPolicy", {"preemptionPolicy": WRONG}),
    ("spec.os", {"os": {"name": WRONG}}),
    (f"{C}.imagePullPolicy", container(imagePullPolicy=WRONG)),
    (f"{C}.terminationMessagePolicy", container(terminationMessagePolicy=WRONG)),
    (f"{C}.restartPolicy", container(restartPolicy=WRONG)),
    (f"{C}.restartPolicyRules[0].action", restart_rule(action=WRONG)),
    (
        f"{C}.restartPolicyRules[0].exitCodes.operator",
        restart_rule(exitCodes={"operator": WRONG, "values": [1]}),
    ),
    ("spec.initContainers[0].restartPolicy", init(restartPolicy=WRONG)),
    (f"{C}.ports[0].protocol", container(ports=[{"containerPort": 1, "protocol": WRONG}])),
    (
        f"{C}.resizePolicy",
        container(resizePolicy=[{"resourceName": WRONG, "restartPolicy": "NotRequired"}]),
    ),
    (
        f"{C}.resizePolicy",
        container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": WRONG}]),
    ),
    (f"{C}.livenessProbe.httpGet.scheme", container(livenessProbe=PROBE)),
    (
        f"{C}.volumeMounts.mountPropagation",
        EMPTY | container(volumeMounts=[MOUNT | {"mountPropagation": WRONG}]),
    ),
    (
        f"{C}.volumeMounts.recursiveReadOnly",
        EMPTY | container(volumeMounts=[MOUNT | {"readOnly": True, "recursiveReadOnly": WRONG}]),
    ),
    (f"{C}.securityContext.procMount", container(securityContext={"procMount": WRONG})),
    (
        f"{C}.securityContext.seccompProfile.type",
        container(securityContext={"seccompProfile": TYPE}),
    ),
    (f"{S}.appArmorProfile.type", {"securityContext": {"appArmorProfile": TYPE}}),
    (f"{S}.appArmorProfile.localhostProfile", {"securityContext": {"appArmorProfile": FILE}}),
    *(
        (f"{S}.{name}", {"securityContext": {name: WRONG}})
        for name in ("fsGroupChangePolicy", "supplementalGroupsPolicy", "seLinuxChangePolicy")
    ),
    ("spec.tolerations[0].operator", toleration(operator=WRONG)),
    ("spec.tolerations[0].effect", toleration(effect=WRONG)),
    ("spec.topologySpreadConstraints[0].whenUnsatisfiable", spread(whenUnsatisfiable=WRONG)),
    ("spec.topologySpreadConstraints[0].nodeTaintsPolicy", spread(nodeTaintsPolicy=WRONG)),
    (
        f"{TERM}.matchExpressions[0].operator",
        node_terms(matchExpressions=[{"key": "k", "operator": WRONG}]),
    ),
    (
        f"{TERM}.matchFields[0].operator",
        node_terms(matchFields=[{"key": "metadata.name", "operator": WRONG}]),
    ),
    (f"{SELECTOR}.matchExpressions[0].operator", selecting(key="k", operator=WRONG)),
    (f"{C}.resources.limits[{WRONG}]", container(resources={"limits": {WRONG: 1}})),
    (f"spec.resources.limits[{WRONG}]", {"resources": {"limits": {WRONG: "1"}}}),
    ("spec.volumes[0].hostPath.type", volume(hostPath={"path": "/", "type": WRONG})),
    ("spec.volumes[0].azureDisk.cachingMode", volume(azureDisk=DISK | {"cachingMode": WRONG})),
    ("spec.volumes[0].image.pullPolicy", volume(image={"reference": "i", "pullPolicy": WRONG})),
    (
        "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.volumeMode",
        volume(ephemeral={"volumeClaimTemplate": {"spec": CLAIM | {"volumeMode": WRONG}}}),
    ),
]


def shown(spec: Object, path: str) -> list[str]:
    pod, _ = pod_cases.new_pod({"pod": {"spec": spec}})
    return [each.body for each in validation.validate_create(pod) if each.path == path]


@pytest.mark.parametrize(("path", "spec"), TYPED, ids=[path for path, _ in TYPED])
def test_value_with_a_type_is_shown_as_json(path: str, spec: Object) -> None:
    texts = shown(spec, path)
    assert texts
    assert all(f"value: {AS_JSON}: " in each for each in texts)


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
            container(env=[{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": WRONG}}}]),
        ),
        (
            "spec.containers[0].env[0].valueFrom.resourceFieldRef.resource",
            container(env=[{"name": "E", "valueFrom": {"resourceFieldRef": {"resource": WRONG}}}]),
        ),
        (
            "spec.volumes[0].azureDisk.diskURI",
            volume(azureDisk={"diskName": "d", "diskURI": WRONG, "kind": "Managed"}),
        ),
        ("spec.tolerations[0].operator", toleration(value=WRONG)),
        ("spec.nodeName", {"nodeName": WRONG}),
    ],
)
def test_plain_text_is_shown_quoted(path: str, spec: Object) -> None:
    [error] = shown(spec, path)
    assert f"value: {QUOTED}: " in error


def test_resource_that_is_resized_twice_is_shown_as_json() -> None:
    policy = {"resourceName": WRONG, "restartPolicy": "NotRequired"}
    texts = shown(container(resizePolicy=[policy, policy]), "spec.containers[0].resizePolicy[1]")
    assert texts == [f"Duplicate value: {AS_JSON}"]


def test_toleration_without_a_key_shows_its_operator_as_json() -> None:
    spec = {"tolerations": [{"operator": WRONG, "effect": WRONG, "tolerationSeconds": 1}]}
    for name in ("operator", "effect"):
        texts = shown(spec, f"spec.tolerations[0].{name}")
        assert [each.split(": ")[1] for each in texts] == [AS_JSON, AS_JSON]


def test_operation_of_a_field_manager_is_shown_as_json() -> None:
    metadata = {"name": "n", "managedFields": [{"operation": WRONG, "fieldsType": WRONG}]}
    errors = meta.validate(metadata, namespaced=False, name_check=lambda _: ())
    assert [each.body.split(": ")[1] for each in errors] == [AS_JSON, QUOTED]


def test_eviction_policy_of_a_budget_is_shown_as_json() -> None:
    spec = {"minAvailable": 1, "selector": {}, "unhealthyPodEvictionPolicy": WRONG}
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": spec}
    [error] = pdb.validate_create(budget)
    assert error.body.startswith(f"Unsupported value: {AS_JSON}: ")


def test_indexes_are_shown_as_json_only_where_they_may_be_missing() -> None:
    metadata = {"name": "j", "namespace": "default", "resourceVersion": "1"}
    spec = {"completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
    old = {"metadata": metadata, "spec": spec, "status": {}}
    new = old | {"status": {"completedIndexes": WRONG, "failedIndexes": WRONG}}
    errors = job.validate_status_update(new, old)
    why = f"cannot convert string to integer for index: {QUOTED}"
    assert [str(each) for each in errors] == [
        f"status.{name}: Invalid value: {value}: error parsing {name}: {why}"
        for name, value in (("completedIndexes", QUOTED), ("failedIndexes", AS_JSON))
    ]

# SPDX-License-Identifier: Apache-2.0
"""The default values of fields."""

from typing import Any

from refloat.api.defaults import (
    job,
    namespace,
    node,
    persistentvolume,
    persistentvolumeclaim,
    priorityclass,
    secret,
    service,
)
from refloat.api.meta import Object
from tests.cases import cases
from tests.unit.api import corpus


def _job(**spec: Any) -> Object:
    obj = {"metadata": {"name": "j", "uid": corpus.UID}, "spec": {"template": {}, **spec}}
    job.apply(obj)
    return obj


@cases(
    "fields want",
    {
        "B1.1 neither given": ({}, {"completions": 1, "parallelism": 1}),
        "B1.1 completions": ({"completions": 4}, {"completions": 4, "parallelism": 1}),
        "B1.1 parallel": ({"parallelism": 4}, {"completions": None, "parallelism": 4}),
        "B1.2 the limit": ({}, {"backoffLimit": 6}),
        "B1.2 with one per index": ({"backoffLimitPerIndex": 0}, {"backoffLimit": 2147483647}),
        "B1.3 flags": (
            {},
            {"completionMode": "NonIndexed", "suspend": False, "manualSelector": False},
        ),
        "B1.4 replacement": ({}, {"podReplacementPolicy": "TerminatingOrFailed"}),
        "B1.4 with a policy": ({"podFailurePolicy": {}}, {"podReplacementPolicy": "Failed"}),
        "B1.8 without defaults": (
            {},
            dict.fromkeys(
                ("managedBy", "ttlSecondsAfterFinished", "maxFailedIndexes", "successPolicy")
            ),
        ),
    },
)
def test_a_job_is_filled_in(fields: Object, want: Object) -> None:
    spec = _job(**fields)["spec"]

    assert {name: spec.get(name) for name in want} == want


def test_a_pattern_without_status_means_true() -> None:  # behaviour B1.5
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "A"}, {"type": "B", "status": "x"}]}]

    policy = _job(podFailurePolicy={"rules": rules})["spec"]["podFailurePolicy"]

    patterns = policy["rules"][0]["onPodConditions"]
    assert [each["status"] for each in patterns] == ["True", "x"]


GENERATED = {
    "batch.kubernetes.io/controller-uid": corpus.UID,
    "batch.kubernetes.io/job-name": "j",
    "controller-uid": corpus.UID,
    "job-name": "j",
}


def test_a_new_job_labels_and_selects_its_pods() -> None:  # behaviour B2.1
    obj = _job() | {"status": {"active": 3}}
    job.prepare_create(obj)

    assert obj["status"] == {}
    assert obj["metadata"]["generation"] == 1
    assert obj["spec"]["template"]["metadata"]["labels"] == GENERATED
    uid = {"batch.kubernetes.io/controller-uid": corpus.UID}
    assert obj["spec"]["selector"] == {"matchLabels": uid}


def test_given_labels_and_selectors_stay() -> None:  # behaviour B2.1
    obj = _job(
        template={"metadata": {"labels": {"job-name": "x"}}},
        selector={"matchLabels": {"a": "b", "batch.kubernetes.io/controller-uid": "y"}},
    )
    job.prepare_create(obj)

    assert obj["spec"]["template"]["metadata"]["labels"] == GENERATED | {"job-name": "x"}
    assert obj["spec"]["selector"]["matchLabels"] == {
        "a": "b",
        "batch.kubernetes.io/controller-uid": "y",
    }


def test_a_manual_selector_is_left_alone() -> None:  # behaviour B2.1
    obj = _job(manualSelector=True)
    job.prepare_create(obj)

    assert "selector" not in obj["spec"]
    assert "labels" not in obj["spec"]["template"].get("metadata", {})


def test_a_job_has_the_labels_of_its_template_and_then_the_generated_ones() -> None:
    obj = _job(template={"metadata": {"labels": {"a": "b"}}})  # behaviour B1.6
    job.prepare_create(obj)

    assert obj["metadata"]["labels"] == GENERATED | {"a": "b"}


def test_a_job_with_labels_of_its_own_gets_no_others() -> None:  # behaviour B1.6
    obj: Object = {"metadata": {"name": "j", "labels": {"x": "y"}}, "spec": {"template": {}}}
    job.apply(obj)
    job.prepare_create(obj)

    assert obj["metadata"]["labels"] == {"x": "y"}


def test_a_namespace_is_named_by_a_label_and_held_by_a_finalizer() -> None:
    obj: Object = {"metadata": {"name": "n"}, "spec": {"finalizers": ["a.b/c"]}}
    namespace.prepare_create(obj)

    assert obj["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    assert obj["spec"]["finalizers"] == ["a.b/c", "kubernetes"]
    assert obj["status"] == {"phase": "Active"}


def test_a_node_can_give_all_that_it_has() -> None:
    obj: Object = {"metadata": {}, "status": {"capacity": {"cpu": "1"}}}
    node.apply(obj)

    assert obj["status"]["allocatable"] == {"cpu": "1"}


def test_text_becomes_data_of_a_secret() -> None:
    obj: Object = {"metadata": {}, "data": {"a": "eA==", "b": "eQ=="}, "stringData": {"b": "é"}}
    secret.apply(obj)

    assert obj == {"metadata": {}, "type": "Opaque", "data": {"a": "eA==", "b": "w6k="}}


def test_volumes_and_claims_are_pending_file_systems() -> None:
    volume: Object = {"metadata": {}, "spec": {"hostPath": {"path": "/x"}}}
    claim: Object = {"metadata": {}}
    persistentvolume.apply(volume)
    persistentvolumeclaim.apply(claim)

    assert volume["spec"] == {
        "hostPath": {"path": "/x", "type": ""},
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    assert claim["spec"] == {"volumeMode": "Filesystem"}
    assert volume["status"] == claim["status"] == {"phase": "Pending"}


def test_a_data_source_is_named_in_both_fields() -> None:
    source = {"kind": "PersistentVolumeClaim", "name": "x"}
    claim: Object = {"spec": {"dataSource": dict(source)}}
    persistentvolumeclaim.prepare_create(claim)

    assert claim["spec"] == {"dataSource": source, "dataSourceRef": source}


def test_a_data_source_that_no_volume_comes_from_is_dropped() -> None:
    claim: Object = {"spec": {"dataSource": {"kind": "Foo", "name": "x"}}}
    persistentvolumeclaim.prepare_create(claim)

    assert claim["spec"] == {}


def test_a_priority_class_preempts() -> None:
    claim: Object = {"metadata": {}}
    priorityclass.apply(claim)

    assert claim["preemptionPolicy"] == "PreemptLowerPriority"


def test_a_service_has_ports_and_policies() -> None:
    obj: Object = {"metadata": {}, "spec": {"ports": [{"port": 80}], "externalIPs": ["1.2.3.4"]}}
    service.apply(obj)

    assert obj["spec"] == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "externalIPs": ["1.2.3.4"],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "externalTrafficPolicy": "Cluster",
        "internalTrafficPolicy": "Cluster",
    }


def test_a_service_keeps_the_address_that_an_update_leaves_out() -> None:
    old = {"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}}
    new: Object = {"spec": {"type": "ClusterIP"}}
    service.prepare_update(new, old)

    assert new == old


def test_a_service_that_becomes_a_name_loses_its_address() -> None:
    old = {"spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]}}
    new = {"spec": {**old["spec"], "type": "ExternalName"}}
    service.prepare_update(new, old)

    assert new == {"spec": {"type": "ExternalName"}}

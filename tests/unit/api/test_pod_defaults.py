# SPDX-License-Identifier: Apache-2.0
"""Pods get the defaults, the class and the first status that Kubernetes gives."""

import copy
from typing import Any

import pytest

from refloat.api import pod_preparation, qos
from refloat.api.defaults import pod as defaults
from refloat.api.meta import Object
from tests.unit.api import pod_cases

Case = dict[str, Any]

ACCEPTED = [case for case in pod_cases.cases("create") if "causes" not in case]
TEMPLATES = [
    case
    for case in pod_cases.templates()
    if "spec" in (case if case["template"] == "same" else case["template"])
]


@pytest.mark.parametrize("case", ACCEPTED, ids=[case["id"] for case in ACCEPTED])
def test_a_pod_is_filled_in_as_kubernetes_does(case: Case) -> None:
    pod, _ = pod_cases.new_pod(case)
    assert pod["spec"] == pod_cases.with_defaults("spec", case["spec"])
    assert pod["status"]["qosClass"] == case["qos"]


@pytest.mark.parametrize("case", TEMPLATES, ids=[case["id"] for case in TEMPLATES])
def test_a_template_is_filled_in_as_kubernetes_does(case: Case) -> None:
    want = case if case["template"] == "same" else case["template"]
    template = pod_cases.new_template(case)
    assert template["spec"] == pod_cases.with_defaults("template", want["spec"])


@pytest.mark.parametrize("case", ACCEPTED, ids=[case["id"] for case in ACCEPTED])
def test_filling_in_again_changes_nothing(case: Case) -> None:
    pod, _ = pod_cases.new_pod(case)
    again = copy.deepcopy(pod)
    defaults.apply(again)
    assert again == pod


def test_a_template_gets_neither_requests_nor_service_links() -> None:
    case = {"pod": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}}}
    spec = pod_cases.new_template(case)["spec"]
    assert "requests" not in spec["containers"][0]["resources"]
    assert "enableServiceLinks" not in spec


def test_a_template_keeps_a_negative_grace_period() -> None:
    case = {"pod": {"spec": {"terminationGracePeriodSeconds": -5}}}
    assert pod_cases.new_template(case)["spec"]["terminationGracePeriodSeconds"] == -5


ADDRESSES = [
    ("one becomes a list", {"podIP": "1.2.3.4"}, "1.2.3.4", ["1.2.3.4"]),
    (
        "the single one counts",
        {"podIP": "1.1.1.1", "podIPs": [{"ip": "2.2.2.2"}]},
        "1.1.1.1",
        ["1.1.1.1"],
    ),
    (
        "the first of a list",
        {"podIPs": [{"ip": "2.2.2.2"}, {"ip": "::1"}]},
        "2.2.2.2",
        ["2.2.2.2", "::1"],
    ),
]


@pytest.mark.parametrize(
    ("status", "want_ip", "want_ips"),
    [each[1:] for each in ADDRESSES],
    ids=[each[0] for each in ADDRESSES],
)
def test_a_pods_addresses_agree(status: Object, want_ip: str, want_ips: list[str]) -> None:
    pod = pod_cases.decoded({**pod_cases.SMALLEST, "status": status})
    defaults.apply(pod)
    assert pod["status"]["podIP"] == want_ip
    assert [each["ip"] for each in pod["status"]["podIPs"]] == want_ips


def test_a_gated_pod_says_that_it_is_not_scheduled() -> None:
    pod, _ = pod_cases.new_pod({"pod": {"spec": {"schedulingGates": [{"name": "a"}]}}})
    [condition] = pod["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": pod_cases.NOW,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def test_a_new_pods_status_is_not_what_was_sent() -> None:
    pod, _ = pod_cases.new_pod({"pod": {"status": {"phase": "Failed", "podIP": "1.2.3.4"}}})
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_a_new_pods_class_may_be_sent() -> None:
    pod, _ = pod_cases.new_pod({"pod": {"status": {"qosClass": "Guaranteed"}}})
    assert pod["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


def test_a_status_of_mounted_volumes_is_behind_a_gate_that_is_off() -> None:
    old = pod_cases.stored_pod(pod_cases.cases("update")[0])
    new = copy.deepcopy(old)
    mount = {"name": "v", "mountPath": "/v", "volumeStatus": {"image": {"imageRef": "x"}}}
    new["status"]["containerStatuses"] = [{"name": "c", "volumeMounts": [mount]}]
    pod_preparation.prepare_status_update(new, old)
    mounts = new["status"]["containerStatuses"][0]["volumeMounts"]
    assert mounts == [{"name": "v", "mountPath": "/v"}]


def test_a_change_of_the_specification_counts_a_generation() -> None:
    old = pod_cases.stored_pod(pod_cases.cases("update")[0])
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["image"] = "j"
    pod_preparation.prepare_update(new, old)
    assert new["metadata"]["generation"] == old["metadata"]["generation"] + 1


def test_a_change_of_labels_counts_no_generation() -> None:
    old = pod_cases.stored_pod(pod_cases.cases("update")[0])
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    pod_preparation.prepare_update(new, old)
    assert new["metadata"]["generation"] == old["metadata"]["generation"]


def test_a_status_keeps_generations_that_are_not_said() -> None:
    # behaviour C8.9
    old = pod_cases.stored_pod(pod_cases.cases("update")[0])
    ready = {"type": "Ready", "status": "True"}
    old["status"] = {
        "observedGeneration": 3,
        "qosClass": "BestEffort",
        "conditions": [{**ready, "observedGeneration": 1}, {**ready, "observedGeneration": 2}],
    }
    new = copy.deepcopy(old)
    new["status"] = {"conditions": [dict(ready), {**ready, "observedGeneration": 9}, dict(ready)]}
    pod_preparation.prepare_status_update(new, old)
    assert new["status"] == {
        "observedGeneration": 3,
        "qosClass": "BestEffort",
        "conditions": [
            {**ready, "observedGeneration": 1},
            {**ready, "observedGeneration": 9},
            ready,
        ],
    }


def test_a_status_change_cannot_change_owner_or_specification() -> None:
    # behaviour C8.8
    old = pod_cases.stored_pod(pod_cases.cases("update")[0])
    new = copy.deepcopy(old)
    new["spec"]["hostname"] = "x"
    new["metadata"]["ownerReferences"] = [{"name": "x"}]
    pod_preparation.prepare_status_update(new, old)
    assert new["spec"] == old["spec"]
    assert "ownerReferences" not in new["metadata"]


CLASSES = [
    ("nothing asked for", {}, qos.BEST_EFFORT),
    (
        "limits equal requests",
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}},
        qos.GUARANTEED,
    ),
    ("only one of two limited", {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}, qos.BURSTABLE),
    ("zero is nothing", {"limits": {"cpu": "0", "memory": "0"}}, qos.BEST_EFFORT),
    ("other resources do not count", {"limits": {"example.com/gpu": "1"}}, qos.BEST_EFFORT),
]


@pytest.mark.parametrize(
    ("resources", "want"), [each[1:] for each in CLASSES], ids=[each[0] for each in CLASSES]
)
def test_the_class_of_a_pod_follows_from_its_containers(resources: Object, want: str) -> None:
    assert qos.qos_class({"spec": {"containers": [{"resources": resources}]}}) == want


def test_the_resources_of_a_pod_go_before_those_of_its_containers() -> None:
    limits = {"cpu": "1", "memory": "1Gi"}
    pod = {"spec": {"resources": {"limits": limits, "requests": limits}, "containers": [{}]}}
    assert qos.qos_class(pod) == qos.GUARANTEED


AMOUNT = {"a.b/c": "0.1m"}


@pytest.mark.parametrize(
    "status",
    [
        {"resources": {"requests": AMOUNT}},
        {"resources": {"limits": AMOUNT}},
        {"allocatedResources": AMOUNT},
        {"containerStatuses": [{"resources": {"limits": AMOUNT}}]},
        {"initContainerStatuses": [{"allocatedResources": AMOUNT}]},
        {"ephemeralContainerStatuses": [{"resources": {"requests": AMOUNT}}]},
    ],
    ids=str,
)
def test_amounts_in_a_status_are_no_finer_than_a_thousandth(status: Object) -> None:
    pod = {"status": copy.deepcopy(status)}
    defaults.apply(pod)
    assert str(pod["status"]) == str(status).replace("0.1m", "1m")

# SPDX-License-Identifier: Apache-2.0
"""Which pods the garbage collector of pods takes, and what it writes (behaviour C1)."""

from typing import Any

import msgspec
import pytest

from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.policy import disruption, pod_gc
from refloat.policy.switches import ALL_ON, Switches
from tests.unit.policy.made import at, pod, text
from tests.unit.policy.test_pod_reason import ended

REPLACEMENT_ONLY = Switches(pod_disruption_conditions=False)
CONDITIONS_ONLY = Switches(job_pod_replacement_policy=False)
FAILURE_ONLY = Switches(pod_disruption_conditions=False, job_pod_replacement_policy=False)
REASONS = Switches(retriable_and_non_retriable_failures=True)
NONE = Switches(
    pod_disruption_conditions=False,
    job_pod_replacement_policy=False,
    job_pod_failure_policy=False,
)

TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
    "observedGeneration": 0,
    "lastTransitionTime": text(7),
}
MARKED = {
    "conditions": [TARGET],
    "$setElementOrder/conditions": [{"type": "DisruptionTarget"}],
}
FAILED = {"phase": "Failed", "observedGeneration": 0}


def over(name: str, *, created: int, reason: str = "") -> Pod:
    made = pod(name, "Failed", created=created)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, reason=reason))


def node(*, ready: str | None = "Unknown", taints: tuple[Object, ...] = ()) -> Node:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return msgspec.convert(
        {"spec": {"taints": list(taints)}, "status": {"conditions": conditions}}, Node
    )


DOWN: Object = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("phase", "counts"),
    [
        ("Pending", False),
        ("Running", False),
        ("Unknown", False),
        ("Succeeded", True),
        ("Failed", True),
    ],
)
def test_only_pods_that_ended_count_against_the_threshold(phase: str, counts: bool) -> None:
    """behaviour C1.3"""
    assert pod_gc.is_over(pod("u", phase)) is counts


@pytest.mark.parametrize(
    ("threshold", "taken"),
    [
        pytest.param(5, [], id="none at the threshold"),
        pytest.param(4, ["e2"], id="an evicted one first, though not the oldest"),
        pytest.param(3, ["e2", "e3"], id="evicted ones by age"),
        pytest.param(2, ["e2", "e3", "a"], id="then the oldest"),
        pytest.param(1, ["e2", "e3", "a", "b"], id="of one age by name"),
        pytest.param(0, [], id="0 switches it off"),
        pytest.param(-1, [], id="so does less"),
    ],
)
def test_the_excess_is_taken_in_order(threshold: int, taken: list[str]) -> None:
    """behaviour C1.3"""
    pods = [
        over("c", created=1),
        over("e3", created=4, reason="Evicted"),
        over("b", created=1),
        over("e2", created=3, reason="Evicted"),
        over("a", created=0),
    ]
    assert [each.metadata.uid for each in pod_gc.excess(pods, threshold)] == taken


@pytest.mark.parametrize(
    ("of", "is_down"),
    [
        pytest.param(node(taints=(DOWN,)), True, id="tainted and unknown"),
        pytest.param(node(ready="False", taints=(DOWN,)), True, id="tainted and not ready"),
        pytest.param(node(ready=None, taints=(DOWN,)), True, id="tainted and never heard of"),
        pytest.param(
            node(taints=({**DOWN, "effect": "NoSchedule", "value": "x"},)), True, id="any effect"
        ),
        pytest.param(node(ready="True", taints=(DOWN,)), False, id="ready in spite of the taint"),
        pytest.param(node(), False, id="no taint"),
        pytest.param(
            node(taints=({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},)),
            False,
            id="another taint",
        ),
    ],
)
def test_a_node_is_out_of_service_when_tainted_and_not_ready(of: Node, is_down: bool) -> None:
    """behaviour C1.4"""
    assert pod_gc.is_out_of_service(of) is is_down


FAILING: list[Any] = [
    pytest.param(pod(), "orphaned", ALL_ON, {**FAILED, **MARKED}, id="C1.5"),
    pytest.param(pod("u", "Failed"), "orphaned", ALL_ON, None, id="a terminal pod is kept, C1.6"),
    pytest.param(pod(), "out-of-service", ALL_ON, FAILED, id="no condition, C1.4"),
    pytest.param(pod(node=""), "unscheduled", ALL_ON, FAILED, id="no condition, C1.9"),
    pytest.param(pod(), "orphaned", CONDITIONS_ONLY, {**FAILED, **MARKED}, id="one gate"),
    pytest.param(pod(), "orphaned", REPLACEMENT_ONLY, FAILED, id="KEP-3939: the phase alone"),
    pytest.param(
        pod(), "orphaned", FAILURE_ONLY, FAILED, id="Jobs with a failure policy wait for a phase"
    ),
    pytest.param(pod(), "orphaned", NONE, None, id="KEP-3939: it stays as it is"),
    pytest.param(
        pod(),
        "orphaned",
        REASONS,
        {**FAILED, **MARKED, "reason": "OrphanedPod"},
        id="KEP-3329, first design: why an orphan ends",
    ),
    pytest.param(
        pod(),
        "out-of-service",
        REASONS,
        {**FAILED, "reason": "NodeOutOfService"},
        id="KEP-3329, first design: why a pod on such a node ends",
    ),
    pytest.param(
        ended("TaintEviction", phase="Running"),
        "out-of-service",
        REASONS,
        FAILED,
        id="unless somebody has said why",
    ),
    pytest.param(pod(node=""), "unscheduled", REASONS, FAILED, id="a user's delete has no reason"),
]


@pytest.mark.parametrize(("of", "cause", "switches", "status"), FAILING)
def test_what_is_written_before_the_delete(
    of: Pod, cause: pod_gc.Cause, switches: Switches, status: Object | None
) -> None:
    assert pod_gc.failing(of, cause, switches, now=at(7)) == status


def test_a_condition_that_holds_already_keeps_its_time() -> None:
    """behaviour 0.5"""
    held = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": text(1)}
    changed = disruption.condition(pod(conditions=[held]), "R", "m", now=at(7))
    assert changed is not None
    assert "lastTransitionTime" not in changed


@pytest.mark.parametrize("generation", [0, 1])
def test_a_condition_that_stands_there_already_is_not_written_again(generation: int) -> None:
    """Whichever generation it was written for."""
    held = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "R",
        "message": "m",
        "observedGeneration": generation,
    }
    assert disruption.condition(pod(conditions=[held]), "R", "m", now=at(7)) is None

# SPDX-License-Identifier: Apache-2.0
"""Which pods the pod garbage collector deletes, and what it writes (behaviour C1)."""

from typing import Any

import pytest

from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.policy.garbage import pod_gc
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.scheduling import disruption_target
from tests.cases import cases
from tests.unit.policy.builders import at, node, pod, text
from tests.unit.policy.job.test_pod_reason import ended

REPLACEMENT_ONLY = JobGates(pod_disruption_conditions=False)
CONDITIONS_ONLY = JobGates(job_pod_replacement_policy=False)
FAILURE_ONLY = JobGates(pod_disruption_conditions=False, job_pod_replacement_policy=False)
REASONS = JobGates(retriable_and_non_retriable_failures=True)
NONE = JobGates(
    pod_disruption_conditions=False, job_pod_replacement_policy=False, job_pod_failure_policy=False
)

TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
    "observedGeneration": 0,
    "lastTransitionTime": text(7),
}
MARKED = {"conditions": [TARGET], "$setElementOrder/conditions": [{"type": "DisruptionTarget"}]}
FAILED = {"phase": "Failed", "observedGeneration": 0}


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


@cases(
    "threshold taken",
    {
        "none at the threshold": (5, []),
        "an evicted one first, though not the oldest": (4, ["e2"]),
        "evicted ones by age": (3, ["e2", "e3"]),
        "then the oldest": (2, ["e2", "e3", "a"]),
        "of one age by name": (1, ["e2", "e3", "a", "b"]),
        "0 switches it off": (0, []),
        "so does less": (-1, []),
    },
)
def test_the_excess_is_taken_in_order(threshold: int, taken: list[str]) -> None:
    """behaviour C1.3"""
    pods = [
        pod("c", "Failed", created=1),
        pod("e3", "Failed", created=4, reason="Evicted"),
        pod("b", "Failed", created=1),
        pod("e2", "Failed", created=3, reason="Evicted"),
        pod("a", "Failed", created=0),
    ]
    assert [each.metadata.uid for each in pod_gc.excess(pods, threshold)] == taken


@cases(
    "of is_down",
    {
        "tainted and unknown": (node(DOWN), True),
        "tainted and not ready": (node(DOWN, ready="False"), True),
        "tainted and never heard of": (node(DOWN, ready=""), True),
        "any effect": (node({**DOWN, "effect": "NoSchedule", "value": "x"}), True),
        "ready in spite of the taint": (node(DOWN, ready="True"), False),
        "no taint": (node(), False),
        "another taint": (
            node({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}),
            False,
        ),
    },
)
def test_a_node_is_out_of_service_when_tainted_and_not_ready(of: Node, is_down: bool) -> None:
    """behaviour C1.4"""
    assert pod_gc.is_out_of_service(of) is is_down


FAILING: dict[str, Any] = {
    "C1.5": (pod(), "orphaned", ALL_ON, {**FAILED, **MARKED}),
    "a terminal pod is kept, C1.6": (pod("u", "Failed"), "orphaned", ALL_ON, None),
    "no condition, C1.4": (pod(), "out-of-service", ALL_ON, FAILED),
    "no condition, C1.9": (pod(node=""), "unscheduled", ALL_ON, FAILED),
    "one gate": (pod(), "orphaned", CONDITIONS_ONLY, {**FAILED, **MARKED}),
    "KEP-3939: the phase alone": (pod(), "orphaned", REPLACEMENT_ONLY, FAILED),
    "Jobs with a failure policy wait for a phase": (pod(), "orphaned", FAILURE_ONLY, FAILED),
    "KEP-3939: it stays as it is": (pod(), "orphaned", NONE, None),
    "KEP-3329, first design: why an orphan ends": (
        pod(),
        "orphaned",
        REASONS,
        {**FAILED, **MARKED, "reason": "OrphanedPod"},
    ),
    "KEP-3329, first design: why a pod on such a node ends": (
        pod(),
        "out-of-service",
        REASONS,
        {**FAILED, "reason": "NodeOutOfService"},
    ),
    "unless somebody has said why": (
        ended("TaintEviction", phase="Running"),
        "out-of-service",
        REASONS,
        FAILED,
    ),
    "a user's delete has no reason": (pod(node=""), "unscheduled", REASONS, FAILED),
}


@cases("of cause job_gates status", FAILING)
def test_what_is_written_before_the_delete(
    of: Pod, cause: pod_gc.Cause, job_gates: JobGates, status: Object | None
) -> None:
    assert pod_gc.failing(of, cause, job_gates, now=at(7)) == status


def test_a_condition_that_holds_already_keeps_its_time() -> None:
    """behaviour 0.5"""
    current = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": text(1)}
    changed = disruption_target.condition(pod(conditions=[current]), "R", "m", now=at(7))
    assert changed is not None
    assert "lastTransitionTime" not in changed


@pytest.mark.parametrize("generation", [0, 1])
def test_a_condition_that_stands_there_already_is_not_written_again(generation: int) -> None:
    """Whichever generation it was written for."""
    current = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "R",
        "message": "m",
        "observedGeneration": generation,
    }
    assert disruption_target.condition(pod(conditions=[current]), "R", "m", now=at(7)) is None

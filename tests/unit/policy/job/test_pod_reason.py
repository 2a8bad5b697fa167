# SPDX-License-Identifier: Apache-2.0
"""Why a pod ended, from all places of the reason (docs/reasons.md)."""

from typing import Any

from refloat.api.core import Pod
from refloat.policy.job import pod_reason
from refloat.policy.job.job_gates import ALL_ON, JobGates
from tests.cases import cases
from tests.unit.policy.builders import condition, pod


def ended(
    status: str = "",
    annotation: str = "",
    target: str = "",
    *,
    held: str = "True",
    phase: str = "Failed",
    deleted: bool = True,
) -> Pod:
    """A deleted pod with reasons in its status, its annotation and its DisruptionTarget."""
    conditions = [condition("DisruptionTarget", held, reason=target)] if target else []
    annotations = {pod_reason.ANNOTATION: annotation} if annotation else {}
    when = 1 if deleted else None
    return pod(
        "u", phase, conditions=conditions, deleted=when, annotations=annotations, reason=status
    )


CASES: dict[str, Any] = {
    "nobody ended it": (ended(), ("",)),
    "a delete said why": (ended("Preemption"), ("Preemption",)),
    "a kubelet's own": (ended("DeadlineExceeded"), ("DeadlineExceeded",)),
    "on Kubernetes, a delete": (ended(annotation="Preemption"), ("Preemption",)),
    "nobody deleted it, they only say so": (ended(annotation="Preemption", deleted=False), ("",)),
    "it was preempted, whatever they say": (
        ended(annotation="Mine", target="PreemptionByScheduler", deleted=False),
        ("Preemption",),
    ),
    "a kubelet ended it before its delete did": (ended("Evicted", "Preemption"), ("Evicted",)),
    "what was said is more than what follows": (
        ended(annotation="Mine", target="EvictionByEvictionAPI"),
        ("Mine",),
    ),
    "F: scheduler": (ended(target="PreemptionByScheduler"), ("Preemption",)),
    "F: taints": (ended(target="DeletionByTaintManager"), ("TaintEviction",)),
    "F: device taints": (ended(target="DeletionByDeviceTaintManager"), ("TaintEviction",)),
    "F: eviction": (ended(target="EvictionByEvictionAPI"), ("EvictionAPI",)),
    "F: PodGC": (ended(target="DeletionByPodGC"), ("OrphanedPod",)),
    "one that is not known": (ended(target="ByTheMoon"), ("ByTheMoon",)),
    "it did not come to that": (ended(target="PreemptionByScheduler", held="False"), ("",)),
    "D6: node pressure": (
        ended("Evicted", target="TerminationByKubelet"),
        ("Evicted", "NodePressureEviction"),
    ),
    "D6: the pod itself used too much": (ended("Evicted"), ("Evicted",)),
    "D6: shutdown": (
        ended("Terminated", target="TerminationByKubelet"),
        ("Terminated", "NodeShutdown"),
    ),
    "D6: for a critical pod": (
        ended("Preempting", target="TerminationByKubelet"),
        ("Preempting", "Preemption"),
    ),
    "D6.4: not admitted": (ended("NodeShutdown"), ("NodeShutdown",)),
    "of the kubelet and yet nothing else": (
        ended("DeadlineExceeded", target="TerminationByKubelet"),
        ("DeadlineExceeded",),
    ),
}


@cases("of want", CASES)
def test_the_reason_of_a_pod(of: Pod, want: tuple[str, ...]) -> None:
    assert pod_reason.of(of) == want


def test_components_say_why_only_while_the_gate_is_on() -> None:
    on = JobGates(retriable_and_non_retriable_failures=True)
    assert pod_reason.delete_reason("Preemption", on) == "Preemption"
    assert pod_reason.delete_reason("Preemption", ALL_ON) == ""

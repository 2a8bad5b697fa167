# SPDX-License-Identifier: Apache-2.0
"""Why a pod ended, from all places of the reason (docs/reasons.md)."""

from typing import Any

import pytest

from refloat.api.core import Pod
from refloat.policy.job import pod_reason
from refloat.policy.job.job_gates import ALL_ON, JobGates
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


CASES: list[Any] = [
    pytest.param(ended(), ("",), id="nobody ended it"),
    pytest.param(ended("Preemption"), ("Preemption",), id="a delete said why"),
    pytest.param(ended("DeadlineExceeded"), ("DeadlineExceeded",), id="a kubelet's own"),
    pytest.param(ended(annotation="Preemption"), ("Preemption",), id="on Kubernetes, a delete"),
    pytest.param(
        ended(annotation="Preemption", deleted=False),
        ("",),
        id="nobody deleted it, they only say so",
    ),
    pytest.param(
        ended(annotation="Mine", target="PreemptionByScheduler", deleted=False),
        ("Preemption",),
        id="it was preempted, whatever they say",
    ),
    pytest.param(
        ended("Evicted", "Preemption"), ("Evicted",), id="a kubelet ended it before its delete did"
    ),
    pytest.param(
        ended(annotation="Mine", target="EvictionByEvictionAPI"),
        ("Mine",),
        id="what was said is more than what follows",
    ),
    pytest.param(ended(target="PreemptionByScheduler"), ("Preemption",), id="F: scheduler"),
    pytest.param(ended(target="DeletionByTaintManager"), ("TaintEviction",), id="F: taints"),
    pytest.param(
        ended(target="DeletionByDeviceTaintManager"), ("TaintEviction",), id="F: device taints"
    ),
    pytest.param(ended(target="EvictionByEvictionAPI"), ("EvictionAPI",), id="F: eviction"),
    pytest.param(ended(target="DeletionByPodGC"), ("OrphanedPod",), id="F: PodGC"),
    pytest.param(ended(target="ByTheMoon"), ("ByTheMoon",), id="one that is not known"),
    pytest.param(
        ended(target="PreemptionByScheduler", held="False"), ("",), id="it did not come to that"
    ),
    pytest.param(
        ended("Evicted", target="TerminationByKubelet"),
        ("Evicted", "NodePressureEviction"),
        id="D6: node pressure",
    ),
    pytest.param(ended("Evicted"), ("Evicted",), id="D6: the pod itself used too much"),
    pytest.param(
        ended("Terminated", target="TerminationByKubelet"),
        ("Terminated", "NodeShutdown"),
        id="D6: shutdown",
    ),
    pytest.param(
        ended("Preempting", target="TerminationByKubelet"),
        ("Preempting", "Preemption"),
        id="D6: for a critical pod",
    ),
    pytest.param(ended("NodeShutdown"), ("NodeShutdown",), id="D6.4: not admitted"),
    pytest.param(
        ended("DeadlineExceeded", target="TerminationByKubelet"),
        ("DeadlineExceeded",),
        id="of the kubelet and yet nothing else",
    ),
]


@pytest.mark.parametrize(("of", "want"), CASES)
def test_the_reason_of_a_pod(of: Pod, want: tuple[str, ...]) -> None:
    assert pod_reason.of(of) == want


def test_components_say_why_only_while_the_gate_is_on() -> None:
    on = JobGates(retriable_and_non_retriable_failures=True)
    assert pod_reason.delete_reason("Preemption", on) == "Preemption"
    assert pod_reason.delete_reason("Preemption", ALL_ON) == ""

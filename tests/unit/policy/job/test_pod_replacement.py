# SPDX-License-Identifier: Apache-2.0
"""When pods are replaced (behaviour A7.6, A8.1, A8.2, A16; KEP-3939)."""

from typing import Any

import pytest

from refloat.api.meta import Object
from refloat.policy.job import observed, pod_replacement, scaling
from refloat.policy.job.job_gates import ALL_ON, JobGates
from tests.cases import cases
from tests.unit.policy.builders import at, failed, indexed, job, pod, policy, succeeded
from tests.unit.policy.job.syncs import sync

REPLACEMENT_OFF = JobGates(job_pod_replacement_policy=False)

WAITS: dict[str, Any] = {
    "by default, deleted pods are replaced at once (B1.4)": ({}, ALL_ON, False),
    "TerminatingOrFailed replaces deleted pods at once (A16.1)": (
        {"podReplacementPolicy": "TerminatingOrFailed"},
        ALL_ON,
        False,
    ),
    "Failed waits until they end (A16.2)": ({"podReplacementPolicy": "Failed"}, ALL_ON, True),
    "with the gate off, Failed is not heeded": (
        {"podReplacementPolicy": "Failed"},
        REPLACEMENT_OFF,
        False,
    ),
    "a pod failure policy waits (A15.1)": ({"podFailurePolicy": policy()}, ALL_ON, True),
    "a pod failure policy waits also with the replacement gate off, as KEP-3329 says": (
        {"podFailurePolicy": policy()},
        REPLACEMENT_OFF,
        True,
    ),
    "without the failure gate, the Failed that came with the policy still waits": (
        {"podFailurePolicy": policy()},
        JobGates(job_pod_failure_policy=False),
        True,
    ),
    "with both gates off, nothing waits": (
        {"podFailurePolicy": policy()},
        JobGates(job_pod_failure_policy=False, job_pod_replacement_policy=False),
        False,
    ),
}


@cases("spec job_gates want", WAITS)
def test_who_waits_for_terminating_pods(spec: Object, job_gates: JobGates, want: bool) -> None:
    assert pod_replacement.only_replace_failed(job(**spec).spec, job_gates) is want


DESIRED: dict[str, Any] = {
    "as many as may run at once": (3, 10, 0, 0, 3),
    "no more than are needed still": (3, 10, 8, 0, 2),
    "none when more succeeded than needed": (3, 2, 5, 1, 0),
    "none with parallelism 0": (0, 5, 0, 0, 0),
    "a work queue runs in parallel": (3, None, 0, 1, 3),
    "a work queue keeps what runs after its first success": (3, None, 1, 2, 2),
}


@cases("parallelism completions done active want", DESIRED)
def test_how_many_should_be_active(
    parallelism: int, completions: int | None, done: int, active: int, want: int
) -> None:
    """Behaviour A8.1."""
    result = pod_replacement.desired_active(
        parallelism=parallelism, completions=completions, succeeded=done, active=active
    )
    assert result == want


@cases(
    "active terminating waits want",
    {
        "terminating pods are not counted": (1, 2, False, 2),
        "under Failed, expected pods are active and terminating": (1, 2, True, 0),
        "under Failed, what is missing beside them is created": (1, 1, True, 1),
        "too many are not fewer than none": (5, 0, True, 0),
    },
)
def test_how_many_are_missing_of_three(
    active: int, terminating: int, waits: bool, want: int
) -> None:
    """Behaviour A8.2."""
    result = pod_replacement.missing(desired=3, active=active, terminating=terminating, waits=waits)
    assert result == want


@cases(
    "count done held want",
    {
        "the lowest come first": (3, [], [], [0, 1, 2]),
        "those with a pod or an end are left out": (9, [(1, 2)], [4], [0, 3, 5]),
        "no more than asked for": (1, [(0, 0)], [1], [2]),
        "none when none is asked for": (0, [], [], []),
        "none when all are done": (9, [(0, 5)], [], []),
        "none beyond the last": (9, [(4, 9)], [], [0, 1, 2, 3]),
        "one may be both done and held": (2, [(3, 3)], [3, 3], [0, 1]),
    },
)
def test_which_of_six_indexes_are_pending(
    count: int, done: list[tuple[int, int]], held: list[int], want: list[int]
) -> None:
    """Behaviour A7.6."""
    assert pod_replacement.pending_indexes(count, 6, done=done, occupied=held) == want


@cases(
    "policy_of job_gates failures terminating want",
    {
        "the first pods are new": ("Failed", ALL_ON, 0, 0, "new"),
        "under Failed, after failures": ("Failed", ALL_ON, 1, 0, "recreate_failed"),
        "under Failed, beside terminating pods": (
            "Failed",
            ALL_ON,
            0,
            1,
            "recreate_terminating_or_failed",
        ),
        "under TerminatingOrFailed": (
            "TerminatingOrFailed",
            ALL_ON,
            1,
            0,
            "recreate_terminating_or_failed",
        ),
        "with the gate off": ("Failed", REPLACEMENT_OFF, 1, 1, "new"),
    },
)
def test_why_pods_are_created(
    policy_of: str, job_gates: JobGates, failures: int, terminating: int, want: str
) -> None:
    """Behaviour A23.2."""
    spec = job(podReplacementPolicy=policy_of).spec
    result = pod_replacement.creation_reason(
        spec, job_gates, failed=failures, terminating=terminating
    )
    assert result == want


# -- KEP-3939's stories -----------------------------------------------------------


def test_story_1_an_index_has_one_pod_at_a_time() -> None:
    """Frameworks that need one pod per index: none while the old one terminates."""
    batch_job = indexed(2, podReplacementPolicy="Failed")
    leaving = pod("a", index=0, deleted=10)
    done = sync(batch_job, [leaving, pod("b", index=1)], at(0))
    assert done.created == ()
    assert (done.status.active, done.status.terminating, done.status.failed) == (1, 1, 0)
    terminating_pod = failed("a", index=0, deleted=10)
    after = sync(batch_job, [terminating_pod, pod("b", index=1)], at(100))
    assert [new.index for new in after.created] == [0]


def test_story_1_without_the_policy_the_index_has_two() -> None:
    batch_job = indexed(2, podReplacementPolicy="TerminatingOrFailed")
    leaving = pod("a", index=0, deleted=10, grace=30)
    done = sync(batch_job, [leaving, pod("b", index=1)], at(100))
    assert [new.index for new in done.created] == [0]


def test_story_2_no_more_pods_than_asked_for() -> None:
    """Scarce resources: terminating pods hold theirs until they end."""
    batch_job = job(parallelism=3, completions=9, podReplacementPolicy="Failed")
    pods = [pod("a", deleted=0), pod("b", deleted=0), pod("c")]
    assert sync(batch_job, pods, at(500)).created == ()
    pods[0] = failed("a", ended=0, deleted=0)
    assert len(sync(batch_job, pods, at(500)).created) == 1


@pytest.mark.parametrize("policy_of", ["Failed", "TerminatingOrFailed"])
def test_story_3_terminating_pods_are_in_the_status(policy_of: str) -> None:
    """Quota controllers count them, whatever the policy."""
    batch_job = job(parallelism=2, completions=9, podReplacementPolicy=policy_of)
    done = sync(batch_job, [pod("a", deleted=0), pod("b")], at(0))
    assert done.status.terminating == 1


def test_with_the_gate_off_terminating_is_cleared() -> None:
    batch_job = job(
        podReplacementPolicy="Failed", status={"terminating": 1, "active": 1, "ready": 0}
    )
    done = sync(batch_job, [pod("a", deleted=0)], at(0), job_gates=REPLACEMENT_OFF)
    assert done.status.terminating is None


@pytest.mark.parametrize(
    ("policy_of", "want"), [("Failed", (1, 0)), ("TerminatingOrFailed", (1, 0))]
)
def test_terminating_pod_that_succeeded_is_a_success(policy_of: str, want: tuple[int, int]) -> None:
    """Behaviour A16.2; under TerminatingOrFailed only if it was not seen terminating (A16.1)."""
    batch_job = job(completions=1, podReplacementPolicy=policy_of)
    done = sync(batch_job, [succeeded("a", deleted=0)], at(0))
    assert (done.status.succeeded, done.status.failed) == want


def test_a_pod_that_counted_as_failed_stays_so_when_the_gate_comes_back() -> None:
    """KEP-3939's test of disabling and enabling again."""
    spec: Object = {"parallelism": 1, "completions": 2, "podReplacementPolicy": "Failed"}
    off = sync(job(**spec), [pod("a", deleted=0)], at(100), job_gates=REPLACEMENT_OFF)
    assert (off.status.failed, off.released, len(off.created)) == (1, ["pod-a"], 1)
    status = {"failed": 1, "active": 1, "ready": 0}
    pods = [succeeded("a", deleted=0, tracked=False), pod("b")]
    on = sync(job(status=status, **spec), pods, at(101))
    assert (on.status.failed, on.status.succeeded, on.status.terminating) == (1, 0, 0)
    status = {"failed": 1, "active": 1, "ready": 0, "terminating": 0}
    waits = sync(job(status=status, **spec), [pod("b", deleted=0)], at(102))
    assert (waits.status.terminating, waits.created, waits.status.failed) == (1, (), 1)


def test_listed_as_failed_it_is_no_success_any_more() -> None:
    """Behaviour A5.5, also for the decision whether the Job is complete."""
    expressions = {"uncountedTerminatedPods": {"failed": ["a"]}}
    batch_job = job(completions=1, podReplacementPolicy="TerminatingOrFailed", status=expressions)
    observation = observed.observe(batch_job, [succeeded("a", deleted=0)])
    assert (observation.succeeded, observation.failed) == (0, 1)
    assert scaling.plan(observation, at(1000)).create != ()

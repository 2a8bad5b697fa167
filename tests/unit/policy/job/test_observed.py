# SPDX-License-Identifier: Apache-2.0
"""Who is there, and what is new (behaviour A3, A4.9)."""

from typing import Any

import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base import gates
from refloat.policy.job import job_spec, observed, outcome, pod_state
from refloat.policy.job.job_gates import ALL_ON, JobGates
from tests.cases import cases
from tests.unit.policy.builders import at, condition, failed, indexed, job, on_codes, pod, policy
from tests.unit.policy.builders import succeeded as done

# Active, terminating, and failed under TerminatingOrFailed and under Failed.
KINDS: dict[str, Any] = {
    "pending (A3.1)": (pod(phase="Pending"), (True, False, False, False)),
    "running (A3.1)": (pod(phase="Running"), (True, False, False, False)),
    "unknown (A3.1)": (pod(phase="Unknown"), (True, False, False, False)),
    "no phase yet (A3.1)": (pod(phase=""), (True, False, False, False)),
    "deleted, running (A3.2)": (pod(phase="Running", deleted=0), (False, True, True, False)),
    "deleted, pending (A3.2)": (pod(phase="Pending", deleted=0), (False, True, True, False)),
    "failed (A3.4)": (pod(phase="Failed"), (False, False, True, True)),
    "deleted, failed (A3.4)": (pod(phase="Failed", deleted=0), (False, False, True, True)),
    "succeeded (A3.5)": (pod(phase="Succeeded"), (False, False, False, False)),
    "deleted, succeeded (A3.5)": (pod(phase="Succeeded", deleted=0), (False, False, False, False)),
}


@cases("of want", KINDS)
def test_what_a_pod_is_to_its_job(of: Pod, want: tuple[bool, bool, bool, bool]) -> None:
    early = job_spec.of(job(podReplacementPolicy="TerminatingOrFailed"))
    late = job_spec.of(job(podReplacementPolicy="Failed"))
    result = (
        pod_state.is_active(of),
        pod_state.is_terminating(of),
        early.fails(of),
        late.fails(of),
    )
    assert result == want


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("0", 0),
        ("7", 7),
        ("+7", 7),
        ("007", 7),
        (None, None),
        ("", None),
        ("-1", None),
        ("x", None),
        ("1.0", None),
        (" 1", None),
        ("1_0", None),
        ("٣", None),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-0", 0),
        ("+", None),
        ("+-1", None),
        ("0" * 5000 + "7", 7),
        ("0" * 5000, 0),
        ("9" * 5000, None),
        ("-" + "9" * 5000, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_index_of_a_pod(written: str | None, want: int | None) -> None:
    """Behaviour A3.6."""
    assert pod_state.completion_index(pod(index=written)) == want


@pytest.mark.parametrize("written", ["9" * 5000, "9223372036854775808", "-1", "x"])
def test_a_count_of_failures_that_makes_no_sense_is_none(written: str) -> None:
    """Behaviour A12.7."""
    assert pod_state.all_index_failures(failed(failures=written, ignored=written)) == 0


def test_only_active_pods_are_ready() -> None:
    """Behaviour A3.3."""
    ready = [condition("Ready")]
    pods = [
        pod("a", conditions=ready),
        pod("b", conditions=ready, deleted=0),
        pod("c", "Failed", conditions=ready),
        pod("d", conditions=[condition("Ready", "False")]),
    ]
    assert observed.observe(job(), pods).ready == 1


NEW: dict[str, Any] = {
    "a failure": (failed("a"), True),
    "one without finalizer": (failed("a", tracked=False), False),
    "one that is listed": (failed("listed"), False),
    "one whose finalizer is on its way out": (failed("removing"), False),
}


@cases("of want", NEW)
def test_what_is_new(of: Pod, want: bool) -> None:
    """Behaviour A3.7."""
    batch_job = job(status={"failed": 2, "uncountedTerminatedPods": {"failed": ["listed"]}})
    observation = observed.observe(batch_job, [of], removing=frozenset(("removing",)))
    assert (of in observation.new_failed) is want
    assert observation.failed == 3 + want


@pytest.mark.parametrize(("index", "want"), [(0, 1), (2, 1), (3, 0), (None, 0)])
def test_in_an_indexed_job_only_its_indexes_count(index: int | None, want: int) -> None:
    observation = observed.observe(indexed(3), [failed("a", index=index)])
    assert (observation.failed, len(observation.new_failed)) == (want, want)


def test_ignored_failures_are_new_but_do_not_count() -> None:
    """Behaviour A4.9, A11.3."""
    batch_job = job(podFailurePolicy=policy(on_codes("Ignore", "In", 1)))
    observation = observed.observe(batch_job, [failed(exit_code=1, ended=5)])
    assert (len(observation.new_failed), observation.failed, observation.record.failures) == (
        1,
        0,
        1,
    )
    assert observation.record.last_failure == at(5)


def test_counters_and_lists_and_new_pods_add_up() -> None:
    expressions = {"succeeded": ["x", "y"], "failed": ["z"]}
    batch_job = job(status={"succeeded": 1, "failed": 1, "uncountedTerminatedPods": expressions})
    observation = observed.observe(batch_job, [done("a"), failed("b")])
    assert (observation.succeeded, observation.failed) == (4, 3)


@cases(
    "of want",
    {
        "over and counted": (failed(tracked=False), True),
        "not counted": (failed(), False),
        "not over": (pod(tracked=False), False),
        "perhaps deleted uncounted": (failed(tracked=False, deleted=0), False),
    },
)
def test_settled_pods_may_be_left_out(of: Pod, want: bool) -> None:
    assert pod_state.is_settled(of) is want


@cases(
    "of want",
    {
        "runs without the finalizer": (pod(tracked=False), True),
        "runs with it": (pod(), False),
        "is being deleted": (pod(tracked=False, deleted=0), False),
        "may have been counted": (failed(tracked=False), False),
    },
)
def test_which_pod_could_end_uncounted(of: Pod, want: bool) -> None:
    assert pod_state.has_escaped(of) is want


def test_one_that_was_deleted_uncounted_is_judged_and_stays_uncounted() -> None:
    """Behaviour A15.8."""
    batch_job = job(podFailurePolicy=policy(on_codes("FailJob", "In", 143)))
    observation = observed.observe(batch_job, [failed(exit_code=143, tracked=False, deleted=0)])
    assert (
        observation.new_failed,
        observation.failed,
        observation.tracked,
        observation.active,
    ) == ((), 0, (), ())
    decided = outcome.decide(observation, at(0))
    assert decided is not None
    assert decided.reason == "PodFailurePolicy"


def test_defaults_are_known_where_the_api_did_not_set_them() -> None:
    bare = job_spec.of(Job())
    assert (bare.parallelism, bare.completions, bare.backoff_limit) == (1, None, 6)
    assert not bare.waits
    assert not bare.restarts_containers


def test_with_a_limit_per_index_there_is_none_for_the_job() -> None:
    """Behaviour A12.4."""
    assert job_spec.of(indexed(2, backoffLimitPerIndex=1)).backoff_limit == 2**31 - 1
    assert job_spec.of(indexed(2, backoffLimitPerIndex=1, backoffLimit=3)).backoff_limit == 3


def test_job_gates_are_the_feature_gates() -> None:
    assert JobGates.of(gates.Gates()) == ALL_ON
    off = gates.Gates({gates.JOB_POD_REPLACEMENT_POLICY: False})
    assert JobGates.of(off) == JobGates(job_pod_replacement_policy=False)

# SPDX-License-Identifier: Apache-2.0
"""Who is there, and what is new (behaviour A3, A4.9)."""

from typing import Any

import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base import gates
from refloat.policy import census, outcome, pod_state, terms
from refloat.policy.switches import ALL_ON, Switches
from tests.unit.policy.made import at, condition, failed, indexed, job, on_codes, pod, policy
from tests.unit.policy.made import succeeded as done

# Active, terminating, and failed under TerminatingOrFailed and under Failed.
KINDS: list[Any] = [
    pytest.param(pod(phase="Pending"), (True, False, False, False), id="pending (A3.1)"),
    pytest.param(pod(phase="Running"), (True, False, False, False), id="running (A3.1)"),
    pytest.param(pod(phase="Unknown"), (True, False, False, False), id="unknown (A3.1)"),
    pytest.param(pod(phase=""), (True, False, False, False), id="no phase yet (A3.1)"),
    pytest.param(
        pod(phase="Running", deleted=0), (False, True, True, False), id="deleted, running (A3.2)"
    ),
    pytest.param(
        pod(phase="Pending", deleted=0), (False, True, True, False), id="deleted, pending (A3.2)"
    ),
    pytest.param(pod(phase="Failed"), (False, False, True, True), id="failed (A3.4)"),
    pytest.param(
        pod(phase="Failed", deleted=0), (False, False, True, True), id="deleted, failed (A3.4)"
    ),
    pytest.param(pod(phase="Succeeded"), (False, False, False, False), id="succeeded (A3.5)"),
    pytest.param(
        pod(phase="Succeeded", deleted=0),
        (False, False, False, False),
        id="deleted, succeeded (A3.5)",
    ),
]


@pytest.mark.parametrize(("of", "want"), KINDS)
def test_what_a_pod_is_to_its_job(of: Pod, want: tuple[bool, bool, bool, bool]) -> None:
    early = terms.of(job(podReplacementPolicy="TerminatingOrFailed"))
    late = terms.of(job(podReplacementPolicy="Failed"))
    found = (
        pod_state.is_active(of),
        pod_state.is_terminating(of),
        early.fails(of),
        late.fails(of),
    )
    assert found == want


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
    assert census.observe(job(), pods).ready == 1


NEW: list[Any] = [
    pytest.param(failed("a"), True, id="a failure"),
    pytest.param(failed("a", tracked=False), False, id="one without finalizer"),
    pytest.param(failed("listed"), False, id="one that is listed"),
    pytest.param(failed("removing"), False, id="one whose finalizer is on its way out"),
]


@pytest.mark.parametrize(("of", "want"), NEW)
def test_what_is_new(of: Pod, want: bool) -> None:
    """Behaviour A3.7."""
    made = job(status={"failed": 2, "uncountedTerminatedPods": {"failed": ["listed"]}})
    seen = census.observe(made, [of], removing=frozenset(("removing",)))
    assert (of in seen.new_failed) is want
    assert seen.failed == 3 + want


@pytest.mark.parametrize(("index", "want"), [(0, 1), (2, 1), (3, 0), (None, 0)])
def test_in_an_indexed_job_only_its_indexes_count(index: int | None, want: int) -> None:
    seen = census.observe(indexed(3), [failed("a", index=index)])
    assert (seen.failed, len(seen.new_failed)) == (want, want)


def test_ignored_failures_are_new_but_do_not_count() -> None:
    """Behaviour A4.9, A11.3."""
    made = job(podFailurePolicy=policy(on_codes("Ignore", "In", 1)))
    seen = census.observe(made, [failed(exit_code=1, ended=5)])
    assert (len(seen.new_failed), seen.failed, seen.record.failures) == (1, 0, 1)
    assert seen.record.last_failure == at(5)


def test_counters_and_lists_and_new_pods_add_up() -> None:
    listed = {"succeeded": ["x", "y"], "failed": ["z"]}
    made = job(status={"succeeded": 1, "failed": 1, "uncountedTerminatedPods": listed})
    seen = census.observe(made, [done("a"), failed("b")])
    assert (seen.succeeded, seen.failed) == (4, 3)


@pytest.mark.parametrize(
    ("of", "want"),
    [
        pytest.param(failed(tracked=False), True, id="over and counted"),
        pytest.param(failed(), False, id="not counted"),
        pytest.param(pod(tracked=False), False, id="not over"),
        pytest.param(failed(tracked=False, deleted=0), False, id="perhaps deleted uncounted"),
    ],
)
def test_settled_pods_may_be_left_out(of: Pod, want: bool) -> None:
    assert pod_state.is_settled(of) is want


@pytest.mark.parametrize(
    ("of", "want"),
    [
        pytest.param(pod(tracked=False), True, id="runs without the finalizer"),
        pytest.param(pod(), False, id="runs with it"),
        pytest.param(pod(tracked=False, deleted=0), False, id="is being deleted"),
        pytest.param(failed(tracked=False), False, id="may have been counted"),
    ],
)
def test_which_pod_could_end_uncounted(of: Pod, want: bool) -> None:
    assert pod_state.has_escaped(of) is want


def test_one_that_was_deleted_uncounted_is_judged_and_stays_uncounted() -> None:
    """Behaviour A15.8."""
    made = job(podFailurePolicy=policy(on_codes("FailJob", "In", 143)))
    seen = census.observe(made, [failed(exit_code=143, tracked=False, deleted=0)])
    assert (seen.new_failed, seen.failed, seen.tracked, seen.active) == ((), 0, (), ())
    decided = outcome.decide(seen, at(0))
    assert decided is not None
    assert decided.reason == "PodFailurePolicy"


def test_defaults_are_known_where_the_api_did_not_set_them() -> None:
    bare = terms.of(Job())
    assert (bare.parallelism, bare.completions, bare.backoff_limit) == (1, None, 6)
    assert not bare.waits
    assert not bare.restarts_containers


def test_with_a_limit_per_index_there_is_none_for_the_job() -> None:
    """Behaviour A12.4."""
    assert terms.of(indexed(2, backoffLimitPerIndex=1)).backoff_limit == 2**31 - 1
    assert terms.of(indexed(2, backoffLimitPerIndex=1, backoffLimit=3)).backoff_limit == 3


def test_switches_are_the_gates() -> None:
    assert Switches.of(gates.Gates()) == ALL_ON
    off = gates.Gates({gates.JOB_POD_REPLACEMENT_POLICY: False})
    assert Switches.of(off) == Switches(job_pod_replacement_policy=False)

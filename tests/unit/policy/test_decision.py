# SPDX-License-Identifier: Apache-2.0
"""A decision that was noted holds for its own Job, and for nothing else."""

import msgspec
import pytest

from refloat.api.batch import Job
from refloat.policy import accounting, census, decision, outcome, pod_state
from refloat.policy.decision import Decision
from refloat.policy.outcome import Outcome
from tests.unit.policy.made import at, failed, indexed, job, on_codes, pod, policy, succeeded
from tests.unit.policy.syncs import sync

DEADLINE = Decision("job", succeeded=False, reason="DeadlineExceeded", message="m")
ENOUGH = Decision("job", succeeded=True, reason="SuccessPolicy", message="m")


def noted(of: Job, decided: Decision = DEADLINE) -> Job:
    annotations = {decision.ANNOTATION: decision.write(decided)}
    return msgspec.structs.replace(
        of, metadata=msgspec.structs.replace(of.metadata, annotations=annotations)
    )


def test_what_is_written_can_be_read() -> None:
    assert decision.read({decision.ANNOTATION: decision.write(DEADLINE)}, "job") == DEADLINE


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "{}", "[]", '{"uid":"job"}', '{"uid":"job","succeeded":1}'],
)
def test_what_somebody_else_wrote_is_no_decision(text: str) -> None:
    assert decision.read({decision.ANNOTATION: text}, "job") is None


def test_a_copy_of_the_job_is_not_bound() -> None:
    assert decision.read({decision.ANNOTATION: decision.write(DEADLINE)}, "copy") is None


def test_no_annotation_is_no_decision() -> None:
    assert decision.read(None, "job") is None


def test_the_note_of_an_outcome_is_that_outcome() -> None:
    decided = Outcome(succeeded=False, reason="DeadlineExceeded", message="m")
    assert decision.read({decision.ANNOTATION: outcome.note(job(), decided)}, "job") == DEADLINE


def test_what_was_noted_goes_before_what_would_be_decided_now() -> None:
    """Behaviour H12: deleted pods must not change the reason."""
    made = noted(job(backoffLimit=0))
    found = outcome.decide(census.observe(made, [failed("a"), failed("b")]), at(0))
    assert found == Outcome(succeeded=False, reason="DeadlineExceeded", message="m", stands=True)


def test_what_was_noted_becomes_a_condition() -> None:
    done = sync(noted(job()), [pod("a")], at(0))
    [condition] = done.status.conditions or ()
    assert (condition.type, condition.reason) == ("FailureTarget", "DeadlineExceeded")


@pytest.mark.parametrize("phase", ["Running", "Failed", "Succeeded"])
@pytest.mark.parametrize("replacement", ["Failed", "TerminatingOrFailed"])
def test_after_a_success_pods_that_were_deleted_count_for_nothing(
    phase: str, replacement: str
) -> None:
    """As in the sync that deleted them (behaviour A17.4)."""
    made = indexed(3, podReplacementPolicy=replacement, backoffLimitPerIndex=0)
    pods = [succeeded("a", index=0), pod("b", phase, index=1, deleted=0), failed("c", index=2)]
    done = sync(noted(made, ENOUGH), pods, at(0))
    assert (done.status.succeeded, done.status.failed, done.status.failed_indexes) == (1, 1, "2")
    assert sorted(done.released) == ["pod-a", "pod-b", "pod-c"]


@pytest.mark.parametrize("phase", ["Running", "Failed", "Succeeded"])
def test_after_a_failure_pods_that_were_deleted_are_failures_without_an_exit_code(
    phase: str,
) -> None:
    """As in the sync that deleted them (behaviour A5.3), whatever a rule says of the signal."""
    made = noted(job(parallelism=2, podFailurePolicy=policy(on_codes("Ignore", "In", 143))))
    stopped = failed("a", 143, deleted=0)
    if phase != "Failed":
        stopped = pod("a", phase, deleted=0)
    done = sync(made, [stopped, failed("b", 143)], at(0))
    assert (done.status.succeeded, done.status.failed) == (0, 1)


def test_after_a_failure_a_pod_is_a_success_whose_index_was_completed_before() -> None:
    """The index was written with the note, or with the condition."""
    of = noted(indexed(2, status={"completedIndexes": "0", "succeeded": 1}))
    pods = [succeeded("a", index=0, deleted=0), succeeded("b", index=1, deleted=0)]
    done = sync(of, pods, at(0))
    assert (done.status.completed_indexes, done.status.failed) == ("0", 1)


def test_after_a_failure_a_pod_does_not_count_that_was_ignored_before() -> None:
    of = noted(job(podFailurePolicy=policy(on_codes("Ignore", "In", 143))))
    pods = [failed("a", 143, deleted=0), failed("b", 143, deleted=0)]
    seen = census.observe(of, pods, ignored={"a"})
    decided = outcome.decide(seen, at(0))
    counts = accounting.Counts(0, 0, 0)
    plan = accounting.plan(seen, outcome=decided, counts=counts, now=at(0))
    listed = plan.status.uncounted_terminated_pods
    assert listed is not None
    assert (listed.failed, len(plan.removals)) == (("b",), 2)


def test_after_a_failure_a_pod_that_nobody_deleted_is_a_success() -> None:
    done = sync(noted(job(parallelism=2)), [succeeded("a"), pod("b", deleted=0)], at(0))
    assert (done.status.succeeded, done.status.failed) == (1, 1)


def test_when_the_work_is_done_successes_count_whoever_deleted_them() -> None:
    """More than one sync can count: the first has said why the Job is over (A1.6)."""
    reached = Decision("job", succeeded=True, reason="CompletionsReached", message="m")
    pods = [pod(name, "Succeeded", deleted=0) for name in "ab"]
    assert sync(noted(job(completions=2), reached), pods, at(0)).status.succeeded == 2


def test_a_decision_that_cannot_be_written_yet_leaves_its_pods_alone() -> None:
    """While another pod cannot be deleted, those that are must not count as failures."""
    pods = [pod("a", deleted=0), pod("b"), pod("c", "Succeeded", deleted=0)]
    seen = census.observe(noted(job(), ENOUGH), pods)
    counts = accounting.Counts(1, 0, 1)
    plan = accounting.plan(seen, outcome=None, counts=counts, now=at(0), managed=False)
    assert (plan.removals, plan.status.failed, plan.status.succeeded) == ((), 0, 0)


RELEASED = {pod_state.RELEASED: "u"}


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, True, id="released and not deleted"),
        pytest.param({"deletion_timestamp": "2026-01-01T00:00:00Z"}, False, id="deleted"),
        pytest.param({"finalizers": (pod_state.TRACKING_FINALIZER,)}, False, id="tracked"),
        pytest.param({"annotations": {pod_state.RELEASED: "other"}}, False, id="a copy"),
        pytest.param({"annotations": {}}, False, id="never released"),
        pytest.param({"annotations": None}, False, id="without annotations"),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_who_is_released(changes: dict[str, object], want: bool, phase: str) -> None:
    of = pod("u", phase, tracked=False)
    metadata = msgspec.structs.replace(of.metadata, **{"annotations": RELEASED, **changes})
    of = msgspec.structs.replace(of, metadata=metadata)
    assert pod_state.is_released(of) is want
    if want:
        assert not pod_state.is_settled(of)

# SPDX-License-Identifier: Apache-2.0
"""A decision that an earlier sync wrote into the status of a Job, and what it means for pods."""

from typing import Any

import pytest

from refloat.api.meta import Object
from refloat.policy.job import accounting, observed, outcome
from refloat.policy.job.outcome import Outcome
from tests.unit.policy.builders import at, failed, indexed, job, on_codes, pod, policy, succeeded
from tests.unit.policy.job.syncs import sync


def target(kind: str, reason: str) -> Object:
    """A status with the interim condition of a decision."""
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "message": "m"}]}


DEADLINE = target("FailureTarget", "DeadlineExceeded")
ENOUGH = target("SuccessCriteriaMet", "SuccessPolicy")
REACHED = target("SuccessCriteriaMet", "CompletionsReached")


def test_what_was_written_goes_before_what_would_be_decided_now() -> None:
    """Behaviour H12: deleted pods must not change the reason."""
    batch_job = job(backoffLimit=0, status=DEADLINE)
    end = outcome.decide(observed.observe(batch_job, [failed("a"), failed("b")]), at(0))
    assert end == Outcome(succeeded=False, reason="DeadlineExceeded", message="m", recorded=True)


FORGERIES = (
    '{"uid":"job","succeeded":true,"reason":"Whatever","message":"m"}',
    '{"uid":"job","succeeded":false,"reason":"Whatever","message":"m"}',
)


@pytest.mark.parametrize("text", FORGERIES)
def test_no_annotation_is_a_decision(text: str) -> None:
    of = job(completions=3, annotations={"refloat.dev/decision": text})
    assert outcome.decide(observed.observe(of, [pod("a")]), at(0)) is None


@pytest.mark.parametrize("phase", ["Running", "Failed", "Succeeded"])
@pytest.mark.parametrize("replacement", ["Failed", "TerminatingOrFailed"])
def test_after_a_success_pods_that_were_deleted_count_for_nothing(
    phase: str, replacement: str
) -> None:
    """As in the sync that deleted them (behaviour A17.4)."""
    more: dict[str, Any] = {"podReplacementPolicy": replacement, "backoffLimitPerIndex": 0}
    batch_job = indexed(3, status=ENOUGH, **more)
    pods = [succeeded("a", index=0), pod("b", phase, index=1, deleted=0), failed("c", index=2)]
    done = sync(batch_job, pods, at(0))
    assert (done.status.succeeded, done.status.failed, done.status.failed_indexes) == (1, 1, "2")
    assert sorted(done.released) == ["pod-a", "pod-b", "pod-c"]


@pytest.mark.parametrize("phase", ["Running", "Failed", "Succeeded"])
def test_after_a_failure_a_pod_that_was_listed_is_a_failure_whatever_it_has_become(
    phase: str,
) -> None:
    """The pod ran when the Job failed (behaviour A5.3, A5.5), whatever a rule on the signal is."""
    status = {**DEADLINE, "uncountedTerminatedPods": {"failed": ["a"]}}
    rules = policy(on_codes("Ignore", "In", 143))
    batch_job = job(parallelism=2, podFailurePolicy=rules, status=status)
    ran = failed("a", 143, deleted=0) if phase == "Failed" else pod("a", phase, deleted=0)
    done = sync(batch_job, [ran, failed("b", 143)], at(0))
    assert (done.status.succeeded, done.status.failed) == (0, 1)


def test_after_a_failure_a_pod_in_no_list_is_judged_by_the_rules() -> None:
    """As in Kubernetes: an ignored pod is in no list, and is ignored once more."""
    rules = policy(on_codes("Ignore", "In", 143))
    batch_job = job(podFailurePolicy=rules, status=DEADLINE)
    done = sync(batch_job, [failed("a", 143, deleted=0), failed("b", 1, deleted=0)], at(0))
    assert (done.status.failed, sorted(done.released)) == (1, ["pod-a", "pod-b"])


def test_when_all_completions_are_reached_successes_count_that_were_deleted() -> None:
    """More than one sync can count: the first has recorded why the Job is over (A1.6)."""
    pods = [pod(name, "Succeeded", deleted=0) for name in "ab"]
    assert sync(job(completions=2, status=REACHED), pods, at(0)).status.succeeded == 2


def test_a_decision_that_cannot_take_effect_yet_leaves_its_pods_alone() -> None:
    """While another pod cannot be deleted, those that are must not count as failures."""
    pods = [pod("a", deleted=0), pod("b"), pod("c", "Succeeded", deleted=0)]
    observation = observed.observe(job(status=ENOUGH), pods)
    counts = accounting.Counts(1, 0, 1)
    plan = accounting.plan(observation, outcome=None, counts=counts, now=at(0), managed=False)
    assert (plan.removals, plan.status.failed, plan.status.succeeded) == ((), 0, 0)

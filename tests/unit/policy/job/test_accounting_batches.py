# SPDX-License-Identifier: Apache-2.0
"""Pods that more than one sync must count, because there are too many for one (behaviour A1.6)."""

import msgspec

from refloat.api.batch import JobStatus
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import accounting, observed, outcome
from refloat.policy.job.accounting import AccountingSettings, Counts
from tests.unit.policy.builders import at, failed, job, succeeded, text

TWO_AT_A_TIME = AccountingSettings(most_uncounted=2)
MOST_SYNCS = 10


def counted(pods: list[Pod]) -> JobStatus:
    """The status of a work queue whose pods have all ended, once it is finished."""
    status: Object = {"startTime": text(0)}
    for _ in range(MOST_SYNCS):
        observation = observed.observe(job(parallelism=len(pods), status=status), pods)
        ends = outcome.decide(observation, at(9)) or outcome.completed(observation, active=0)
        plan = accounting.plan(
            observation, outcome=ends, counts=Counts(0, 0, 0), now=at(9), settings=TWO_AT_A_TIME
        )
        uids = [pod.metadata.uid for pod in plan.removals]
        done = accounting.settle(plan, uids, at(9))
        if done.finished:
            return done.status
        pods = [pod for pod in pods if pod.metadata.uid not in uids]
        status = msgspec.to_builtins(done.status)
    raise AssertionError(f"not finished after {MOST_SYNCS} syncs")


def test_who_was_deleted_by_somebody_else_is_a_failure_when_the_work_is_done() -> None:
    """Behaviour A5.3: also for a sync after the one that decided that the Job is done."""
    pods = [succeeded("a"), succeeded("b"), failed("c"), failed("d", deleted=1)]
    status = counted(pods)
    assert (status.succeeded, status.failed) == (2, 2)
    assert [each.reason for each in status.conditions or ()] == ["CompletionsReached"] * 2

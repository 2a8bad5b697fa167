# SPDX-License-Identifier: Apache-2.0
"""A status patch has only the changed fields; requests run side by side."""

import asyncio
from typing import Any

import pytest

from refloat.api.batch import JobStatus, UncountedTerminatedPods
from refloat.controllers.job import writes
from refloat.policy.job import job_conditions
from tests.unit.policy import builders

EMPTY = JobStatus(uncounted_terminated_pods=UncountedTerminatedPods())
NO_LISTS = {"succeeded": None, "failed": None}

CASES: dict[str, tuple[JobStatus, JobStatus, dict[str, Any]]] = {
    "nothing changed": (EMPTY, EMPTY, {}),
    "the lists appear, empty": (JobStatus(), EMPTY, {"uncountedTerminatedPods": NO_LISTS}),
    "a pod is listed": (
        EMPTY,
        JobStatus(uncounted_terminated_pods=UncountedTerminatedPods(failed=("u",))),
        {"uncountedTerminatedPods": {"succeeded": None, "failed": ("u",)}},
    ),
    "a number that becomes zero is removed": (JobStatus(active=2), JobStatus(), {"active": None}),
    "a zero behind a pointer is written": (
        JobStatus(ready=1, terminating=1),
        JobStatus(ready=0, terminating=0),
        {"ready": 0, "terminating": 0},
    ),
    "a start that is taken back": (
        JobStatus(start_time=builders.text(0)),
        JobStatus(),
        {"startTime": None},
    ),
    "failed indexes, empty": (JobStatus(), JobStatus(failed_indexes=""), {"failedIndexes": ""}),
}


@pytest.mark.parametrize(("before", "after", "want"), CASES.values(), ids=CASES)
def test_patch_has_what_changed(before: JobStatus, after: JobStatus, want: dict[str, Any]) -> None:
    assert writes.status_patch(before, after) == want


def test_conditions_are_written_as_a_whole() -> None:
    one = job_conditions.new("Suspended", "r", "m", now=builders.at(0), status="False")
    two = job_conditions.new("FailureTarget", "r", "m", now=builders.at(1))
    patch = writes.status_patch(JobStatus(conditions=(one,)), JobStatus(conditions=(one, two)))
    assert [each["type"] for each in patch["conditions"]] == ["Suspended", "FailureTarget"]
    assert patch["conditions"][1] == {
        "type": "FailureTarget",
        "status": "True",
        "reason": "r",
        "message": "m",
        "lastTransitionTime": builders.text(1),
        "lastProbeTime": builders.text(1),
    }


async def test_results_come_in_their_order_and_not_too_many_at_once() -> None:
    running, most = 0, 0

    async def act(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return item * 2

    assert await writes.each(range(10), act, at_once=3) == [item * 2 for item in range(10)]
    assert most == 3


async def test_an_error_comes_after_all_have_ended() -> None:
    ends: list[int] = []

    async def act(item: int) -> None:
        if item == 0:
            raise ValueError("the first")
        await asyncio.sleep(0)
        ends.append(item)

    with pytest.raises(ValueError, match="the first"):
        await writes.each(range(3), act, at_once=3)
    assert ends == [1, 2]


async def test_an_error_that_is_returned_is_a_result() -> None:
    failure = ValueError("returned")

    async def act(item: int) -> ValueError | None:
        return failure if item == 1 else None

    assert await writes.each(range(3), act, at_once=3) == [None, failure, None]


async def test_nobody_is_left_when_all_are_cancelled() -> None:
    running = 0

    async def act(_: int) -> None:
        nonlocal running
        running += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            running -= 1

    task = asyncio.ensure_future(writes.each(range(3), act, at_once=3))
    for _ in range(3):
        await asyncio.sleep(0)
    assert running == 3
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running == 0

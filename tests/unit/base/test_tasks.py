# SPDX-License-Identifier: Apache-2.0
"""Background tasks that are neither lost nor silent."""

import asyncio
import logging

import pytest

from refloat.base.tasks import Tasks
from tests.clocks import rest


async def test_close_cancels_and_waits() -> None:
    tasks = Tasks()
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await rest()
            ended.append(name)

    for name in ("a", "b"):
        tasks.spawn(work(name), name=name)
    await rest()
    await tasks.close()
    assert ended == ["a", "b"]


async def test_wait_does_not_cancel() -> None:
    tasks = Tasks()

    async def work() -> int:
        await rest()
        return 1

    task = tasks.spawn(work(), name="worker")
    await tasks.wait()
    assert task.result() == 1


async def test_death_of_a_task_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()

    async def work() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR):
        tasks.spawn(work(), name="worker")
        await rest()
    assert [each.getMessage() for each in caplog.records] == ["task worker died"]
    await tasks.close()


async def test_end_of_a_task_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Tasks()

    async def work() -> int:
        return 1

    task = tasks.spawn(work(), name="worker")
    await rest()
    await tasks.close()
    assert task.result() == 1
    assert caplog.records == []


async def test_close_of_nothing_is_done() -> None:
    await Tasks().close()

# SPDX-License-Identifier: Apache-2.0
"""Large computations beside the loop."""

import asyncio
import gc
import sys
import threading

import pytest

from refloat.base import process, workers
from refloat.base.errors import UsageError
from refloat.base.workers import SWITCH_SECONDS, Worker


async def test_the_loop_runs_on_while_a_computation_does() -> None:
    worker = Worker()
    started, go_on = threading.Event(), threading.Event()

    def compute() -> str:
        started.set()
        go_on.wait()
        return threading.current_thread().name

    task = asyncio.ensure_future(worker.run(compute))
    while not started.is_set():
        await asyncio.sleep(0)
    go_on.set()
    assert await task != threading.current_thread().name
    worker.close()


async def test_a_foreseen_error_comes_without_the_frames_that_hold_its_input() -> None:
    worker = Worker()

    def fail() -> None:
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise UsageError("outer") from error

    with pytest.raises(UsageError, match="outer") as raised:
        await worker.run(fail)
    assert raised.value.__cause__ is None
    frames = [entry.name for entry in raised.traceback]
    assert "fail" not in frames
    worker.close()


async def test_the_interpreter_is_left_as_it_was_by_two_that_compute_at_once() -> None:
    first, second, usual = Worker(), Worker(), sys.getswitchinterval()
    both, end = threading.Barrier(3), threading.Event()

    def compute(go_on: threading.Event) -> None:
        both.wait()
        go_on.wait()

    early = threading.Event()
    tasks = [
        asyncio.ensure_future(first.run(compute, early)),
        asyncio.ensure_future(second.run(compute, end)),
    ]
    await asyncio.to_thread(both.wait)
    early.set()
    await tasks[0]
    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
    assert not gc.isenabled()
    end.set()
    await tasks[1]
    assert sys.getswitchinterval() == usual
    assert gc.isenabled()
    first.close()
    second.close()


async def test_the_interpreter_is_left_as_it_was() -> None:
    worker, usual = Worker(), sys.getswitchinterval()

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await worker.run(fail)
    assert sys.getswitchinterval() == usual
    assert gc.isenabled()
    worker.close()


async def test_a_trim_comes_from_the_thread_and_serves_all_that_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []
    monkeypatch.setattr(workers, "TRIM_SECONDS", 0.0)
    monkeypatch.setattr(
        process, "trim_memory", lambda: threads.append(threading.current_thread().name)
    )
    worker = Worker()
    worker.trim_soon()
    worker.trim_soon()
    while not threads:
        await asyncio.sleep(0)
    worker.close()
    assert threads == ["worker_0"]


async def test_a_closed_worker_does_not_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "TRIM_SECONDS", 0.0)
    monkeypatch.setattr(process, "trim_memory", lambda: pytest.fail("it trims"))
    worker = Worker()
    worker.trim_soon()
    worker.close()
    for _ in range(3):
        await asyncio.sleep(0)

# SPDX-License-Identifier: Apache-2.0
"""What becomes of a key after its reconcile, and how workers begin and end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry

from refloat.client import errors as client_errors
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.errors import LeadershipLost, Retry, Terminal
from refloat.runtime.queue import Backoff
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.sim.run import Sim
from tests.cases import cases
from tests.virtual import virtual

Work = Callable[[str], Awaitable[Result]]


class Bench:
    """A controller, its reconciles with their times, and its metrics."""

    def __init__(self, sim: Sim, work: Work, **settings: object) -> None:
        self.sim = sim
        self.work = work
        self.calls: list[tuple[float, str]] = []
        self.running: list[str] = []
        self.most = 0
        self.registry = CollectorRegistry()
        instruments = Instruments(ReconcileMetrics(self.registry), QueueMetrics(self.registry))
        self.controller: Controller[str] = Controller(
            "c",
            self,
            clock=sim.clock,
            instruments=instruments,
            settings=ControllerSettings(**settings),  # type: ignore[arg-type]
        )
        self.controller.start()

    async def reconcile(self, key: str) -> Result:
        self.calls.append((self.sim.clock.monotonic(), key))
        assert key not in self.running, "one key at a time"
        self.running.append(key)
        self.most = max(self.most, len(self.running))
        try:
            return await self.work(key)
        finally:
            self.running.remove(key)

    async def after(self, seconds: float) -> list[float]:
        """When the key was reconciled, within so many seconds from its add."""
        self.controller.queue.add("k")
        await self.sim.clock.sleep(seconds)
        await self.controller.stop()
        return [when for when, _ in self.calls]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(
            f"controller_runtime_{name}", {"controller": "c", **labels}
        )


def raising(*failures: BaseException) -> Work:
    """Fails in these ways one after another, then goes well."""
    remaining = list(failures)

    async def work(_key: str) -> Result:
        if remaining:
            raise remaining.pop(0)
        return DONE

    return work


async def well(_key: str) -> Result:
    return DONE


@virtual()
async def test_a_reconcile_that_went_well_is_not_repeated(sim: Sim) -> None:
    bench = Bench(sim, well)
    assert await bench.after(1000) == [0]
    assert bench.metric("reconcile_total", result="success") == 1
    assert bench.metric("reconcile_errors_total") == 0


@virtual()
async def test_again_after_is_again_after(sim: Sim) -> None:
    async def work(_key: str) -> Result:
        return Result(requeue_after=10)

    bench = Bench(sim, work)
    assert await bench.after(25) == [0, 10, 20]
    assert bench.metric("reconcile_total", result="requeue_after") == 3


FAILURES = {
    "any error backs off": ([ValueError("x"), ValueError("x"), ValueError("x")], [0, 1, 3, 7]),
    "Retry says when": ([Retry("not yet", after=5)], [0, 5]),
    "Retry without a time backs off": ([Retry("not yet")], [0, 1]),
    "Terminal is not retried": ([Terminal("never")], [0]),
    "a conflict backs off": ([client_errors.Conflict("changed")], [0, 1]),
    "429 says when": ([client_errors.TooManyRequests("slow down", retry_after=9)], [0, 9]),
    "but not sooner": ([client_errors.TooManyRequests("slow down", retry_after=0)], [0, 1]),
    "a timeout of its own is any error": ([TimeoutError()], [0, 1]),
    "without leadership there is no retry": ([LeadershipLost("gone")], [0]),
    "a cancellation that is not ours is any error": ([asyncio.CancelledError()], [0, 1]),
}


@cases("failures want_times", FAILURES)
@virtual()
async def test_a_failure_says_what_comes_next(
    sim: Sim, failures: list[BaseException], want_times: list[float]
) -> None:
    bench = Bench(sim, raising(*failures), backoff=Backoff(1, 60))
    assert await bench.after(100) == want_times
    assert bench.metric("reconcile_errors_total") == len(failures)
    assert bench.metric("reconcile_total", result="error") == len(failures)
    assert bench.metric("reconcile_timeouts_total") == 0


@virtual()
async def test_terminal_is_logged_and_counted(sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(sim, raising(Terminal("spec.x is 3, must be 2")))
    await bench.after(1)
    assert bench.metric("terminal_reconcile_errors_total") == 1
    assert "c k: spec.x is 3, must be 2; no retry before a change" in caplog.text


@virtual()
async def test_a_success_resets_the_back_off(sim: Sim) -> None:
    bench = Bench(sim, raising(ValueError(), ValueError()))
    bench.controller.queue.add("k")
    await sim.clock.sleep(100)
    bench.work = raising(ValueError())
    bench.controller.queue.add("k")
    await sim.clock.sleep(100)
    assert [when for when, _ in bench.calls] == [0, 1, 3, 100, 101]
    await bench.controller.stop()


@virtual()
async def test_only_what_nobody_foresaw_is_logged_with_a_traceback(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(sim, raising(client_errors.Conflict("changed"), Retry("wait"), KeyError("bug")))
    await bench.after(100)
    records = {record.getMessage().split(": ")[1]: record for record in caplog.records}
    assert {text: record.levelname for text, record in records.items()} == {
        "changed; again in 1 s": "WARNING",
        "wait; again in 2 s": "INFO",
        "'bug'; again in 4 s": "ERROR",
    }
    assert [bool(record.exc_info) for record in records.values()] == [False, False, True]


@virtual()
async def test_a_hung_reconcile_is_seen_cancelled_counted_and_tried_again(sim: Sim) -> None:
    hangs = [True]

    async def work(_key: str) -> Result:
        if hangs.pop() if hangs else False:
            await sim.clock.sleep(1e6)
        return DONE

    bench = Bench(sim, work, reconcile_seconds=30, backoff=Backoff(1, 60))
    bench.controller.queue.add("k")
    await sim.clock.sleep(20)
    sample = bench.registry.get_sample_value(
        "workqueue_longest_running_processor_seconds", {"name": "c"}
    )
    assert sample == 20
    assert bench.metric("active_workers") == 1
    await sim.clock.sleep(80)
    assert [when for when, _ in bench.calls] == [0, 31]
    assert bench.metric("reconcile_timeouts_total") == 1
    assert bench.metric("reconcile_time_seconds_sum") == 30
    assert bench.metric("active_workers") == 0
    await bench.controller.stop()


@virtual(seeds=20)
async def test_as_many_keys_at_once_as_there_are_workers(sim: Sim) -> None:
    async def work(_key: str) -> Result:
        await sim.clock.sleep(1)
        return DONE

    bench = Bench(sim, work, workers=3)
    for n in range(9):
        bench.controller.queue.add(f"k{n}")
    await sim.clock.sleep(3.5)
    assert len(bench.calls) == 9
    assert bench.most == 3
    assert bench.metric("max_concurrent_reconciles") == 3
    await bench.controller.stop()


@virtual()
async def test_a_reconcile_that_never_waits_does_not_keep_others_waiting(sim: Sim) -> None:
    bench = Bench(sim, well, workers=1)
    for n in range(1000):
        bench.controller.queue.add(f"k{n}")
    for _ in range(50):
        await sim.clock.sleep(0)
    assert 0 < len(bench.calls) < 100
    await bench.controller.stop()


@virtual()
async def test_what_is_worked_on_may_finish_at_a_stop_and_what_waits_is_left(sim: Sim) -> None:
    finished = []

    async def work(key: str) -> Result:
        await sim.clock.sleep(5)
        finished.append(key)
        return DONE

    bench = Bench(sim, work, workers=1)
    bench.controller.queue.add("a")
    bench.controller.queue.add("b")
    await sim.clock.sleep(1)
    assert await bench.controller.stop(10) is True
    assert finished == ["a"]
    assert sim.clock.monotonic() == 5


@virtual()
async def test_what_does_not_finish_in_time_is_cancelled(sim: Sim) -> None:
    ends = []

    async def work(key: str) -> Result:
        try:
            await sim.clock.sleep(1e6)
        finally:
            ends.append(key)
        return DONE

    bench = Bench(sim, work)
    bench.controller.queue.add("a")
    await sim.clock.sleep(1)
    assert await bench.controller.stop(10) is True
    assert ends == ["a"]
    assert sim.clock.monotonic() == 11


@virtual()
async def test_a_worker_that_ignores_its_cancellation_does_not_hold_the_stop(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(_key: str) -> Result:
        for _ in range(3):
            try:
                await sim.clock.sleep(100)
            except asyncio.CancelledError:
                continue
        return DONE

    bench = Bench(sim, work, cancel_seconds=2)
    bench.controller.queue.add("a")
    await sim.clock.sleep(1)
    assert await bench.controller.stop() is False
    assert sim.clock.monotonic() == 3
    assert "controller c: a worker ignores that it was cancelled" in caplog.text


@virtual()
async def test_a_controller_that_never_started_stops(sim: Sim) -> None:
    registry = CollectorRegistry()
    instruments = Instruments(ReconcileMetrics(registry), QueueMetrics(registry))
    controller: Controller[str] = Controller(
        "c", Bench(sim, well), clock=sim.clock, instruments=instruments
    )
    assert await controller.stop(10) is True

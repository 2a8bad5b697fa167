# SPDX-License-Identifier: Apache-2.0
"""A silence counts only while the observer could have seen its end."""

import msgspec
import pytest

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.policy.node_evidence import LeaseSilence
from refloat.runtime.lease_observer import LATE_ANSWER_SECONDS, LeaseObserver
from refloat.sim.run import Sim
from tests.clocks import ManualClock
from tests.unit.runtime.processes import ProcessClock
from tests.virtual import virtual


def lease(version: str = "1", *, lasts: int | None = 40, namespace: str = NODE_NAMESPACE) -> Lease:
    metadata = {"name": "n", "namespace": namespace, "resourceVersion": version}
    return msgspec.convert({"metadata": metadata, "spec": {"leaseDurationSeconds": lasts}}, Lease)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def observer(clock: ManualClock) -> LeaseObserver:
    return LeaseObserver(clock)


async def test_a_lease_is_silent_since_it_was_first_seen_in_its_version(
    clock: ManualClock, observer: LeaseObserver
) -> None:
    observer.observe("n", lease())
    await clock.advance(10)
    assert not observer.observe("n", lease())
    assert observer.silence("n") == LeaseSilence(10, 40)
    assert observer.observe("n", lease("2"))
    await clock.advance(3)
    assert observer.silence("n") == LeaseSilence(3, 40)


async def test_all_silence_begins_anew_with_the_observer(
    clock: ManualClock, observer: LeaseObserver
) -> None:
    observer.observe("n", lease())
    await clock.advance(100)
    observer.begin([lease(), lease(namespace="default")])
    await clock.advance(7)
    assert observer.silence("n") == LeaseSilence(7, 40)


async def test_all_silence_begins_anew_when_the_server_did_not_answer(
    clock: ManualClock, observer: LeaseObserver
) -> None:
    observer.observe("n", lease())
    await clock.advance(100)
    observer.lose_contact()
    await clock.advance(30)
    observer.answered()
    await clock.advance(7)
    observer.answered()
    assert not observer.observe("n", lease())
    assert observer.silence("n") == LeaseSilence(7, 40)


async def test_all_silence_begins_anew_when_the_server_answered_late(
    clock: ManualClock, observer: LeaseObserver
) -> None:
    observer.observe("n", lease())
    await clock.advance(100)
    with observer.reading():
        await clock.advance(LATE_ANSWER_SECONDS)
    assert observer.silence("n") == LeaseSilence(100 + LATE_ANSWER_SECONDS, 40)
    with observer.reading():
        await clock.advance(LATE_ANSWER_SECONDS + 0.1)
    assert not observer.is_cut_off
    assert observer.silence("n") == LeaseSilence(0, 40)


async def test_all_silence_begins_anew_when_the_watch_of_leases_broke(clock: ManualClock) -> None:
    failures: list[float] = []
    observer = LeaseObserver(clock, lambda: failures[-1] if failures else None)
    observer.observe("n", lease())
    await clock.advance(100)
    assert observer.silence("n") == LeaseSilence(100, 40)
    failures.append(clock.monotonic())
    await clock.advance(7)
    assert observer.silence("n") == LeaseSilence(7, 40)


async def test_a_node_without_a_lease_is_no_silent_node(
    clock: ManualClock, observer: LeaseObserver
) -> None:
    await clock.advance(100)
    assert not observer.silence("n").exists
    observer.observe("n", lease())
    assert observer.observe("n", None)
    assert not observer.silence("n").exists
    assert observer.version("n") == ""


def test_a_lease_that_does_not_say_for_how_long_it_is_good_has_the_kubelets_number(
    observer: LeaseObserver,
) -> None:
    observer.observe("n", lease(lasts=None))
    assert observer.silence("n").lasts == 40


@virtual(seeds=5)
async def test_all_silence_begins_anew_after_a_stop_of_the_process(sim: Sim) -> None:
    process = ProcessClock(sim.clock)
    observer = LeaseObserver(process)
    observer.watch_stops()
    observer.observe("n", lease())
    await process.sleep(20)
    assert observer.silence("n").seconds == 20
    process.freeze(60)
    await process.sleep(60 + 7)
    assert observer.silence("n").seconds == 7
    observer.close()

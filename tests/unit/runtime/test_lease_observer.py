# SPDX-License-Identifier: Apache-2.0
"""A silence counts only while the observer could have seen its end."""

import msgspec
import pytest

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.policy.recovery.node_evidence import LeaseSilence
from refloat.runtime.lease_observer import LATE_ANSWER_SECONDS, LeaseObserver, PolledSilence
from refloat.sim.run import Sim
from tests.cases import cases
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


def renewed(time: str) -> Lease:
    return msgspec.convert({"metadata": {"name": "n"}, "spec": {"renewTime": time or None}}, Lease)


@cases(
    "time want",
    {
        "newer": ("2026-01-01T00:00:01.000000Z", True),
        "the same": ("2026-01-01T00:00:00.000000Z", False),
        "older: the clock was set back": ("2025-01-01T00:00:00.000000Z", True),
        "none": ("", False),
    },
)
async def test_by_renew_time_only_another_one_is_a_change(
    clock: ManualClock, time: str, want: bool
) -> None:
    """Behaviour C3.2, except for a clock that was set back."""
    observer = LeaseObserver(clock, by_renew_time=True)
    assert not observer.observe("n", renewed(""))
    assert observer.observe("n", renewed("2026-01-01T00:00:00.000000Z"))
    first = observer.changed_at("n")
    await clock.advance(5)
    assert observer.observe("n", renewed(time)) is want
    assert observer.changed_at("n") == first + (5 if want else 0)


def test_a_polled_silence_counts_from_answer_to_request_up_to_a_bound() -> None:
    silence = PolledSilence(10.0)
    silence.unchanged(sent_at=13.0, now=14.0, most=5.0)
    silence.unchanged(sent_at=34.0, now=34.5, most=5.0)
    assert silence.seconds == 8.0
    silence.unchanged(sent_at=30.0, now=35.0, most=5.0)
    assert silence.seconds == 8.0
    silence.changed(36.0)
    assert silence.seconds == 0.0

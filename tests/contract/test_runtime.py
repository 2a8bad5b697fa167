# SPDX-License-Identifier: Apache-2.0
"""The contract of every runtime with the pod worker, for all kinds of containers."""

import re

import pytest

from refloat.agent.runtime import StartError
from tests.contract.runtimes import (
    ENDS_WITH_3,
    HOOKED,
    IGNORES,
    RUNS,
    SLOW,
    RuntimeFixture,
    current,
    ended,
    on_runtimes,
)


@on_runtimes
async def test_an_end_is_told_with_its_code_and_times(world: RuntimeFixture) -> None:
    await world.start(ENDS_WITH_3)
    began = current(world)
    assert began.started_at is not None
    assert not began.has_ended
    record = await ended(world)
    assert (record.exit_code, record.attempt, record.reason) == (3, 0, "")
    assert record.container_id == began.container_id
    assert record.started_at == began.started_at
    assert record.finished_at is not None
    assert record.finished_at > began.started_at
    assert world.told[-1] == "u"


@on_runtimes
async def test_a_container_that_was_never_started_is_not_known(world: RuntimeFixture) -> None:
    assert world.runtime.pods() == []
    assert world.runtime.containers("u") == {}
    assert not world.runtime.stop("u", "main", 1)
    assert not world.runtime.prepare_stop("u", "main", 1)
    world.runtime.remove("u")


@on_runtimes
async def test_one_is_asked_to_end_once(world: RuntimeFixture) -> None:
    await world.start(RUNS)
    assert world.runtime.stop("u", "main", 30)
    assert not world.runtime.stop("u", "main", 30)
    assert (await ended(world)).exit_code == 143
    assert not world.runtime.stop("u", "main", 30)


@on_runtimes
async def test_one_that_does_not_listen_is_killed_when_its_time_is_over(
    world: RuntimeFixture,
) -> None:
    await world.start(IGNORES)
    began = world.clock.monotonic()
    assert world.runtime.stop("u", "main", 0.3)
    assert (await ended(world)).exit_code == 137
    assert world.clock.monotonic() - began >= 0.29


@on_runtimes
async def test_asked_again_the_earlier_time_holds(world: RuntimeFixture) -> None:
    await world.start(IGNORES)
    assert world.runtime.stop("u", "main", 1000)
    assert not world.runtime.stop("u", "main", 0.1)
    assert not world.runtime.stop("u", "main", 1000)
    assert (await ended(world)).exit_code == 137


@on_runtimes
async def test_the_attempt_before_is_remembered_and_no_older_one(world: RuntimeFixture) -> None:
    for attempt in range(3):
        await world.start(ENDS_WITH_3, attempt)
        await ended(world)
    attempts = world.runtime.containers("u")["main"]
    assert attempts.current.attempt == 2
    assert attempts.previous is not None
    assert attempts.previous.attempt == 1
    assert attempts.current.container_id != attempts.previous.container_id


@on_runtimes
async def test_a_removed_pod_is_forgotten(world: RuntimeFixture) -> None:
    await world.start(ENDS_WITH_3)
    await ended(world)
    assert list(world.runtime.pods()) == ["u"]
    world.runtime.remove("u")
    assert list(world.runtime.pods()) == []
    assert world.runtime.containers("u") == {}


@on_runtimes
async def test_one_that_is_being_made_has_not_started(world: RuntimeFixture) -> None:
    await world.start(SLOW)
    assert current(world).started_at is None
    assert not current(world).has_ended
    assert (await ended(world)).exit_code == 0
    assert "u" in world.told


@on_runtimes
async def test_one_that_is_being_made_is_given_up_without_a_trace(world: RuntimeFixture) -> None:
    await world.start(SLOW)
    assert world.runtime.stop("u", "main", 30)
    assert world.runtime.containers("u") == {}
    await world.clock.sleep(0.4)
    assert world.runtime.containers("u") == {}


@on_runtimes
async def test_a_hook_comes_out_of_the_same_seconds(world: RuntimeFixture) -> None:
    await world.start(HOOKED)
    began = world.clock.monotonic()
    assert world.runtime.stop("u", "main", 30)
    assert (await ended(world)).exit_code == 143
    assert 0.19 <= world.clock.monotonic() - began < 10


@on_runtimes
async def test_a_hook_that_was_begun_ends_nothing_by_itself(world: RuntimeFixture) -> None:
    await world.start(HOOKED)
    assert world.runtime.prepare_stop("u", "main", 30)
    assert not world.runtime.prepare_stop("u", "main", 30)
    await world.clock.sleep(0.4)
    assert not current(world).has_ended
    assert world.runtime.stop("u", "main", 30)
    assert (await ended(world)).exit_code == 143


@on_runtimes
async def test_a_crash_loses_everything_and_tells_nobody(world: RuntimeFixture) -> None:
    await world.start(RUNS)
    world.told.clear()
    world.runtime.crash()
    assert world.runtime.containers("u") == {}
    await world.clock.sleep(0.3)
    assert world.told == []


@on_runtimes
async def test_a_pod_ends_at_its_deadline_and_not_before(world: RuntimeFixture) -> None:
    await world.runtime.arm("u", world.clock.monotonic() + 1000)
    await world.start(IGNORES)
    deadline = world.clock.monotonic() + 0.3
    world.runtime.extend({"u": deadline})
    assert world.runtime.deadlines() == {"u": deadline}
    record = await ended(world)
    assert world.clock.monotonic() >= deadline
    assert (record.exit_code, record.reason) == (137, "Fenced")
    assert record.message == "The agent did not extend the pod's deadline"
    assert world.told[-1] == "u"


@on_runtimes
async def test_a_deadline_can_be_moved_until_it_has_passed(world: RuntimeFixture) -> None:
    await world.runtime.arm("u", world.clock.monotonic() + 1000)
    await world.start(RUNS)
    first = world.clock.monotonic() + 0.3
    world.runtime.extend({"u": first})
    await ended(world)
    for each in (first + 1000, first - 1000):
        world.runtime.extend({"u": each})
        with pytest.raises(StartError, match="its deadline has passed"):
            await world.runtime.arm("u", each)
    with pytest.raises(StartError, match="its deadline has passed"):
        await world.start(RUNS, 1)
    assert world.runtime.deadlines() == {"u": first}


@on_runtimes
async def test_an_extension_arms_nobody_and_a_deadline_can_be_taken_back(
    world: RuntimeFixture,
) -> None:
    await world.start(RUNS)
    soon = world.clock.monotonic() + 1.0
    world.runtime.extend({"u": soon})
    assert world.runtime.deadlines() == {}
    await world.runtime.arm("u", soon)
    world.runtime.disarm("u")
    assert world.runtime.deadlines() == {}
    await world.clock.sleep(soon - world.clock.monotonic() + 0.1)
    assert not current(world).has_ended
    world.runtime.stop("u", "main", 0)
    await ended(world)


@on_runtimes
async def test_a_removed_pod_takes_its_deadline_along(world: RuntimeFixture) -> None:
    await world.runtime.arm("u", world.clock.monotonic() + 1000)
    world.runtime.remove("u")
    assert world.runtime.deadlines() == {}
    await world.start(ENDS_WITH_3)
    assert (await ended(world)).exit_code == 3


@on_runtimes
async def test_a_crash_takes_deadlines_along_and_a_boot_has_a_name(world: RuntimeFixture) -> None:
    assert re.fullmatch(r"[0-9a-f-]+", world.runtime.boot_id)
    await world.runtime.arm("u", world.clock.monotonic() + 1000)
    world.runtime.crash()
    assert world.runtime.deadlines() == {}

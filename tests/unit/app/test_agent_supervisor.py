# SPDX-License-Identifier: Apache-2.0
"""Agents of an embedded cluster, as processes that are started, told to end, and exchanged."""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from refloat.agent.keeper import service
from refloat.app import keepers
from refloat.app.agent_supervisor import LONGEST_SECONDS, STOP_SECONDS, Agents
from refloat.app.node_faults import Fault
from refloat.base.clock import Clock, RealClock
from tests.clocks import ManualClock

# Notes that it runs, and what it is told: signals are held back for it. How it ends:
# `once` and `always` have it die at its first start or at each, `deaf` never.
SCRIPT = """
import pathlib, signal, sys
notes, how = pathlib.Path(sys.argv[1]), sys.argv[2]
def note(word):
    with notes.open("a") as file:
        file.write(word + "\\n")
is_first = not notes.exists()
note("began")
if how == "always" or (how == "once" and is_first):
    sys.exit(3)
while (told := signal.sigwait([signal.SIGTERM, signal.SIGUSR2])) != signal.SIGTERM or how == "deaf":
    note(signal.Signals(told).name)
note("ended")
"""

KEEPER = Path(service.__file__).parent / "__main__.py"


class SupervisedNode:
    """One node, its agent, and what that noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._notes = folder / "notes"
        folder.mkdir()

    def command(self, how: str = "") -> list[str]:
        return [sys.executable, "-c", SCRIPT, str(self._notes), how]

    def agents(self, how: str = "", clock: Clock | None = None) -> Agents:
        return Agents({"n1": self.command(how)}, self.folder.parent, clock or RealClock())

    def notes(self) -> list[str]:
        return self._notes.read_text().split() if self._notes.exists() else []

    def start_keeper(self) -> bytes:
        """What it says once it listens, or gives way to another."""
        options = ["-S", "-E", "-s", str(KEEPER), str(self.folder), service.NO_GROUPS]
        return subprocess.run([sys.executable, *options], stdout=subprocess.PIPE, check=True).stdout

    def has_keeper(self) -> bool:
        return keepers.find(self.folder) != 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SupervisedNode]:
    node = SupervisedNode(tmp_path / "n1")
    yield node
    if pid := keepers.find(node.folder):
        os.kill(pid, signal.SIGKILL)


async def _until(holds: Callable[[], object]) -> None:
    async with RealClock().timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


async def _passing(clock: ManualClock, holds: Callable[[], object]) -> None:
    """Until it is so, while time passes, though slowly."""
    async with RealClock().timeout(30):
        while not holds():
            await clock.advance(0.02)
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def _paused(
    node: SupervisedNode, how: str, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[tuple[Agents, ManualClock]]:
    """An agent that died, and whose next start is a second away that does not pass."""
    clock = ManualClock()
    agents = node.agents(how, clock)
    agents.start()
    await _until(lambda: "is started again in 1 s" in caplog.text)
    yield agents, clock
    closing = asyncio.ensure_future(agents.close())
    await _passing(clock, closing.done)
    await closing


async def test_an_agent_that_is_only_being_started_is_told_to_end_too(node: SupervisedNode) -> None:
    """Else it would live on, with nobody who knows it, and a keeper for ever."""
    agents = node.agents()
    agents.start()
    await asyncio.sleep(0)  # its start is under way, and no more
    await agents.close()
    assert node.notes() == ["began", "ended"]


async def test_a_renewed_agent_takes_the_place_of_the_one_before(
    node: SupervisedNode, tmp_path: Path
) -> None:
    agents = node.agents()
    agents.start()
    await _until(node.notes)
    other = SupervisedNode(tmp_path / "other")
    agents.renew("n1", other.command())
    await _until(other.notes)
    await agents.close()
    assert node.notes() == ["began"]  # killed, and not asked
    assert other.notes() == ["began", "ended"]


async def test_an_agent_that_could_not_be_started_is_tried_again(
    node: SupervisedNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program"
    clock = ManualClock()
    agents = Agents({"n1": [str(program), *node.command()[1:]]}, tmp_path, clock)
    agents.start()
    await _until(lambda: "the agent of node n1 cannot be started" in caplog.text)
    program.symlink_to(sys.executable)
    await clock.advance(LONGEST_SECONDS)
    await _until(node.notes)
    await agents.close()


async def test_a_renewed_agent_starts_at_once_also_when_the_one_before_was_to_wait(
    node: SupervisedNode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with _paused(node, "always", caplog) as (agents, _):
        other = SupervisedNode(tmp_path / "other")
        agents.renew("n1", other.command())
        await _until(other.notes)


async def test_a_node_that_crashes_while_its_agent_is_to_start_again_stays_off(
    node: SupervisedNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with _paused(node, "once", caplog) as (agents, clock):
        node.start_keeper()
        agents.fail("n1", "crash")
        await _until(lambda: not node.has_keeper())
        await clock.advance(LONGEST_SECONDS)
        await _passing(clock, lambda: agents.is_off("n1"))
        assert node.notes() == ["began"]
        agents.heal("n1")
        await _until(lambda: node.notes() == ["began", "began"])
        assert not agents.is_off("n1")


async def test_a_node_that_freezes_while_its_agent_is_to_start_again_keeps_its_containers(
    node: SupervisedNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with _paused(node, "once", caplog) as (agents, clock):
        node.start_keeper()
        agents.fail("n1", "freeze")
        await clock.advance(LONGEST_SECONDS)
        assert node.notes() == ["began"]
        assert node.has_keeper()
        assert not agents.is_off("n1")
        agents.heal("n1")
        await _until(lambda: node.notes() == ["began", "began"])


async def test_a_node_that_shuts_down_while_its_agent_is_to_start_again_ends_its_pods_first(
    node: SupervisedNode, caplog: pytest.LogCaptureFixture
) -> None:
    """A last agent does; who said of the node that it is off would free its pods' volumes."""
    async with _paused(node, "once", caplog) as (agents, clock):
        node.start_keeper()
        agents.shut_down("n1")
        assert not agents.is_off("n1")
        await _until(lambda: "ended" in node.notes())
        await _passing(clock, lambda: agents.is_off("n1"))
        assert not node.has_keeper()
        assert node.notes() == ["began", "began", "ended"]


async def test_no_keeper_starts_on_a_node_that_is_off(node: SupervisedNode) -> None:
    """One that an agent was just starting when it was killed comes too late."""
    agents = node.agents()
    agents.start()
    await _until(node.notes)
    agents.fail("n1", "crash")
    await _until(lambda: agents.is_off("n1"))
    assert node.start_keeper() == service.KEPT
    assert not node.has_keeper()
    agents.heal("n1")
    await _until(lambda: not agents.is_off("n1"))
    assert node.start_keeper() == service.READY
    await agents.close()
    assert not node.has_keeper()


async def test_a_node_is_not_off_before_its_keeper_is_gone(node: SupervisedNode) -> None:
    agents = node.agents()
    agents.start()
    await _until(node.notes)
    with (node.folder / service.LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        agents.shut_down("n1")
        await _until(lambda: not agents._running)
        assert not agents.is_off("n1")
    await _until(lambda: agents.is_off("n1"))
    await agents.close()


async def test_a_frozen_node_can_be_shut_down(node: SupervisedNode) -> None:
    agents = node.agents()
    agents.start()
    await _until(node.notes)
    agents.fail("n1", "freeze")
    agents.shut_down("n1")
    await _until(lambda: agents.is_off("n1"))
    assert node.notes() == ["began", "ended"]
    await agents.close()


@pytest.mark.parametrize("fault", ["freeze", "partition"])
async def test_an_agent_that_fails_is_back_before_it_is_told_to_end(
    node: SupervisedNode, fault: Fault
) -> None:
    """Else it could not say of its pods that they have ended."""
    agents = node.agents()
    agents.start()
    await _until(node.notes)
    agents.fail("n1", fault)
    await agents.close()
    assert node.notes() == ["began", "SIGUSR2", "ended"]


async def test_a_close_has_an_agent_that_died_end_its_pods_and_keeper(
    node: SupervisedNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with _paused(node, "once", caplog):
        node.start_keeper()
    assert node.notes() == ["began", "began", "ended"]
    assert not node.has_keeper()


async def test_a_close_ends_the_keeper_of_an_agent_that_has_to_be_killed(
    node: SupervisedNode,
) -> None:
    clock = ManualClock()
    agents = node.agents("deaf", clock)
    agents.start()
    await _until(node.notes)
    node.start_keeper()
    closing = asyncio.ensure_future(agents.close())
    await _until(lambda: "SIGTERM" in node.notes())
    await clock.advance(STOP_SECONDS)
    await _passing(clock, closing.done)
    await closing
    assert node.notes() == ["began", "SIGTERM"]
    assert not node.has_keeper()


async def test_a_close_starts_no_agent_on_a_node_that_crashed(
    node: SupervisedNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with _paused(node, "once", caplog) as (agents, _):
        node.start_keeper()
        agents.fail("n1", "crash")
    assert node.notes() == ["began"]
    assert not node.has_keeper()

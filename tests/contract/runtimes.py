# SPDX-License-Identifier: Apache-2.0
"""The runtimes that the contract holds: one that pretends, one of processes.

Each has the container for each kind that the suite names.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from refloat.agent.process.images import ImageSettings
from refloat.agent.runtime import ContainerRecord, Runtime
from refloat.agent.simulated import ANNOTATION, SimulatedRuntime
from refloat.api.core import Pod
from refloat.base.clock import Clock, RealClock
from refloat.sim.run import Sim
from refloat.sim.run import run as simulate
from tests.unit.agent.process import node as processes

ENDS_WITH_3 = "ends with exit code 3"
RUNS = "runs until it is asked to end"
IGNORES = "does not listen when it is asked to"
SLOW = "takes its time to be made"
HOOKED = "runs until it is asked to end, and has a hook"

_SCRIPTS: dict[str, Any] = {
    ENDS_WITH_3: {"seconds": 0.1, "exitCode": 3},
    RUNS: {"seconds": None},
    IGNORES: {"seconds": None, "ignoreTerm": True},
    SLOW: {"startSeconds": 0.2, "seconds": 0.1},
    HOOKED: {"seconds": None, "preStopSeconds": 0.2},
}

_COMMANDS: dict[str, Any] = {
    ENDS_WITH_3: processes.sh("u", "sleep 0.1; exit 3"),
    RUNS: processes.pod("u", "sleep", "100"),
    IGNORES: processes.sh("u", "trap '' TERM; while true; do sleep 1; done"),
    SLOW: processes.pod("u", "sleep", "0.1", image="slow"),
    HOOKED: processes.pod(
        "u", "sleep", "100", lifecycle={"preStop": {"exec": {"command": ["sleep", "0.2"]}}}
    ),
}


class RuntimeFixture(Protocol):
    """A runtime and the passing of time for its containers."""

    runtime: Runtime
    clock: Clock
    told: list[str]

    async def start(self, kind: str, attempt: int = 0) -> None: ...


class Simulated:
    def __init__(self, sim: Sim) -> None:
        self.clock: Clock = sim.clock
        self.runtime: Runtime = SimulatedRuntime(sim.clock)
        self.told: list[str] = []
        self.runtime.listen(self.told.append)

    async def start(self, kind: str, attempt: int = 0) -> None:
        annotations = {ANNOTATION: json.dumps({"main": _SCRIPTS[kind]})}
        meta = {"name": "p", "namespace": "default", "uid": "u", "annotations": annotations}
        await self.runtime.start(msgspec.convert({"metadata": meta}, Pod), "main", attempt)


class ProcessRuntimeFixture:
    def __init__(self, node: processes.ProcessNode) -> None:
        self.clock: Clock = RealClock()
        self.runtime: Runtime = node.runtime
        self.told: list[str] = node.changes
        self._node = node

    async def start(self, kind: str, attempt: int = 0) -> None:
        await self._node.start(_COMMANDS[kind], attempt)
        if kind == IGNORES:
            await asyncio.sleep(0.2)  # until the shell ignores the signal


Story = Callable[[RuntimeFixture], Coroutine[Any, Any, None]]


@asynccontextmanager
async def of_processes(folder: Path) -> AsyncIterator[RuntimeFixture]:
    async with processes.node(folder, images=ImageSettings(pull_seconds={"slow": 0.2})) as node:
        yield ProcessRuntimeFixture(node)


def on_runtimes(story: Story) -> Callable[[str, Path], None]:
    """A test of each runtime: in virtual time, and with real processes."""

    @pytest.mark.parametrize("runtime", ["simulated", "process"])
    def test(runtime: str, tmp_path: Path) -> None:
        if runtime == "simulated":
            return simulate(lambda sim: story(Simulated(sim)), seed=0)
        return asyncio.run(_in_real_time(story, tmp_path))

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


async def _in_real_time(story: Story, folder: Path) -> None:
    async with of_processes(folder) as world:
        await story(world)


def current(world: RuntimeFixture) -> ContainerRecord:
    return world.runtime.containers("u")["main"].current


async def ended(world: RuntimeFixture) -> ContainerRecord:
    async with world.clock.timeout(15):
        while not current(world).has_ended:
            await world.clock.sleep(0.01)
    return current(world)

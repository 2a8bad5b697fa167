# SPDX-License-Identifier: Apache-2.0
"""The nodes of a stage: agents as processes of their own, which a story makes fail.

They are those of `refloat up --nodes`, but each has a name and options of its
own, and can be given others while its containers run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refloat.api import conditions
from refloat.app import supervision
from refloat.app.faults import Fault
from refloat.base.clock import Clock
from refloat.demo.client import Client
from refloat.demo.errors import Refused, StoryFailed
from refloat.demo.objects import Object

NODES = "/api/v1/nodes"

# No ten nodes take a quarter of it on a busy machine; one that does is not coming.
START_SECONDS = 60.0

# Whether a node is ready is asked so often; it is from a second to a few.
POLL_SECONDS = 0.05

# The taint that a node has until somebody has looked at it.
_NEW = "node.kubernetes.io/not-ready"

# A story says itself what goes wrong; an agent that is cut off need not.
_FLAGS = ("--accept-all-pods", "--fast", "--log-level=error")


@dataclass(frozen=True, slots=True)
class NodeSetting:
    """A node that a story wants."""

    name: str
    flags: tuple[str, ...] = ()
    """Options of `refloat agent`."""
    images: Mapping[str, Any] = field(default_factory=dict)
    """What its `--images` says."""


class Nodes:
    """The nodes of one cluster, by name."""

    def __init__(
        self,
        settings: Sequence[NodeSetting],
        client: Client,
        clock: Clock,
        *,
        data_dir: Path,
        server: str,
    ) -> None:
        self._client = client
        self._clock = clock
        self._data_dir = data_dir
        self._server = server
        self._settings = {each.name: each for each in settings}
        commands = {each.name: self._command(each) for each in settings}
        self.agents = supervision.Agents(commands, data_dir / "nodes", clock)

    def _command(self, setting: NodeSetting, *more: str) -> list[str]:
        flags = [*_FLAGS, *setting.flags, *more]
        if setting.images:
            path = self._data_dir / f"{setting.name}.images"
            path.write_text(json.dumps(setting.images))
            flags.append(f"--images={path}")
        return supervision.command(self._data_dir, self._server, setting.name, flags)

    async def start(self) -> None:
        """Until all of them are ready; raises `StoryFailed`."""
        self.agents.start()
        deadline = self._clock.monotonic() + START_SECONDS
        for name in self._settings:
            while not await self.is_ready(name):
                if self._clock.monotonic() > deadline:
                    raise StoryFailed(f"node {name} was not ready after {START_SECONDS:.0f} s")
                await self._clock.sleep(POLL_SECONDS)

    async def is_ready(self, name: str) -> bool:
        """Has it joined, and may pods be bound to it?"""
        try:
            node = await self._client.get(f"{NODES}/{name}")
        except Refused:
            return False
        if any(each["key"] == _NEW for each in node["spec"].get("taints") or ()):
            return False
        return _is_true(node, "Ready")

    async def lost(self, name: str) -> None:
        """Until the cluster has noticed that it is silent."""
        while await self.is_ready(name):
            await self._clock.sleep(POLL_SECONDS)

    async def says(self, name: str, condition: str) -> None:
        """Until it has such a condition."""
        while not _is_true(await self._client.get(f"{NODES}/{name}"), condition):
            await self._clock.sleep(POLL_SECONDS)

    def renew(self, name: str, *flags: str) -> None:
        """Have its agent restarted with these options too; its containers run on."""
        self.agents.renew(name, self._command(self._settings[name], *flags))

    def fail(self, name: str, fault: Fault) -> None:
        self.agents.fail(name, fault)

    def heal(self, name: str) -> None:
        self.agents.heal(name)

    def shut_down(self, name: str) -> None:
        self.agents.shut_down(name)

    async def close(self) -> None:
        """End pods, agents and keepers."""
        await self.agents.close()


def _is_true(node: Object, condition: str) -> bool:
    return conditions.is_true(node["status"].get("conditions") or [], condition)

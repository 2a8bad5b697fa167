# SPDX-License-Identifier: Apache-2.0
"""The nodes of a demo's cluster: agents as processes, which a demo makes fail.

Unlike the nodes of `refloat up --nodes`, each node has its own name and options, and
a demo can change the options while the containers run.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refloat.app import agent_supervisor
from refloat.app.node_faults import Fault
from refloat.scenario.cluster import ScenarioCluster
from refloat.scenario.nodes import ScenarioNodes

# Four times as long as ten nodes need on a busy machine.
START_SECONDS = 60.0

# The demo itself explains the failures, so the agents log errors alone.
_FLAGS = ("--accept-all-pods", "--fast", "--log-level=error")


@dataclass(frozen=True, slots=True)
class DemoNodeSettings:
    """One node of a demo."""

    name: str
    flags: tuple[str, ...] = ()
    """Options of `refloat agent`."""
    images: Mapping[str, Any] = field(default_factory=dict)
    """The content of the file for `--images`."""


class DemoNodes:
    """The nodes of one cluster, by name."""

    def __init__(
        self,
        settings: Sequence[DemoNodeSettings],
        scenario: ScenarioCluster,
        *,
        data_dir: Path,
        server: str,
    ) -> None:
        self.watched = ScenarioNodes(scenario)
        self._data_dir = data_dir
        self._server = server
        self._settings = {node.name: node for node in settings}
        commands = {node.name: self._command(node) for node in settings}
        self.agents = agent_supervisor.Agents(commands, data_dir / "nodes", scenario.clock)

    def _command(self, settings: DemoNodeSettings, *flags: str) -> list[str]:
        options = [*_FLAGS, *settings.flags, *flags]
        if settings.images:
            path = self._data_dir / f"{settings.name}.images"
            path.write_text(json.dumps(settings.images))
            options.append(f"--images={path}")
        return agent_supervisor.command(self._data_dir, self._server, settings.name, options)

    async def start(self) -> None:
        """Start all nodes and wait until they are Ready."""
        self.agents.start()
        for name in self._settings:
            await self.watched.wait_ready(name, START_SECONDS)

    def change_flags(self, name: str, *flags: str) -> None:
        """Restart the agent with more options; the containers run on."""
        self.agents.renew(name, self._command(self._settings[name], *flags))

    def fail(self, name: str, fault: Fault) -> None:
        self.agents.fail(name, fault)

    def heal(self, name: str) -> None:
        self.agents.heal(name)

    def shut_down(self, name: str) -> None:
        self.agents.shut_down(name)

    async def close(self) -> None:
        """Stop pods, agents and keepers."""
        await self.agents.close()

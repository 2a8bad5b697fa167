# SPDX-License-Identifier: Apache-2.0
"""The controllers and the simulated nodes of an embedded cluster."""

import asyncio

from refloat.agent import fleet
from refloat.agent.fleet import Fleet
from refloat.app import controller_names, controller_table, simulated_nodes
from refloat.app.controller_env import EmbeddedEnv
from refloat.base.gates import TAINT_FORCE_EVICTION
from refloat.client import kinds
from refloat.runtime.manager import Manager, Parts


class EmbeddedControllers:
    """The controllers and the simulated nodes of one embedded cluster."""

    def __init__(self, env: EmbeddedEnv) -> None:
        selection = env.selection
        # The gates of an embedded cluster never change.
        can_evict = env.gates.enabled(TAINT_FORCE_EVICTION)
        names = [
            each
            for each in selection.controllers
            if can_evict or each != controller_names.FORCE_EVICTION
        ]
        workers = controller_table.build(env, names)
        self.fleet: Fleet | None = None
        if selection.simulated_nodes:
            settings = simulated_nodes.fenced(env.timings.node, selection.self_fence_seconds)
            self.fleet = Fleet(
                env.reader,
                simulated_nodes.simulated("node", selection.simulated_nodes, env.clock, settings),
                env.informer(kinds.PODS, *fleet.POD_INDEXES),
                clock=env.clock,
                rand=env.rand,
                instruments=env.instruments,
                job_gates=env.job_gates,
                force_eviction=can_evict,
            )
            workers.append(self.fleet)
        parts = Parts(
            informers=env.informers,
            controllers=workers,
            recorders=env.recorders,
            candidates=env.candidates,
        )
        self._manager = Manager(parts, clock=env.clock)
        self.notes = {f"leader/{each.controller}": each.describe for each in env.candidates}
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.ensure_future(self._manager.run())

    async def close(self) -> None:
        """Let running reconciles finish, then end."""
        if self._running is not None:
            self._manager.stop()
            await self._running

# SPDX-License-Identifier: Apache-2.0
"""The controllers and the simulated nodes of an embedded cluster."""

import asyncio

from prometheus_client import CollectorRegistry

from refloat.agent import fleet
from refloat.agent.fleet import Fleet
from refloat.app import controller_names, controller_table, nodes
from refloat.app.controller_env import Connect, EmbeddedEnv
from refloat.app.controller_names import ControllerSelection
from refloat.base.clock import Clock
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.base.rand import Rand
from refloat.client import kinds
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.manager import Manager, Parts


class EmbeddedControllers:
    """The controllers and the simulated nodes of one embedded cluster."""

    def __init__(
        self,
        connect: Connect,
        selection: ControllerSelection,
        *,
        gates: Gates,
        clock: Clock,
        rand: Rand,
        registry: CollectorRegistry,
        recovery: FailureRecoveryPolicy | None = None,
    ) -> None:
        env = EmbeddedEnv(
            connect,
            selection,
            gates=gates,
            clock=clock,
            rand=rand,
            registry=registry,
            recovery=recovery,
        )
        # The gates of an embedded cluster never change.
        can_evict = gates.enabled(TAINT_FORCE_EVICTION)
        names = [
            each
            for each in selection.controllers
            if can_evict or each != controller_names.FORCE_EVICTION
        ]
        workers = controller_table.build(env, names)
        self.fleet: Fleet | None = None
        if selection.simulated_nodes:
            self.fleet = _fleet(env, selection)
            workers.append(self.fleet)
        parts = Parts(
            informers=env.informers,
            controllers=workers,
            recorders=env.recorders,
            candidates=env.candidates,
        )
        self._manager = Manager(parts, clock=clock)
        self.notes = {f"leader/{each.controller}": each.describe for each in env.candidates}
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.ensure_future(self._manager.run())

    async def close(self) -> None:
        """Let running reconciles finish, then end."""
        if self._running is not None:
            self._manager.stop()
            await self._running


def _fleet(env: EmbeddedEnv, selection: ControllerSelection) -> Fleet:
    settings = nodes.fenced(env.timings.node, selection.self_fence_seconds)
    return Fleet(
        env.reader,
        nodes.simulated("node", selection.simulated_nodes, env.clock, settings),
        env.informer(kinds.PODS, *fleet.POD_INDEXES),
        clock=env.clock,
        rand=env.rand,
        instruments=env.instruments,
        job_gates=env.job_gates,
        force_eviction=env.gates.enabled(TAINT_FORCE_EVICTION),
    )

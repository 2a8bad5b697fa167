# SPDX-License-Identifier: Apache-2.0
"""A machine that is about to go off ends its pods first (behaviour D1.4, D6.4).

From the beginning on the node says that it is not ready and takes no new pods.
Who goes when is pure and in `policy.node_shutdown`; that the machine then goes
off is not this module's doing.
"""

from collections.abc import Callable

from refloat.agent.eviction import TellNode
from refloat.agent.gate import Tenants
from refloat.agent.status import Ending
from refloat.base.clock import Clock
from refloat.policy import node_shutdown
from refloat.policy.node_shutdown import Group, ShutdownSettings

# How often it is looked whether a group has ended: a shutdown is rare and short.
POLL_SECONDS = 0.1

EVENT = "NodeShutdown"


class Shutdown:
    """Whether one node shuts down, and how."""

    def __init__(
        self,
        tenants: Tenants,
        settings: ShutdownSettings,
        *,
        clock: Clock,
        tell_node: TellNode,
        announce: Callable[[], object],
    ) -> None:
        """`announce` has the node's status told at once."""
        self._tenants = tenants
        self._settings = settings
        self._clock = clock
        self._tell_node = tell_node
        self._announce = announce
        self._begun = False

    @property
    def is_on(self) -> bool:
        return self._begun

    async def run(self) -> None:
        """End all pods, group by group. Asked again while it runs: does nothing."""
        if self._begun:
            return
        self._begun = True
        self._tell_node("Normal", EVENT, "Shutdown manager detected shutdown event")
        self._announce()
        for group in node_shutdown.groups(self._settings, self._tenants.active()):
            if not self._begun:
                return  # it was called off
            await self._end(group)

    def cancel(self) -> None:
        """The machine stays on after all; pods that were asked to end do end."""
        if not self._begun:
            return
        self._begun = False
        self._tell_node("Normal", EVENT, "Shutdown manager detected shutdown cancellation")
        self._announce()

    async def _end(self, group: Group) -> None:
        for pod in group.pods:
            self._tenants.kill(pod.metadata.uid, _ending(group.grace(pod)))
        until = self._clock.monotonic() + group.seconds
        uids = [pod.metadata.uid for pod in group.pods]
        while any(map(self._tenants.is_active, uids)) and self._clock.monotonic() < until:
            await self._clock.sleep(POLL_SECONDS)


def _ending(grace_seconds: int) -> Ending:
    return Ending(
        node_shutdown.REASON,
        node_shutdown.MESSAGE,
        insists=False,
        disruption=node_shutdown.MESSAGE,
        grace_seconds=grace_seconds,
    )

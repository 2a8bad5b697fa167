# SPDX-License-Identifier: Apache-2.0
"""Ends the pods of a node before its machine goes off (behaviour D1.4, D6.4).

During a shutdown the node is not Ready and admits no new pods.
`policy.node_shutdown` decides the order. This module does not switch the machine
off.
"""

from collections.abc import Callable

from refloat.agent.eviction import RecordNodeEvent
from refloat.agent.pod_gate import ActivePods
from refloat.agent.pod_status import Ending
from refloat.base.clock import Clock
from refloat.policy.node import node_shutdown
from refloat.policy.node.node_shutdown import Group, ShutdownSettings

# How often `run` checks whether a group has ended: a shutdown is rare and short.
POLL_SECONDS = 0.1

EVENT = "NodeShutdown"


class Shutdown:
    """The shutdown of one node."""

    def __init__(
        self,
        pods: ActivePods,
        settings: ShutdownSettings,
        *,
        clock: Clock,
        record_node_event: RecordNodeEvent,
        announce: Callable[[], object],
    ) -> None:
        """`announce` makes the node report its status now."""
        self._pods = pods
        self._settings = settings
        self._clock = clock
        self._record_node_event = record_node_event
        self._announce = announce
        self.is_on = False

    async def run(self) -> None:
        """End all pods, group by group. A second call during a shutdown does nothing."""
        if self.is_on:
            return
        self.is_on = True
        self._record_node_event("Normal", EVENT, "Shutdown manager detected shutdown event")
        self._announce()
        for group in node_shutdown.groups(self._settings, self._pods.active()):
            if not self.is_on:
                return  # `cancel` was called
            await self._end(group)

    def cancel(self) -> None:
        """Stop the shutdown; pods that got SIGTERM still end."""
        if not self.is_on:
            return
        self.is_on = False
        self._record_node_event("Normal", EVENT, "Shutdown manager detected shutdown cancellation")
        self._announce()

    async def _end(self, group: Group) -> None:
        for pod in group.pods:
            ending = Ending(
                node_shutdown.REASON,
                node_shutdown.MESSAGE,
                insists=False,
                disruption=node_shutdown.MESSAGE,
                grace_seconds=group.grace(pod),
            )
            self._pods.kill(pod.metadata.uid, ending)
        until = self._clock.monotonic() + group.seconds
        uids = [pod.metadata.uid for pod in group.pods]
        while any(map(self._pods.is_active, uids)) and self._clock.monotonic() < until:
            await self._clock.sleep(POLL_SECONDS)

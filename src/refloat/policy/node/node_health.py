# SPDX-License-Identifier: Apache-2.0
"""When a node counts as lost, and what is then written on the node and its pods (behaviour C3).

A sign of life is a change that the observer saw, at the time of the observer's own clock; the
node's clock does not matter (C3.2). The node lifecycle controller observes.
"""

from dataclasses import dataclass
from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Node, Pod
from refloat.api.meta import Object

READY = "Ready"

# The node does not report NetworkUnavailable (C3.4).
_POSTED = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")

NODE_LOST = "NodeLost"

# The error of adding up fractions of seconds.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class NodeHealthSettings:
    """How long a node may be silent, in seconds; Kubernetes' own values (C3.1)."""

    period: float = 5.0
    """From one pass to the next; the first pass after a due time acts."""

    grace: float = 50.0
    """The time without a sign of life until a node counts as lost."""

    startup_grace: float = 60.0
    """The same for a node that never posted a status, from its creation or its Lease on."""


DEFAULTS = NodeHealthSettings()


@dataclass(frozen=True, slots=True)
class Health:
    """The last observation of one node."""

    probed: float
    """The observer's time of the last change of the status, or of the start of observation."""

    heartbeat: str | None
    """The heartbeat of the Ready condition, as the node wrote it; None without the condition."""

    def after_status(self, node: Node, now: float) -> "Health":
        """The health after the node object was observed.

        A Ready condition that is new, gone or has another heartbeat is a sign of life.
        """
        beat = heartbeat(node)
        return self if beat == self.heartbeat else Health(now, beat)

    def due(self, settings: NodeHealthSettings, renewed: float = float("-inf")) -> float:
        """When the node counts as lost, unless there is another sign of life.

        `renewed`: when the observer last saw the Lease of the node change.
        """
        grace = settings.startup_grace if self.heartbeat is None else settings.grace
        return max(self.probed, renewed) + grace

    def is_lost(
        self, settings: NodeHealthSettings, now: float, renewed: float = float("-inf")
    ) -> bool:
        return now >= self.due(settings, renewed) - _ROUNDING


def heartbeat(node: Node) -> str | None:
    """The last heartbeat by the node's clock; None if the node never posted Ready."""
    ready = structs.find(node.status.conditions, READY)
    return None if ready is None else ready.last_heartbeat_time or ""


def first_seen(node: Node, *, now: float, wall: datetime) -> Health:
    """A node that never posted counts from its creation, any other from now (C3.1)."""
    beat = heartbeat(node)
    created = node.metadata.creation_timestamp
    if beat is not None or created is None:
        return Health(now, beat)
    age = (wall - times.parse(created)).total_seconds()
    return Health(now - max(0.0, age), None)


def lost_conditions(node: Node, *, now: datetime) -> list[Object]:
    """The conditions to patch into a lost node; empty if Ready is Unknown already (C3.4)."""
    ready = structs.find(node.status.conditions, READY)
    if ready is not None and ready.status == "Unknown":
        return []
    stamp = times.format_time(now)
    conditions: list[Object] = []
    for name in _POSTED:
        current = structs.find(node.status.conditions, name)
        if current is not None and current.status == "Unknown":
            continue
        condition: Object = {"type": name, "status": "Unknown", "lastTransitionTime": stamp}
        if current is None:
            condition["reason"] = "NodeStatusNeverUpdated"
            condition["message"] = "Kubelet never posted node status."
            condition["lastHeartbeatTime"] = node.metadata.creation_timestamp
        else:
            condition["reason"] = "NodeStatusUnknown"
            condition["message"] = "Kubelet stopped posting node status."
        conditions.append(condition)
    return conditions


def pod_status(pod: Pod, *, now: datetime, is_lost: bool) -> Object | None:
    """The patch for a pod of a node that is not ready; None if nothing changes.

    With `is_lost` also the reason: without taint eviction no other controller shows why the pod
    hangs (KEP-3329, "Disconnected node when taint-manager is disabled").
    """
    status: Object = {}
    ready = structs.find(pod.status.conditions, READY)
    if ready is not None and ready.status != "False":
        stamp = times.format_time(now)
        status["conditions"] = [{"type": READY, "status": "False", "lastTransitionTime": stamp}]
    if is_lost and not pod.is_terminal and pod.status.reason != NODE_LOST:
        name = pod.metadata.name
        status["reason"] = NODE_LOST
        status["message"] = (
            f"Node {pod.spec.node_name} which was running pod {name} is unresponsive"
        )
    return status or None


def recovered_pod_status(pod: Pod) -> Object | None:
    """The patch for a pod whose node is back: removes the reason NodeLost."""
    return {"reason": None, "message": None} if pod.status.reason == NODE_LOST else None

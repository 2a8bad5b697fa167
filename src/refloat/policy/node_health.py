# SPDX-License-Identifier: Apache-2.0
"""When a node counts as lost, and what is then written on it and its pods (behaviour C3).

A signal is a change that the observer saw, at the time of the observer's own
clock; what the node's clock says is never compared with it (C3.2). Who
observes, and when, is the node lifecycle controller's.
"""

from dataclasses import dataclass
from datetime import datetime

from refloat.api import structs, times
from refloat.api.core import Node, Pod
from refloat.api.meta import Object

READY = "Ready"

# NetworkUnavailable is not the node's to say (C3.4).
_POSTED = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")

NODE_LOST = "NodeLost"

# What adding up fractions of seconds leaves behind.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Settings:
    """How long a node may be silent, in seconds; Kubernetes' own values (C3.1)."""

    period: float = 5.0
    """From one look to the next: what is due is done at the first look after it."""

    grace: float = 50.0
    """Without a sign of life, until a node counts as lost."""

    startup_grace: float = 60.0
    """The same for a node that never posted a status, from its creation or its lease on."""


DEFAULTS = Settings()


@dataclass(slots=True)
class Health:
    """What was last seen of one node."""

    probed: float
    """When the observer's clock showed the last sign of life."""

    heartbeat: str | None
    """Of its Ready condition, as the node wrote it; none if it has no such condition."""

    renewed: str = ""
    """Of its lease, likewise."""

    def posted(self, node: Node, now: float) -> None:
        """Its object was seen: a condition that is new, gone or beats is a sign of life."""
        beat = heartbeat(node)
        if beat != self.heartbeat:
            self.heartbeat, self.probed = beat, now

    def leased(self, renewed: str, now: float) -> None:
        """Its lease was seen: only a newer time is a sign of life."""
        if renewed > self.renewed:
            self.renewed, self.probed = renewed, now

    def due(self, settings: Settings) -> float:
        """When it counts as lost, unless there is another sign of life."""
        grace = settings.startup_grace if self.heartbeat is None else settings.grace
        return self.probed + grace

    def is_lost(self, settings: Settings, now: float) -> bool:
        return now >= self.due(settings) - _ROUNDING


def heartbeat(node: Node) -> str | None:
    """When the node says that it last beat; none if it never posted Ready."""
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
    """The conditions to patch into a lost node; none if Ready is Unknown already (C3.4)."""
    ready = structs.find(node.status.conditions, READY)
    if ready is not None and ready.status == "Unknown":
        return []
    stamp = times.format_time(now)
    made = [_unknown(node, each, stamp) for each in _POSTED]
    return [each for each in made if each]


def _unknown(node: Node, condition_type: str, now: str) -> Object:
    held = structs.find(node.status.conditions, condition_type)
    made: Object = {"type": condition_type, "status": "Unknown", "lastTransitionTime": now}
    if held is None:
        return {
            **made,
            "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.",
            "lastHeartbeatTime": node.metadata.creation_timestamp,
        }
    if held.status == "Unknown":
        return {}
    return {
        **made,
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }


def pod_status(pod: Pod, *, now: datetime, lost: bool) -> Object | None:
    """What to patch into a pod of a node that is not ready; none if it is so already.

    With `lost`, its reason too: without taint eviction nobody else says why the
    pod hangs (KEP-3329, "Disconnected node when taint-manager is disabled").
    """
    status: Object = {}
    ready = structs.find(pod.status.conditions, READY)
    if ready is not None and ready.status != "False":
        stamp = times.format_time(now)
        status["conditions"] = [{"type": READY, "status": "False", "lastTransitionTime": stamp}]
    if lost and not pod.is_terminal and pod.status.reason != NODE_LOST:
        name = pod.metadata.name
        status["reason"] = NODE_LOST
        status["message"] = (
            f"Node {pod.spec.node_name} which was running pod {name} is unresponsive"
        )
    return status or None


def found_status(pod: Pod) -> Object | None:
    """What to patch into a pod whose node is back: what was said of its loss goes."""
    return {"reason": None, "message": None} if pod.status.reason == NODE_LOST else None

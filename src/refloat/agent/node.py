# SPDX-License-Identifier: Apache-2.0
"""The Node object and the Lease of a node: registration, heartbeats, status (behaviour D1).

One reconciler serves all nodes of a process. Each node is a key that is requeued
every 10 s, so there is one timer and no task per node. `silence` stops the
heartbeats of a node; its pods run on, as on a machine without network.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from refloat.agent.node_lease import NodeLease
from refloat.agent.node_ownership import AgentIdentity, OwnedByAnother
from refloat.agent.self_fence import DEFAULT_SECONDS
from refloat.api import structs, times
from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.api.self_fence import Promise
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import NODES
from refloat.runtime import status_writes
from refloat.runtime.event_series import EventType
from refloat.runtime.reconcile import DONE, Result

# The longest delay of a heartbeat, as a share, so that nodes do not renew at once (D1.1).
JITTER = 0.04

# Heartbeats fall on these ticks, so that those of many nodes share a commit: 5,000 nodes
# commit 10 times a second instead of 500 times. Controllers wait 50 s for a node, so 0.1 s
# does not matter.
TICK_SECONDS = 0.1

# Reason, message and event of a condition that is True, and that is False (D1.3, D6).
_WORDS = {
    ("MemoryPressure", True): (
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
        "NodeHasInsufficientMemory",
    ),
    ("MemoryPressure", False): (
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
        "NodeHasSufficientMemory",
    ),
    ("DiskPressure", True): (
        "KubeletHasDiskPressure",
        "kubelet has disk pressure",
        "NodeHasDiskPressure",
    ),
    ("DiskPressure", False): (
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
        "NodeHasNoDiskPressure",
    ),
    ("PIDPressure", True): (
        "KubeletHasInsufficientPID",
        "kubelet has insufficient PID available",
        "NodeHasInsufficientPID",
    ),
    ("PIDPressure", False): (
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
        "NodeHasSufficientPID",
    ),
    ("Ready", True): ("KubeletReady", "kubelet is posting ready status", "NodeReady"),
    ("Ready", False): ("KubeletNotReady", "node is shutting down", "NodeNotReady"),
}


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """What a node reports of itself."""

    pressure: tuple[str, ...] = ()
    """The pressure conditions that are True."""

    shutting_down: bool = False
    volumes: tuple[str, ...] | None = None
    """`volumesInUse`; None while the mounted volumes are not known: then it is not written."""

    def conditions(self) -> dict[str, bool]:
        low = ("MemoryPressure", "DiskPressure", "PIDPressure")
        return {**{name: name in self.pressure for name in low}, "Ready": not self.shutting_down}


HEALTHY = NodeHealth()

RecordNamedNodeEvent: TypeAlias = Callable[[str, EventType, str, str], object]
"""Records an event of a node: the node's name, type, reason, note."""


def ignore_node_event(name: str, event_type: EventType, reason: str, note: str) -> None:
    """Drops an event: the default where no recorder is set."""


_CAPACITY = {"cpu": "8", "ephemeral-storage": "100Gi", "memory": "32Gi", "pods": "110"}


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How a node registers and reports."""

    name: str
    """The name of the Node and of the Lease."""

    capacity: Mapping[str, str] = field(default_factory=_CAPACITY.copy)
    """Capacity and allocatable; 110 pods is the default of a kubelet."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels besides those of host name and operating system."""

    version: str = ""
    """The VERSION in `kubectl get nodes`."""

    info: Mapping[str, str] = field(default_factory=dict)
    """Further fields of `nodeInfo`."""

    address: str = ""
    """The InternalIP. If empty, the node reports its name as Hostname."""

    port: int = 0
    """The port at which the API server fetches logs; 0: none."""

    instance: str = ""
    """The agent, the same over restarts on one folder (`node_ownership`). If empty, the node does
    not check for other agents."""

    incarnation: str = ""
    """The process of that agent: new for each process."""

    taints: Sequence[Mapping[str, str]] = ()
    """The taints of a new Node; the node does not change them later."""

    lease_seconds: int = 40
    """The duration in the Lease; as a kubelet's (D1.1)."""

    beat_seconds: float = 10.0
    """Seconds between two renewals: a quarter of the Lease's duration."""

    report_seconds: float = 300.0
    """An unchanged status is written again after about so many seconds (D1.2)."""

    self_fence_seconds: int = DEFAULT_SECONDS
    """How long pods with a self-fence run after the last successful renewal (`self_fence`)."""

    def max_pods(self) -> int:
        return int(self.capacity.get("pods", "0"))


@dataclass(slots=True)
class _Heartbeat:
    settings: NodeSettings
    lease: NodeLease
    uid: str = ""  # empty until the node is registered
    silent: bool = False
    report_at: float = 0.0
    missed_at: float | None = None  # when the Node was first found to be deleted
    reported: NodeHealth | None = None


class Heartbeats:
    """The reconciler that registers nodes and renews their Leases; a key is a node's name."""

    def __init__(
        self,
        client: Client,
        nodes: Iterable[NodeSettings],
        *,
        clock: Clock,
        rand: Rand,
        health: Callable[[str], NodeHealth] = lambda _: HEALTHY,
        record_event: RecordNamedNodeEvent = ignore_node_event,
        renewed: Callable[[str, float, Mapping[str, Promise]], object] = lambda *_: None,
        replaced: Callable[[str], object] = str,
        promises: Callable[[str], Mapping[str, Promise]] = lambda _: {},
        recall: Callable[[str, Mapping[str, Promise]], object] = lambda *_: None,
    ) -> None:
        """All callbacks get the name of a node. `renewed`: a renewal succeeded; also gets the time
        before its first request and the promises that the Lease lists. `replaced`: another agent
        owns the node, and its heartbeats stop. `promises`: returns those to list. `recall`: gets
        those that an earlier agent listed."""
        self._replaced = replaced
        self._client = client
        self._clock = clock
        self._rand = rand
        self._health = health
        self._record_event = record_event
        self._renewed = renewed
        self._beats = {
            each.name: _Heartbeat(
                each,
                NodeLease(
                    client,
                    each.name,
                    clock,
                    seconds=each.lease_seconds,
                    identity=(
                        AgentIdentity(each.instance, each.incarnation) if each.instance else None
                    ),
                    promises=partial(promises, each.name),
                    recall=partial(recall, each.name),
                ),
            )
            for each in nodes
        }

    def names(self) -> list[str]:
        return list(self._beats)

    def silence(self, name: str) -> None:
        """Stop renewals and reports until `resume`."""
        self._beats[name].silent = True

    async def settle(self, name: str, waiting: Callable[[float], object]) -> None:
        """Wait until this agent owns the node (`NodeLease.settle`); raises `OwnedByAnother`."""
        await self._beats[name].lease.settle(waiting)

    def is_sure(self, name: str) -> bool:
        """Whether this agent owns the node, by the last answer."""
        return self._beats[name].lease.is_sure

    def has_posted(self, name: str) -> bool:
        """Whether the status was written since the start or `resume`."""
        return self._beats[name].report_at > 0.0

    def resume(self, name: str) -> None:
        """End `silence`; the caller queues the node."""
        beat = self._beats[name]
        beat.silent, beat.report_at = False, 0.0

    async def reconcile(self, name: str) -> Result:
        beat = self._beats[name]
        if beat.silent:
            return DONE
        if not beat.uid:
            obj: Object = {"metadata": {"name": name, "labels": labels(beat.settings)}}
            if beat.settings.taints:
                obj["spec"] = {"taints": list(beat.settings.taints)}
            try:
                node = await self._client.create(NODES, obj)
            except errors.AlreadyExists:
                node = await self._client.get(NODES, name)
            beat.uid = node.metadata.uid
        sent_at = self._clock.monotonic()
        try:
            promises = await beat.lease.renew(beat.uid)
        except OwnedByAnother:
            self.silence(name)
            self._replaced(name)
            return DONE
        self._renewed(name, sent_at, promises)
        await self._report(beat)
        now = self._clock.monotonic()
        due = now + self._rand.jitter(beat.settings.beat_seconds, JITTER)
        return Result(requeue_after=math.ceil(due / TICK_SECONDS) * TICK_SECONDS - now)

    async def _report(self, beat: _Heartbeat) -> None:
        """Write the status if it is time, or if the API has another one (D1.2).

        A change by another component counts too: after the node controller wrote Unknown,
        the next heartbeat writes the conditions again.
        """
        name, is_due = beat.settings.name, self._clock.monotonic() >= beat.report_at
        try:
            node = await self._client.get(NODES, name)
        except errors.NotFound:
            # The pod collector needs a minute to find the pods of a deleted node. So the agent
            # registers the node again only after half of `report_seconds`.
            now = self._clock.monotonic()
            if beat.missed_at is None:
                beat.missed_at = now
            if now < beat.missed_at + beat.settings.report_seconds / 2:
                return
            beat.uid = ""
            raise
        beat.uid, beat.missed_at = node.metadata.uid, None
        # After the read, so that the report has all volumes that were mounted until then.
        health = self._health(name)
        status = _status(beat.settings, health, node, times.format_time(self._clock.now()))
        has_volumes = "volumesInUse" in status
        has_changed = has_volumes or any(  # by more than times
            (old := structs.find(node.status.conditions, new["type"])) is None
            or (old.status, old.reason, old.message)
            != (new["status"], new["reason"], new["message"])
            for new in status["conditions"]
        )
        if is_due or has_changed:
            await status_writes.patch(self._client, NODES, node, status, unchanged=has_volumes)
            # Spread by up to 50 % to each side (D1.2).
            spread = beat.settings.report_seconds * (0.5 + self._rand.random())
            beat.report_at = self._clock.monotonic() + spread
        before = beat.reported.conditions() if beat.reported is not None else {}
        for condition, truth in health.conditions().items():
            if before.get(condition, truth) != truth:
                *_, event = _WORDS[condition, truth]
                self._record_event(name, "Normal", event, f"Node {name} status is now: {event}")
        beat.reported = health


def labels(settings: NodeSettings) -> dict[str, str]:
    """The labels that a node sets on its own Node object."""
    return {
        "kubernetes.io/hostname": settings.name,
        "kubernetes.io/os": "linux",
        **settings.labels,
    }


def _status(settings: NodeSettings, health: NodeHealth, node: Node, now: str) -> Object:
    # One address only: clients must not use a host name that may not resolve.
    address = {"type": "Hostname", "address": settings.name}
    if settings.address:
        address = {"type": "InternalIP", "address": settings.address}
    status: Object = {
        "capacity": dict(settings.capacity),
        "allocatable": dict(settings.capacity),
        "conditions": [
            _condition(name, node, now, truth=truth) for name, truth in health.conditions().items()
        ],
        "addresses": [address],
    }
    # Only on change, and only on the version that was read: a pod's volume may be announced
    # at the same time, and an older report must not remove it.
    if health.volumes is not None and health.volumes != (node.status.volumes_in_use or ()):
        status["volumesInUse"] = list(health.volumes) or None
    if settings.version:
        about = {"kubeletVersion": settings.version, "operatingSystem": "linux"}
        status["nodeInfo"] = {**about, **settings.info}
    if settings.port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": settings.port}}
    return status


def _condition(name: str, node: Node, now: str, *, truth: bool) -> Object:
    reason, message, _ = _WORDS[name, truth]
    before = structs.find(node.status.conditions, name)
    condition: Object = {
        "type": name,
        "status": str(truth),
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
    }
    if before is None or before.status != str(truth):
        condition["lastTransitionTime"] = now
    return condition

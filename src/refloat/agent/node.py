# SPDX-License-Identifier: Apache-2.0
"""A node as the API sees it: its object, its conditions, its lease (behaviour D1).

One reconciler beats for all nodes of a process: each node is a key that comes
again every ten seconds, so there is one timer and no task per node. A node
that is to fall silent is `silence`d; its pods run on, as on a machine that was
cut off.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from refloat.agent.node_lease import NodeLease
from refloat.agent.node_ownership import Identity, Taken
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
from refloat.runtime import statuses
from refloat.runtime.event_series import EventType
from refloat.runtime.reconcile import DONE, Result

# By how much a beat may be late, so that the nodes of a cluster do not all
# beat at once (D1.1).
JITTER = 0.04

# Beats fall on these ticks, so that those of many nodes share a commit: a tenth
# of a second is nothing to whoever waits for fifty, and 5,000 nodes commit ten
# times a second instead of hundreds of times.
TICK_SECONDS = 0.1

# What a condition says when it is so and when it is not: reason, message, event (D1.3, D6).
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
class Health:
    """How a node is."""

    pressure: tuple[str, ...] = ()
    """What it is low on, by the names of conditions."""

    shutting_down: bool = False
    volumes: tuple[str, ...] | None = None
    """What it has mounted; None while it does not know, and then it says nothing of it."""

    def conditions(self) -> dict[str, bool]:
        low = ("MemoryPressure", "DiskPressure", "PIDPressure")
        return {**{name: name in self.pressure for name in low}, "Ready": not self.shutting_down}


HEALTHY = Health()

TellOfNode: TypeAlias = Callable[[str, EventType, str, str], object]
"""Says an event of a node: whose, its type, reason and note."""


def _all_healthy(_: str) -> Health:
    return HEALTHY


def _unheard(name: str, sent_at: float, listed: Mapping[str, Promise]) -> None:
    """Whoever has no pods that wait for it does without."""


def _no_promises(_: str) -> Mapping[str, Promise]:
    return {}


def _unrecalled(name: str, listed: Mapping[str, Promise]) -> None:
    """A node without pods has nothing to go on with."""


def unminded(name: str) -> None:
    """Who has no instance is never replaced."""


def untold(name: str, event_type: EventType, reason: str, note: str) -> None:
    """Events are for people; a node does without."""


def _capacity() -> dict[str, str]:
    return {"cpu": "8", "ephemeral-storage": "100Gi", "memory": "32Gi", "pods": "110"}


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node says of itself."""

    name: str
    """Its object's name, and its lease's."""

    capacity: Mapping[str, str] = field(default_factory=_capacity)
    """Capacity and allocatable alike; 110 pods is a kubelet's own default."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Beside those of host name and operating system."""

    version: str = ""
    """What `kubectl get nodes` shows as VERSION."""

    info: Mapping[str, str] = field(default_factory=dict)
    """What else `nodeInfo` has."""

    address: str = ""
    """Where it is reached, at `port`; one without is known by its name alone."""

    port: int = 0
    """Where an API server asks for logs; 0: nowhere."""

    instance: str = ""
    """Which agent this is, the same over restarts on one folder (`node_ownership`). A node without
    one does not mind another agent."""

    incarnation: str = ""
    """Which process of that agent this is: new for each."""

    taints: Sequence[Mapping[str, str]] = ()
    """Those that it registers with; afterwards they are others' to change."""

    lease_seconds: int = 40
    """How long its lease says that it is good for. As a kubelet's (D1.1)."""

    beat_seconds: float = 10.0
    """From one beat to the next: a quarter of the lease's duration."""

    report_seconds: float = 300.0
    """A status that has not changed is sent again after about so long (D1.2)."""

    self_fence_seconds: int = DEFAULT_SECONDS
    """How long pods that ask for it go on after the last successful renewal (`self_fence`)."""

    def max_pods(self) -> int:
        return int(self.capacity.get("pods", "0"))


@dataclass(slots=True)
class _Beat:
    settings: NodeSettings
    lease: NodeLease
    uid: str = ""  # empty until it is registered
    silent: bool = False
    report_at: float = 0.0
    missed_at: float | None = None  # since when it is not there, though it was registered
    told: Health | None = None  # in the last report


class Heartbeats:
    """The reconciler that registers nodes and keeps them alive; a key is a node's name."""

    def __init__(
        self,
        client: Client,
        nodes: Iterable[NodeSettings],
        *,
        clock: Clock,
        rand: Rand,
        health: Callable[[str], Health] = _all_healthy,
        tell: TellOfNode = untold,
        renewed: Callable[[str, float, Mapping[str, Promise]], object] = _unheard,
        replaced: Callable[[str], object] = unminded,
        promises: Callable[[str], Mapping[str, Promise]] = _no_promises,
        recall: Callable[[str, Mapping[str, Promise]], object] = _unrecalled,
    ) -> None:
        """Each is called with the name of a node: `renewed` after each success, with when its first
        request was about to be sent and the promises that the Lease lists; `replaced` when another
        agent owns the node, which beats no more; `promises` for those to list; `recall` with those
        that an agent before this one listed."""
        self._replaced = replaced
        self._client = client
        self._clock = clock
        self._rand = rand
        self._health = health
        self._tell = tell
        self._renewed = renewed
        self._beats = {
            each.name: _Beat(
                each,
                NodeLease(
                    client,
                    each.name,
                    clock,
                    seconds=each.lease_seconds,
                    identity=_identity(each),
                    promises=partial(promises, each.name),
                    recall=partial(recall, each.name),
                ),
            )
            for each in nodes
        }

    def names(self) -> list[str]:
        return list(self._beats)

    def silence(self, name: str) -> None:
        """Renew and report no more, until `resume`."""
        self._beats[name].silent = True

    async def settle(self, name: str, waiting: Callable[[float], object]) -> None:
        """Return when the node is ours (`NodeLease.settle`); raises `Taken`."""
        await self._beats[name].lease.settle(waiting)

    def is_sure(self, name: str) -> bool:
        """Whether the node is ours, as far as is known."""
        return self._beats[name].lease.is_sure

    def has_posted(self, name: str) -> bool:
        """Whether its status was sent since it began, or resumed."""
        return self._beats[name].report_at > 0.0

    def resume(self, name: str) -> None:
        """Go on; add the key to the queue so that it happens at once."""
        beat = self._beats[name]
        beat.silent, beat.report_at = False, 0.0

    async def reconcile(self, name: str) -> Result:
        beat = self._beats[name]
        if beat.silent:
            return DONE
        if not beat.uid:
            await self._register(beat)
        sent_at = self._clock.monotonic()
        try:
            listed = await beat.lease.renew(beat.uid)
        except Taken:
            self.silence(name)
            self._replaced(name)
            return DONE
        self._renewed(name, sent_at, listed)
        await self._report(beat)
        return Result(requeue_after=self._until_next(beat))

    def _until_next(self, beat: _Beat) -> float:
        now = self._clock.monotonic()
        due = now + self._rand.jitter(beat.settings.beat_seconds, JITTER)
        return math.ceil(due / TICK_SECONDS) * TICK_SECONDS - now

    async def _register(self, beat: _Beat) -> None:
        obj: Object = {"metadata": {"name": beat.settings.name, "labels": labels(beat.settings)}}
        if beat.settings.taints:
            obj["spec"] = {"taints": list(beat.settings.taints)}
        try:
            node = await self._client.create(NODES, obj)
        except errors.AlreadyExists:
            node = await self._client.get(NODES, beat.settings.name)
        beat.uid = node.metadata.uid

    async def _report(self, beat: _Beat) -> None:
        """Send the status if it is time, or if the API has another (D1.2).

        Somebody else's word counts as a change: a node that was called Unknown
        while it could not be heard says at its next beat that it is there.
        """
        name, is_due = beat.settings.name, self._clock.monotonic() >= beat.report_at
        try:
            held = await self._client.get(NODES, name)
        except errors.NotFound:
            if self._is_mourned(beat):
                return
            beat.uid = ""  # somebody deleted it: register again
            raise
        beat.uid, beat.missed_at = held.metadata.uid, None
        # Asked for after the look: what was mounted meanwhile must be in it.
        health = self._health(name)
        told = _status(beat.settings, health, held, times.format_time(self._clock.now()))
        if is_due or _is_news(told, held):
            await statuses.patch(self._client, NODES, held, told, unchanged="volumesInUse" in told)
            # Spread by up to a half to each side, as D1.2 says.
            spread = beat.settings.report_seconds * (0.5 + self._rand.random())
            beat.report_at = self._clock.monotonic() + spread
        self._tell_changes(name, beat.told, health)
        beat.told = health

    def _is_mourned(self, beat: _Beat) -> bool:
        """Whether a node that was deleted is to stay so for now: its pods are to be found orphaned,
        for which a collector of pods takes a minute."""
        now = self._clock.monotonic()
        if beat.missed_at is None:
            beat.missed_at = now
        return now < beat.missed_at + beat.settings.report_seconds / 2

    def _tell_changes(self, name: str, before: Health | None, health: Health) -> None:
        told = before.conditions() if before is not None else {}
        for condition, truth in health.conditions().items():
            if told.get(condition, truth) != truth:
                *_, event = _WORDS[condition, truth]
                self._tell(name, "Normal", event, f"Node {name} status is now: {event}")


def _identity(settings: NodeSettings) -> Identity | None:
    if not settings.instance:
        return None
    return Identity(settings.instance, settings.incarnation)


def labels(settings: NodeSettings) -> dict[str, str]:
    """Those that a node gives itself."""
    return {
        "kubernetes.io/hostname": settings.name,
        "kubernetes.io/os": "linux",
        **settings.labels,
    }


def _status(settings: NodeSettings, health: Health, held: Node, now: str) -> Object:
    status: Object = {
        "capacity": dict(settings.capacity),
        "allocatable": dict(settings.capacity),
        "conditions": [
            _condition(name, held, now, truth=truth) for name, truth in health.conditions().items()
        ],
        "addresses": [_address(settings)],
    }
    # Only what is new, and that on the version that was read: a pod's volume may be
    # announced at the same time, and must not be taken back by an older report.
    if health.volumes is not None and health.volumes != (held.status.volumes_in_use or ()):
        status["volumesInUse"] = list(health.volumes) or None
    if settings.version:
        about = {"kubeletVersion": settings.version, "operatingSystem": "linux"}
        status["nodeInfo"] = {**about, **settings.info}
    if settings.port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": settings.port}}
    return status


def _is_news(told: Object, held: Node) -> bool:
    """Whether a status says anything but new times."""
    return "volumesInUse" in told or any(
        (before := structs.find(held.status.conditions, each["type"])) is None
        or (before.status, before.reason, before.message)
        != (each["status"], each["reason"], each["message"])
        for each in told["conditions"]
    )


def _address(settings: NodeSettings) -> Object:
    """One only: where its name leads nowhere, nobody must be sent there."""
    if settings.address:
        return {"type": "InternalIP", "address": settings.address}
    return {"type": "Hostname", "address": settings.name}


def _condition(name: str, held: Node, now: str, *, truth: bool) -> Object:
    reason, message, _ = _WORDS[name, truth]
    before = structs.find(held.status.conditions, name)
    made: Object = {
        "type": name,
        "status": str(truth),
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
    }
    if before is None or before.status != str(truth):
        made["lastTransitionTime"] = now
    return made

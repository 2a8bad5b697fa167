# SPDX-License-Identifier: Apache-2.0
"""A node as the API sees it: its object, its conditions, its lease (behaviour D1).

One reconciler beats for all nodes of a process: each node is a key that comes
again every ten seconds, so there is one timer and no task per node. A node
that is to fall silent is `silence`d; its pods run on, as on a machine that was
cut off.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from refloat.api import structs, times
from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import LEASES, NODES
from refloat.runtime.reconcile import DONE, Result

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40

# A quarter of the lease's duration, raised by up to 4 %, so that the nodes of
# a cluster do not all beat at once (D1.1).
BEAT_SECONDS = 10.0
JITTER = 0.04

# A status that has not changed is sent again after so long (D1.2).
REPORT_SECONDS = 300.0

_HEALTHY = (
    (
        "MemoryPressure",
        False,
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", False, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", False, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", True, "KubeletReady", "kubelet is posting ready status"),
)


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

    def max_pods(self) -> int:
        return int(self.capacity.get("pods", "0"))


@dataclass(slots=True)
class _Beat:
    settings: NodeSettings
    uid: str = ""  # empty until it is registered
    leased: bool = False
    silent: bool = False
    report_at: float = 0.0


class Heartbeats:
    """The reconciler that registers nodes and keeps them alive; a key is a node's name."""

    def __init__(
        self, client: Client, nodes: Iterable[NodeSettings], *, clock: Clock, rand: Rand
    ) -> None:
        self._client = client
        self._clock = clock
        self._rand = rand
        self._beats = {each.name: _Beat(each) for each in nodes}

    def names(self) -> list[str]:
        return list(self._beats)

    def silence(self, name: str) -> None:
        """Renew and report no more, until `resume`."""
        self._beats[name].silent = True

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
        await self._renew(beat)
        if self._clock.monotonic() >= beat.report_at:
            await self._report(beat)
        return Result(requeue_after=self._rand.jitter(BEAT_SECONDS, JITTER))

    async def _register(self, beat: _Beat) -> None:
        obj = {"metadata": {"name": beat.settings.name, "labels": _labels(beat.settings)}}
        try:
            node = await self._client.create(NODES, obj)
        except errors.AlreadyExists:
            node = await self._client.get(NODES, beat.settings.name)
        beat.uid = node.metadata.uid

    async def _renew(self, beat: _Beat) -> None:
        name = beat.settings.name
        if not beat.leased:
            await self._take_lease(beat)
            return
        spec = {"renewTime": times.format_micro(self._clock.now())}
        try:
            await self._client.patch(LEASES, name, {"spec": spec}, namespace=LEASE_NAMESPACE)
        except errors.NotFound:
            await self._take_lease(beat)

    async def _take_lease(self, beat: _Beat) -> None:
        name = beat.settings.name
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": beat.uid}
        lease: Object = {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": times.format_micro(self._clock.now()),
            },
        }
        try:
            await self._client.create(LEASES, lease, namespace=LEASE_NAMESPACE)
        except errors.AlreadyExists:
            await self._client.patch(LEASES, name, lease, namespace=LEASE_NAMESPACE)
        beat.leased = True

    async def _report(self, beat: _Beat) -> None:
        name = beat.settings.name
        try:
            held = await self._client.get(NODES, name)
            beat.uid = held.metadata.uid
            patch = {"status": _status(beat.settings, held, times.format_time(self._clock.now()))}
            await self._client.patch(
                NODES, name, patch, patch_type="strategic", subresource="status"
            )
        except errors.NotFound:
            beat.uid = ""  # somebody deleted it: register again
            raise
        # Spread by up to a half to each side, as D1.2 says.
        spread = REPORT_SECONDS * (0.5 + self._rand.random())
        beat.report_at = self._clock.monotonic() + spread


def _labels(settings: NodeSettings) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": settings.name,
        "kubernetes.io/os": "linux",
        **settings.labels,
    }


def _status(settings: NodeSettings, held: Node, now: str) -> Object:
    status: Object = {
        "capacity": dict(settings.capacity),
        "allocatable": dict(settings.capacity),
        "conditions": [_condition(each, held, now) for each in _HEALTHY],
        "addresses": [{"type": "Hostname", "address": settings.name}],
    }
    if settings.version:
        status["nodeInfo"] = {"kubeletVersion": settings.version, "operatingSystem": "linux"}
    return status


def _condition(wanted: tuple[str, bool, str, str], held: Node, now: str) -> Object:
    name, truth, reason, message = wanted
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

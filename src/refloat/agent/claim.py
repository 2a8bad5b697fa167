# SPDX-License-Identifier: Apache-2.0
"""One node, one agent: of two that have one name, the second is refused.

Both would run the same pods, and each would report for both. The lease says
who runs a node: it has the agent's instance, which stays the same over
restarts on one folder, in an annotation. An agent that finds another's, or a
kubelet's, waits until it was not renewed for as long as it is good for, by its
own clock, because two machines seldom agree about the time; and is refused as
soon as it is renewed. Renewals are made on the version that was last seen, so
that one who was away for too long finds out instead of taking over again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from refloat.api import times
from refloat.api.coordination import Lease
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import LEASES

AGENT = "refloat.dev/agent"
LEASE_NAMESPACE = "kube-node-lease"

# Of a lease that says nothing: a kubelet's.
DEFAULT_SECONDS = 40

# Looks at a lease while it runs out.
LOOKS = 8


class Taken(RefloatError):
    """Another agent runs this node."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The lease as we last saw it, and the time that we last wrote into it."""

    version: str = ""
    renewed: str = ""


NOTHING = Hold()


def is_held(lease: Lease, instance: str) -> bool:
    return (lease.metadata.annotations or {}).get(AGENT) == instance


def still_held(lease: Lease, instance: str, before: Hold, sent: str) -> Hold:
    """How we hold a lease that was changed meanwhile; raises `Taken` if we do not.

    A renewal of ours whose answer was lost is one of these too. One by somebody
    with our instance is somebody with a copy of our folder.
    """
    if not is_held(lease, instance):
        raise Taken(lease.metadata.name)
    if (lease.spec.renew_time or "") not in (before.renewed, sent):
        raise Taken(lease.metadata.name)
    return Hold(lease.metadata.resource_version, lease.spec.renew_time or "")


class Claim:
    """The right to run one node."""

    def __init__(self, client: Client, name: str, instance: str, clock: Clock) -> None:
        self._client, self._name, self._instance = client, name, instance
        self._clock = clock

    async def settle(self, waiting: Callable[[float], object]) -> None:
        """Return when nobody else runs the node; raises `Taken` if somebody does.

        `waiting` hears for how many seconds it has to be waited.
        """
        lease = await self._read() or await self._made()
        if is_held(lease, self._instance):
            return
        seconds = float(lease.spec.lease_duration_seconds or DEFAULT_SECONDS)
        waiting(seconds)
        await self._outwait(lease, seconds)
        patch = {
            "metadata": {
                "annotations": {AGENT: self._instance},
                "resourceVersion": lease.metadata.resource_version,
            }
        }
        try:
            await self._client.patch(LEASES, self._name, patch, namespace=LEASE_NAMESPACE)
        except errors.NotFound:
            return
        except errors.Conflict as error:
            raise Taken(self._name) from error

    async def _made(self) -> Lease:
        """A lease of our own, unless another was faster. Whose node it is, the heartbeat adds."""
        lease = {
            "metadata": {"name": self._name, "annotations": {AGENT: self._instance}},
            "spec": {
                "holderIdentity": self._name,
                "leaseDurationSeconds": DEFAULT_SECONDS,
                "renewTime": times.format_micro(self._clock.now()),
            },
        }
        try:
            return await self._client.create(LEASES, lease, namespace=LEASE_NAMESPACE)
        except errors.AlreadyExists:
            return await self._client.get(LEASES, self._name, namespace=LEASE_NAMESPACE)

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(LEASES, self._name, namespace=LEASE_NAMESPACE)
        except errors.NotFound:
            return None

    async def _outwait(self, lease: Lease, seconds: float) -> None:
        version = lease.metadata.resource_version
        for _ in range(LOOKS):
            await self._clock.sleep(seconds / LOOKS)
            seen = await self._read()
            if seen is not None and seen.metadata.resource_version != version:
                raise Taken(self._name)


async def persist(attempt: Callable[[], Awaitable[None]], clock: Clock, seconds: float) -> None:
    """Try until the API server answers. Of refused credentials the client itself speaks."""
    while True:
        try:
            return await attempt()
        except (errors.Unavailable, errors.Unauthorized, errors.Timeout, errors.TooManyRequests):
            await clock.sleep(seconds)

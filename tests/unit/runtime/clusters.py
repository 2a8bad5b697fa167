# SPDX-License-Identifier: Apache-2.0
"""The in-process client of the real server, on a memory store, whose calls can be made to fail."""

import msgspec

from refloat.apiserver import bootstrap, identity
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from tests.apiserver_fixture import ServerFixture

_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}


# Seconds that a client waits for an answer.
PATIENCE = 30.0


class RegistryCluster:
    """Objects on a real registry; `client` gives one who can change them."""

    def __init__(self) -> None:
        self.world = ServerFixture()

    @classmethod
    async def started(cls) -> "RegistryCluster":
        """With the namespaces that every cluster begins with."""
        cluster = cls()
        await bootstrap.ensure(cluster.world.registry, cluster.world.clock)
        return cluster

    def client(self, clock: Clock) -> "ClusterClient":
        return ClusterClient(self.world, clock)


class ClusterClient(LocalClient):
    """Notes its calls; `failures` are met before one, `lost` after it was carried out."""

    def __init__(self, world: ServerFixture, clock: Clock) -> None:
        super().__init__(world.server.connect(identity.ADMIN), field_manager="test")
        self._clock = clock
        self.calls: list[str] = []
        self.failures: list[Exception | None] = []  # for the next calls, one after another
        self.lost: list[Exception | None] = []  # likewise, but the call is carried out
        self.down: Exception | None = None  # for all calls
        self.hangs = False
        self.latency = 0.0
        self.holds = 0.0  # seconds between a call and its answer, at most what a client waits
        self.refused = ""  # calls that have this in their body are not answered

    async def _call(self, request: Request) -> bytes:
        self.calls.append(f"{_VERBS[request.method]} {_name(request)}")
        await self._clock.sleep(self.latency)
        while self.hangs:
            await self._clock.sleep(1.0)
        if self.down is not None:
            raise self.down
        if self.refused and self.refused.encode() in (request.body or b""):
            raise errors.Unavailable("away")
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        answer = await super()._call(request)
        if self.holds:
            await self._clock.sleep(min(self.holds, PATIENCE))
            raise errors.Timeout("no answer in time")
        if self.lost and (error := self.lost.pop(0)) is not None:
            raise error
        return answer

    async def close(self) -> None:
        self.calls.append("close")


def _name(request: Request) -> str:
    """What the call is about: the last part of its address, or the name in a new object."""
    if request.method == "POST":
        name: str = msgspec.json.decode(request.body or b"{}")["metadata"].get("name", "")
        return name
    return request.path.partition("?")[0].rpartition("/")[2]

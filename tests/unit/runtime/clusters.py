# SPDX-License-Identifier: Apache-2.0
"""A client of the real registry, on a memory store, whose calls can be made to fail.

Only the verbs that the runtime itself uses: get, create, patch (merge), delete.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import msgspec

from refloat.api import errors as status
from refloat.api.meta import Object
from refloat.apiserver import bootstrap, deletion, stored
from refloat.apiserver.patch import merge_patch
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import (
    EVERYTHING,
    DeleteOptions,
    Kind,
    Page,
    PatchType,
    Selector,
    Watch,
)
from refloat.store.contract import Entry
from tests.worlds import World

T = TypeVar("T")

_BY_REASON: dict[str, type[errors.ClientError]] = {
    "NotFound": errors.NotFound,
    "AlreadyExists": errors.AlreadyExists,
    "Conflict": errors.Conflict,
    "Invalid": errors.Invalid,
    "Forbidden": errors.Forbidden,
}


class Cluster:
    """Objects on a real registry; `client` gives one who can change them."""

    def __init__(self) -> None:
        self.world = World()

    @classmethod
    async def started(cls) -> "Cluster":
        """With the namespaces that every cluster begins with."""
        cluster = cls()
        await bootstrap.ensure(cluster.world.registry, cluster.world.clock)
        return cluster

    def client(self, clock: Clock) -> "ClusterClient":
        return ClusterClient(self.world, clock)


class ClusterClient:
    """Notes its calls; `fail` is asked before each, `lose` after each."""

    def __init__(self, world: World, clock: Clock) -> None:
        self._world = world
        self._clock = clock
        self.calls: list[str] = []
        self.failures: list[Exception | None] = []  # for the next calls, one after another
        self.lost: list[Exception | None] = []  # likewise, but the call is carried out
        self.down: Exception | None = None  # for all calls
        self.hangs = False
        self.latency = 0.0

    async def _pass(self, verb: str, name: str) -> None:
        self.calls.append(f"{verb} {name}")
        await self._clock.sleep(self.latency)
        while self.hangs:
            await self._clock.sleep(1.0)
        if self.down is not None:
            raise self.down
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure

    def _answer(self, kind: Kind[T], entry: Entry) -> T:
        if self.lost and (lost := self.lost.pop(0)) is not None:
            raise lost
        return msgspec.convert(stored.unpack(kind.resource, entry), kind.type)

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        await self._pass("get", name)
        try:
            return self._answer(kind, self._world.registry.get(kind.resource, namespace, name))
        except status.StatusError as error:
            raise _typed(error) from error

    async def create(self, kind: Kind[T], obj: Object, *, namespace: str = "") -> T:
        await self._pass("create", obj["metadata"].get("name", ""))
        call, registry = self._world.call(), self._world.registry
        try:
            made = registry.decode(call, kind.resource, msgspec.json.encode(obj), "json")
            return self._answer(kind, await registry.create(call, kind.resource, namespace, made))
        except status.StatusError as error:
            raise _typed(error) from error

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Object | Sequence[Any],
        *,
        patch_type: PatchType = "merge",
        namespace: str = "",
        subresource: str = "",
        force: bool = False,
    ) -> T:
        await self._pass("patch", name)
        assert isinstance(patch, dict)
        version = patch.get("metadata", {}).get("resourceVersion", "")
        try:
            entry = await self._world.registry.modify(
                self._world.call(),
                kind.resource,
                namespace,
                name,
                lambda old: merge_patch.apply(old, patch),
                subresource=subresource,
                given=version,
            )
        except status.StatusError as error:
            raise _typed(error) from error
        return self._answer(kind, entry)

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        *,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> None:
        await self._pass("delete", name)
        await self._world.registry.delete(
            self._world.call(), kind.resource, namespace, name, deletion.Options()
        )

    def list(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        limit: int = 500,
        resource_version: str = "",
    ) -> AsyncIterator[Page[T]]:
        raise NotImplementedError

    def watch(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int | None = None,
    ) -> Watch[T]:
        raise NotImplementedError

    async def evict(
        self, name: str, *, namespace: str, options: DeleteOptions | None = None
    ) -> None:
        self.calls.append(f"evict {name}")

    async def bind(self, name: str, node: str, *, namespace: str, uid: str = "") -> None:
        self.calls.append(f"bind {name}")

    async def close(self) -> None:
        self.calls.append("close")


def _typed(error: status.StatusError) -> errors.ClientError:
    told = error.status()
    made = _BY_REASON.get(told["reason"], errors.ClientError)
    return made(told["message"], code=error.code, reason=told["reason"])

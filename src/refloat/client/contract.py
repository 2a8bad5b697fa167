# SPDX-License-Identifier: Apache-2.0
"""The interface through which controllers use any cluster.

Reads return the partial structs of a `Kind`, decoded once. Fields that a struct
does not name are not decoded. They cannot get lost, because writes are creates
and patches, never whole objects.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from refloat.api import kinds
from refloat.api.meta import Object

T = TypeVar("T")

# Of a log in one answer: a container may write a line of any length.
MAX_LOG_BYTES = 64 * 1024

PatchType: TypeAlias = Literal["json", "merge", "strategic", "apply"]
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A resource, and the struct for its objects."""

    resource: kinds.Resource
    type: type[T]

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[T]:
        return msgspec.json.Decoder(self.type)


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """A chunk of a list, all chunks as of one resourceVersion."""

    items: list[T]
    resource_version: str
    last: bool


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One line of a watch. A bookmark has no object but a resourceVersion."""

    type: EventType
    object: T | None
    resource_version: str
    initial_end: bool = False  # the bookmark that ends the initial events


@dataclass(frozen=True, slots=True)
class Selector:
    """Which objects: empty is all."""

    labels: str = ""
    fields: str = ""


EVERYTHING = Selector()


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete. None leaves a choice to the server."""

    grace_seconds: int | None = None
    propagation: Literal["Foreground", "Background", "Orphan"] | None = None
    uid: str | None = None  # only this very object
    resource_version: str | None = None  # only this very version
    reason: str = ""  # Refloat's extension: kept in a pod's status.reason


class Watch(Protocol[T]):
    """A watch that one task reads, and any task may close.

    Closing ends the iteration of a waiting reader. A cancelled reader loses no
    event and may read on.
    """

    def __aiter__(self) -> "Watch[T]": ...

    async def __anext__(self) -> WatchEvent[T]: ...

    async def aclose(self) -> None: ...


class Client(Protocol):
    """The verbs. Each raises the errors of `client.errors`, and nothing else."""

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T: ...

    def list(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        limit: int = 500,
        resource_version: str = "",
    ) -> AsyncIterator[ListPage[T]]:
        """The objects in chunks; an empty namespace means all namespaces."""
        ...

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
        """The changes after a resourceVersion, with bookmarks, until the server ends the watch.

        With `initial_events` the present objects come first, then a bookmark
        with `initial_end`. Raises `Expired` when the resourceVersion is too old.
        `aclose()` ends the watch at once.
        """
        ...

    async def create(self, kind: Kind[T], obj: Object, *, namespace: str = "") -> T: ...

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
    ) -> T: ...

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        *,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> None: ...

    async def evict(
        self, name: str, *, namespace: str, options: DeleteOptions | None = None
    ) -> None: ...

    async def bind(self, name: str, node: str, *, namespace: str, uid: str = "") -> None: ...

    async def log(self, name: str, *, namespace: str, container: str, lines: int) -> str:
        """The last lines of a container's log, of these at most the first `MAX_LOG_BYTES`.

        Characters that are no UTF-8 are replaced.
        """
        ...

    async def finalize(self, namespace: Object) -> None:
        """Replace the finalizers of a namespace, which no patch can."""
        ...

    async def close(self) -> None: ...


class LocalServer(Protocol):
    """The embedded API server for the in-process client of one user.

    `apiserver.local_server` implements this interface. Bodies are encoded JSON
    in both directions; failures are `refloat.api.errors.StatusError`.
    """

    async def call(
        self, method: str, target: str, body: bytes = b"", content_type: str = "application/json"
    ) -> bytes:
        """One request that is not a watch; `target` is the path with the query."""
        ...

    def watch(self, target: str) -> AsyncGenerator[bytes, None]:
        """A watch: encoded events, a line each; an item has one or more lines."""
        ...

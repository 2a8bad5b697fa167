# SPDX-License-Identifier: Apache-2.0
"""The contract of every store, which `tests/contract` checks.

Revisions count from 1, one for each change of any key, without gaps. Reads
are immediate and show exactly what is durable. Writes return when they are
durable, and only then are they visible.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

# There are hundreds of thousands of entries and events, and no cycle leads
# through them: the garbage collector need not look at them, which at 20,000
# pods would take it 30 ms each time (gc=False).


class Entry(msgspec.Struct, gc=False, eq=False):
    """One version of one key. Only `derived` ever changes."""

    key: str
    value: bytes
    created: int  # the revision that created this key
    revision: int  # the revision of this version
    # Room for data that a reader derived from the value; the store never reads this.
    derived: Any = None


class Event(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One change: `entry` is the new version, or None for a deletion."""

    revision: int
    key: str
    entry: Entry | None
    previous: Entry | None


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a listing, in key order, as of one revision."""

    entries: list[Entry]
    revision: int
    more: bool  # keys remain after the last entry
    remaining: int  # how many


class Watch(Protocol):
    """A cursor on the log."""

    def __aiter__(self) -> AsyncIterator[list[Event]]:
        """Batches of changes in order, none twice, none left out.

        Readers may share a batch, so no reader changes a batch. A wait
        for the next one may be cancelled, and the iteration goes on after.
        """
        ...

    def close(self) -> None:
        """End the iteration, also one that is waiting."""
        ...


class Store(Protocol):
    """A revisioned key-value log with watch."""

    @property
    def revision(self) -> int:
        """The newest durable revision."""
        ...

    @property
    def compacted(self) -> int:
        """Changes up to this revision are forgotten; 0 when none is."""
        ...

    @property
    def size(self) -> int:
        """Bytes held: the file's, or the values' in memory."""
        ...

    @property
    def shortage(self) -> str:
        """Why only the most needed writes should come now; empty while there is room.

        The store itself refuses none before the disk does.
        """
        ...

    def get(self, key: str) -> Entry | None: ...

    def page(
        self, prefix: str, *, revision: int | None = None, after: str = "", limit: int = 0
    ) -> Page:
        """Keys with this prefix, after key `after`, at most `limit` (0: all).

        At `revision` it is as it was then: `Compacted` when that is no longer
        known, `FutureRevision` when it has not come yet.
        """
        ...

    def events(self, prefix: str, *, after: int, until: int | None = None) -> list[Event]:
        """The changes above revision `after`, up to and with `until`.

        `Compacted` when some of them are forgotten, `FutureRevision` when
        `after` has not come yet.
        """
        ...

    def watch(self, prefix: str, *, after: int) -> Watch:
        """The changes above revision `after`, those of the past and those to come.

        Raises as `events` does, at once or, when a reader is so slow that
        what it waits for is compacted, from its iteration.
        """
        ...

    async def create(self, key: str, value: bytes) -> Entry:
        """`Exists` when the key is there.

        Of this and all writes: a caller that is cancelled takes nothing back,
        the write still happens or fails as if it were awaited.
        """
        ...

    async def update(self, key: str, value: bytes, *, expected: int) -> Entry:
        """`Conflict` unless the key's version is at revision `expected`."""
        ...

    async def delete(self, key: str, *, expected: int) -> Entry:
        """The last version, under the revision of its deletion. `Conflict` as above."""
        ...

    async def compact(self, revision: int) -> None:
        """Forget the changes up to and with this revision.

        The state at the revision stays known; earlier states do not.
        """
        ...

    async def maintain(self, now: float) -> None:
        """Compact what is due at this monotonic time; call it every few seconds."""
        ...

    async def close(self) -> None:
        """Complete what was submitted, end all watches, and let go of the file.

        Writes that come later raise `StoreError`; reads still answer.
        """
        ...

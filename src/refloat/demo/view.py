# SPDX-License-Identifier: Apache-2.0
"""A watch that is shown live, and that a story can wait for.

A story goes on only when its watch has shown what the story did: so the lines
come in order, and what is shown is what the watch delivered, not what the
story knows anyway. The watch is of rows, as kubectl's own: each object comes
with the cells that a person would see of it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from refloat.demo import changes
from refloat.demo.client import Client
from refloat.demo.objects import Object

Tell: TypeAlias = Callable[[str], None]

EVENT_WIDTH = len("MODIFIED")


@dataclass(frozen=True, slots=True)
class Seen:
    """One event of a watch."""

    type: str
    object: Object
    cells: dict[str, Any]
    """What kubectl shows of it, by the name of the column."""

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def revision(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])

    @property
    def is_gone(self) -> bool:
        return self.type == "DELETED"


class View:
    """One collection, followed from a revision on."""

    def __init__(
        self, client: Client, path: str, revision: str, tell: Tell, news: asyncio.Condition
    ) -> None:
        """`news` is notified after each event; views of one story share it."""
        self.path = path
        self.revision = revision
        self.seen: list[Seen] = []
        self._client = client
        self._tell = tell
        self._last: dict[str, Seen] = {}
        self._news = news

    @property
    def events(self) -> list[tuple[str, str]]:
        """The type and resourceVersion of all events."""
        return [(each.type, each.object["metadata"]["resourceVersion"]) for each in self.seen]

    def last(self, name: str) -> Seen | None:
        """The last event of an object."""
        return self._last.get(name)

    async def follow(self) -> None:
        """Show events until cancelled."""
        columns: list[str] = []
        async for event in self._client.watch(self.path, self.revision, rows=True):
            table = event["object"]
            if named := table.get("columnDefinitions"):  # only the first event has them
                columns = [each["name"] for each in named]
            (row,) = table["rows"]
            cells = dict(zip(columns, row["cells"], strict=True))
            self._show(Seen(event["type"], row["object"], cells))
            async with self._news:
                self._news.notify_all()

    def _show(self, event: Seen) -> None:
        before = self._last.get(event.name)
        known = None if before is None or before.is_gone else before.object
        what = "" if event.is_gone else changes.describe(known, event.object)
        label = f"{event.object['kind'].lower()}/{event.name}"
        self._last[event.name] = event
        self.seen.append(event)
        self._tell(f"{event.type:<{EVENT_WIDTH}} {label}  {what}".rstrip())

    async def shown(self, obj: Object) -> Object:
        """Wait until this version of an object, or a later one, has been shown."""
        name, wanted = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        await self._until(lambda: name in self._last and self._last[name].revision >= wanted)
        return obj

    async def gone(self, name: str) -> None:
        """Wait until an object's deletion has been shown."""
        await self._until(lambda: name in self._last and self._last[name].is_gone)

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(holds)

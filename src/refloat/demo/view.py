# SPDX-License-Identifier: Apache-2.0
"""A watch that a demo shows live and waits for.

A demo goes on only when its watch has shown the last write. So the lines come in
order, and each line is an event of the watch. Like kubectl, the demo watches table
rows: each object comes with the cells of its columns.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from refloat.demo import changes
from refloat.demo.client import DemoClient
from refloat.demo.objects import Object

Show: TypeAlias = Callable[[str], None]

EVENT_WIDTH = len("MODIFIED")


@dataclass(frozen=True, slots=True)
class ViewEvent:
    """One event of a watch."""

    type: str
    object: Object
    cells: dict[str, Any]
    """The cells in kubectl's table, by the name of the column."""

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def revision(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])

    @property
    def is_gone(self) -> bool:
        return self.type == "DELETED"


class CollectionView:
    """A watch of one collection from a revision on."""

    def __init__(
        self, client: DemoClient, path: str, revision: str, show: Show, news: asyncio.Condition
    ) -> None:
        """`news` is notified after each event; views of one demo share it."""
        self.path = path
        self.revision = revision
        self.seen: list[ViewEvent] = []
        self._client = client
        self._show = show
        self._last: dict[str, ViewEvent] = {}
        self._news = news

    @property
    def events(self) -> list[tuple[str, str]]:
        """The type and resourceVersion of all events."""
        return [(event.type, event.object["metadata"]["resourceVersion"]) for event in self.seen]

    def last(self, name: str) -> ViewEvent | None:
        """The last event of an object."""
        return self._last.get(name)

    async def follow(self) -> None:
        """Show events until cancelled."""
        columns: list[str] = []
        async for event in self._client.watch(self.path, self.revision, rows=True):
            table = event["object"]
            if definitions := table.get("columnDefinitions"):  # in the first event only
                columns = [column["name"] for column in definitions]
            (row,) = table["rows"]
            cells = dict(zip(columns, row["cells"], strict=True))
            self._add(ViewEvent(event["type"], row["object"], cells))
            async with self._news:
                self._news.notify_all()

    def _add(self, event: ViewEvent) -> None:
        before = self._last.get(event.name)
        old = None if before is None or before.is_gone else before.object
        change = "" if event.is_gone else changes.describe(old, event.object)
        label = f"{event.object['kind'].lower()}/{event.name}"
        self._last[event.name] = event
        self.seen.append(event)
        self._show(f"{event.type:<{EVENT_WIDTH}} {label}  {change}".rstrip())

    async def shown(self, obj: Object) -> Object:
        """Wait until the watch has shown this version of an object, or a later one."""
        name, revision = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        await self._until(lambda: name in self._last and self._last[name].revision >= revision)
        return obj

    async def gone(self, name: str) -> None:
        """Wait until the watch has shown the deletion of an object."""
        await self._until(lambda: name in self._last and self._last[name].is_gone)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(condition)

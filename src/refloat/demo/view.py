# SPDX-License-Identifier: Apache-2.0
"""A watch that is shown live, and that a story can wait for.

A story goes on only when its watch has shown what the story did: so the lines
come in order, and what is shown is what the watch delivered, not what the
story knows anyway.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from refloat.demo import changes
from refloat.demo.client import Client

Tell: TypeAlias = Callable[[str], None]

EVENT_WIDTH = len("MODIFIED")


class View:
    """One collection, followed from a revision on."""

    def __init__(self, client: Client, path: str, revision: str, tell: Tell) -> None:
        self.path = path
        self.revision = revision
        self.events: list[tuple[str, str]] = []  # (type, resourceVersion)
        self._client = client
        self._tell = tell
        self._known: dict[str, dict[str, Any]] = {}
        self._gone: set[str] = set()
        self._changed = asyncio.Condition()

    async def follow(self) -> None:
        """Show events until cancelled."""
        async for event in self._client.watch(self.path, self.revision):
            self._show(event["type"], event["object"])
            async with self._changed:
                self._changed.notify_all()

    def _show(self, event_type: str, obj: dict[str, Any]) -> None:
        name = obj["metadata"]["name"]
        old = self._known.get(name)
        what = "" if event_type == "DELETED" else changes.describe(old, obj)
        label = f"{obj['kind'].lower()}/{name}"
        self._tell(f"{event_type:<{EVENT_WIDTH}} {label}  {what}".rstrip())
        self._known[name] = obj
        if event_type == "DELETED":
            self._gone.add(name)
        self.events.append((event_type, obj["metadata"]["resourceVersion"]))

    async def shown(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Wait until this version of an object, or a later one, has been shown."""
        name, wanted = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        await self._until(lambda: self._revision(name) >= wanted)
        return obj

    async def gone(self, name: str) -> None:
        """Wait until an object's deletion has been shown."""
        await self._until(lambda: name in self._gone)

    async def _until(self, done: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(done)

    def _revision(self, name: str) -> int:
        known = self._known.get(name)
        return int(known["metadata"]["resourceVersion"]) if known else 0

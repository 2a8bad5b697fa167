# SPDX-License-Identifier: Apache-2.0
"""Every implementation of the store, and the helpers of the two suites."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from refloat.store.compaction import Compaction
from refloat.store.contract import Event, Page, Store, Watch
from refloat.store.memory import MemoryStore
from refloat.store.sqlite import OpenSettings, SqliteStore

SMALL = Compaction(age=60.0, changes=20, superseded_bytes=1000)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store
    if request.param == "memory":
        opened = MemoryStore(SMALL)
    else:
        opened = await SqliteStore.open(tmp_path / "store.db", OpenSettings(compaction=SMALL))
    yield opened
    await opened.close()


async def fill(store: Store, *keys: str) -> None:
    for key in keys:
        await store.create(key, key.encode())


def keys(page: Page) -> list[str]:
    return [entry.key for entry in page.entries]


def told(events: list[Event]) -> list[tuple[int, str, bytes | None, bytes | None]]:
    return [
        (
            event.revision,
            event.key,
            event.entry.value if event.entry else None,
            event.previous.value if event.previous else None,
        )
        for event in events
    ]


async def read(watch: Watch, count: int) -> list[Event]:
    """So many changes from a watch."""
    events: list[Event] = []
    async for batch in watch:
        events += batch
        if len(events) >= count:
            break
    return events


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)

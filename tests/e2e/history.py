# SPDX-License-Identifier: Apache-2.0
"""Makes a stopped server forget its past, which would take it five minutes by itself."""

import asyncio
from pathlib import Path

from refloat.store.sqlite import SqliteStore


def forget(data_dir: Path) -> None:
    """Compact the state of this directory to its newest revision."""
    asyncio.run(_compact(data_dir / "state.db"))


async def _compact(state: Path) -> None:
    store = await SqliteStore.open(state)
    await store.compact(store.revision)
    await store.close()

# SPDX-License-Identifier: Apache-2.0
"""Makes a stopped server forget the past, which takes a running server five minutes."""

import asyncio
from pathlib import Path

from refloat.store.sqlite import SqliteStore


def forget(data_dir: Path) -> None:
    """Compact the state of this directory to the newest revision."""
    asyncio.run(_compact(data_dir / "state.db"))


async def _compact(state: Path) -> None:
    store = await SqliteStore.open(state)
    await store.compact(store.revision)
    await store.close()

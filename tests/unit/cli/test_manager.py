# SPDX-License-Identifier: Apache-2.0
"""`refloat manager` as a process; what it does with a cluster is in `tests/e2e`."""

import asyncio
from types import SimpleNamespace

import pytest

from refloat.app.manager import ClusterManagerSettings
from refloat.base import process
from refloat.cli import manager


class Managing:
    """Its caches are filled after a while, then it ends."""

    server = "https://here"
    endpoints = SimpleNamespace(addresses={"health": ("127.0.0.1", 1)})

    def __init__(self, *_: object) -> None:
        self.synced = False
        self.settled_at: bool | None = None

    async def run(self) -> None:
        await asyncio.sleep(0)
        self.synced = True
        while self.settled_at is None:
            await asyncio.sleep(0)

    def stop(self) -> None: ...


async def test_the_collector_leaves_alone_what_the_caches_hold_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = Managing()
    monkeypatch.setattr("refloat.app.manager.ClusterManager", lambda *_: running)
    monkeypatch.setattr(process, "settle", lambda: setattr(running, "settled_at", running.synced))
    await manager._run(ClusterManagerSettings())
    assert running.settled_at is True

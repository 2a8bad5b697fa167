# SPDX-License-Identifier: Apache-2.0
"""How benchmarks reach a cluster: as often as they like, many at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.client import kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import Settings

T = TypeVar("T")

# As many as a client has connections.
WRITERS = 32


@asynccontextmanager
async def connected(config: Path) -> AsyncIterator[HttpClient]:
    """A client of the cluster that this kubeconfig names, until the block ends."""
    access = kubeconfig.load([config])
    client = HttpClient(access, clock=RealClock(), rand=Rand(), settings=Settings(qps=0))
    try:
        yield client
    finally:
        await client.close()


async def each(items: Iterable[T], do: Callable[[T], Awaitable[Any]]) -> None:
    """Do it for each, some at a time."""
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            await do(item)

    await asyncio.gather(*(work() for _ in range(WRITERS)))

# SPDX-License-Identifier: Apache-2.0
"""The client with which explain, doctor and mcp read a cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.client.cluster_access import Access
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings


@asynccontextmanager
async def connect(access: Access, component: str) -> AsyncIterator[HttpClient]:
    """A user waits for the answer, so an error is shown at once: one attempt."""
    settings = ClientSettings(component=component, attempts=1)
    client = HttpClient(access, clock=RealClock(), rand=Rand(), settings=settings)
    try:
        yield client
    finally:
        await client.close()

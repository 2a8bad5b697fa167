# SPDX-License-Identifier: Apache-2.0
"""A world, or a server with nodes, for each test that asks for one."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.apiserver import cluster_of_nodes
from tests.unit.apiserver.cluster_of_nodes import Api
from tests.worlds import World, started


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = await started()
    yield made
    await made.dispatcher.close()
    await made.store.close()


@pytest.fixture
async def jumping() -> AsyncIterator[World]:
    """A world in which whoever sleeps wakes at once, later."""
    made = await started(jumps=True)
    yield made
    await made.dispatcher.close()
    await made.store.close()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with cluster_of_nodes.serving() as serving:
        yield serving

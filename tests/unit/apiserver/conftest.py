# SPDX-License-Identifier: Apache-2.0
"""A server with nodes for each test that asks for one."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.apiserver import cluster_of_nodes
from tests.unit.apiserver.cluster_of_nodes import NodesApi


@pytest.fixture
async def api() -> AsyncIterator[NodesApi]:
    async with cluster_of_nodes.serving() as serving:
        yield serving

# SPDX-License-Identifier: Apache-2.0
"""The node of tests with real processes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.agent.process.node import ProcessNode, node


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[ProcessNode]:
    """A running node in the folder of the test."""
    async with node(tmp_path) as running:
        yield running

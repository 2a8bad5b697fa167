# SPDX-License-Identifier: Apache-2.0
"""A world for each test that asks for one."""

from collections.abc import AsyncIterator

import pytest

from tests.apiserver_fixture import ServerFixture, started


@pytest.fixture
async def world() -> AsyncIterator[ServerFixture]:
    made = await started()
    yield made
    await made.dispatcher.close()
    await made.store.close()


@pytest.fixture
async def jumping() -> AsyncIterator[ServerFixture]:
    """A world in which whoever sleeps wakes at once, later."""
    made = await started(jumps=True)
    yield made
    await made.dispatcher.close()
    await made.store.close()

# SPDX-License-Identifier: Apache-2.0
"""Computations on large bodies and objects: which requests wait for which."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import make_mocked_request

from refloat.api import errors
from refloat.apiserver import limits
from refloat.apiserver.http_request import Exchange, Shares
from refloat.apiserver.identity import LazyArgument
from refloat.apiserver.limits import Limits
from tests.clocks import rest


@pytest.fixture
async def shares() -> AsyncIterator[Shares]:
    shares = Shares(Limits())
    yield shares
    shares.close()


def exchange(shares: Shares, user: str, *, urgent: bool = False) -> Exchange:
    request = Exchange(make_mocked_request("PUT", "/"), request_id="1", shares=shares)
    request.user, request.urgent = user, urgent
    return request


@pytest.mark.parametrize("size", [limits.LARGE_BYTES, limits.URGENT_BYTES])
async def test_an_urgent_request_does_not_wait_for_another_users_computation(
    shares: Shares, size: int
) -> None:
    end = threading.Event()
    task = asyncio.ensure_future(exchange(shares, "other").offload(size, end.wait))
    try:
        await rest()
        node = exchange(shares, "node", urgent=True)
        assert await node.offload(size, threading.get_ident) != threading.get_ident()
        assert not task.done()
    finally:
        end.set()
    await task


async def test_an_urgent_request_that_is_too_large_waits_like_any_other(shares: Shares) -> None:
    size = limits.URGENT_BYTES + 1
    await shares.worker.turns.take("other")
    node = exchange(shares, "node", urgent=True)
    task = asyncio.ensure_future(node.offload(size, int))
    await rest()
    assert not task.done()
    shares.worker.turns.give("other")
    assert await task == 0


async def test_nodes_take_turns_with_what_is_urgent(shares: Shares) -> None:
    order: list[str] = []
    await shares.urgent_worker.turns.take("a")
    tasks = [
        asyncio.ensure_future(
            exchange(shares, user, urgent=True).offload(limits.LARGE_BYTES, order.append, user)
        )
        for user in ("a", "a", "a", "b", "b")
    ]
    await rest()
    shares.urgent_worker.turns.give("a")
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "a", "b", "a"]


async def test_a_late_argument_is_read_on_the_loop_once_it_is_its_turn(shares: Shares) -> None:
    value, readers = "old", []

    def read() -> str:
        readers.append(threading.get_ident())
        return value

    await shares.worker.turns.take("other")
    late = LazyArgument(read, ())
    task = asyncio.ensure_future(exchange(shares, "a").offload(limits.LARGE_BYTES, str, late))
    await rest()
    value = "new"
    shares.worker.turns.give("other")
    assert await task == "new"
    assert readers == [threading.get_ident()]


async def test_a_turn_whose_argument_is_gone_is_given_back(shares: Shares) -> None:
    def read() -> None:
        raise errors.not_found("", "configmaps", "c")

    with pytest.raises(errors.StatusError):
        await exchange(shares, "a").offload(limits.LARGE_BYTES, str, LazyArgument(read, ()))
    assert shares.worker.turns.used == 0

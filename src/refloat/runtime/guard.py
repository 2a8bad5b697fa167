# SPDX-License-Identifier: Apache-2.0
"""A client that writes only while its process leads.

The check stands directly before each write, not once per reconcile: a process
can be frozen at every await, and its decisions from before may be outdated
afterwards. The check goes along with the call (`client.fence`), and the client
repeats the check before each request. A write that was already under way may
still land late; therefore controllers guard each write by uid or
resourceVersion, or make it idempotent.

Reads need no check: a process that does not lead may read.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from refloat.client import fence
from refloat.client.contract import Client
from refloat.client.forwarding import ForwardingClient

T = TypeVar("T")


class Guard(ForwardingClient):
    """A `Client` around another; `check` raises when this process must not write."""

    def __init__(self, client: Client, check: Callable[[], None]) -> None:
        super().__init__(client)
        self._check = check

    async def _write(self, verb: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        self._check()
        with fence.fenced(self._check):
            return await verb(*args, **options)

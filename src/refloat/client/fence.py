# SPDX-License-Identifier: Apache-2.0
"""A check right before each request on the wire.

A call waits before it is sent: for the client's own rate limit, for credentials,
for the next attempt. A process that loses its leadership meanwhile must not
write, so one check before the call is not enough. A guard registers its check
here for its task, and the transport calls the check right before it sends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("refloat_fence", default=None)


@contextmanager
def fenced(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` before every request inside the block; `check` raises to stop the request.

    The check of an outer fence runs first.
    """
    outer = _check.get()

    def both() -> None:
        if outer is not None:
            outer()
        check()

    token = _check.set(both)
    try:
        yield
    finally:
        _check.reset(token)


def check() -> None:
    """Raise what the fences around this call raise."""
    if (current := _check.get()) is not None:
        current()

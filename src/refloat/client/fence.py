# SPDX-License-Identifier: Apache-2.0
"""A check that stands directly before each request on the wire.

Between a caller's decision to write and the moment of sending lie waits: for
the client's own rate limit, for credentials, before the next try. A process
that must not write any more, because it lost its leadership meanwhile, has to
notice after them. So whoever guards a call leaves its check here, for the
task that makes the call, and the transport asks before it sends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("refloat_fence", default=None)


@contextmanager
def fenced(check: Callable[[], None]) -> Iterator[None]:
    """Ask `check` before every request that is sent inside; it raises to stop it.

    A fence around this one is asked first.
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
    """Raises what the fence around this call raises, if there is one."""
    if (ask := _check.get()) is not None:
        ask()

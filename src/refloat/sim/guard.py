# SPDX-License-Identifier: Apache-2.0
"""Refuses the real world while simulated code runs.

The loop refuses asyncio's own threads and sockets. This module refuses calls outside
asyncio: a real sleep, a thread, a socket, a process. Other threads, such as those of a
test runner, are free. The guard does not see names that were imported earlier (`from
time import sleep`), files, and waits for a lock.
"""

import os
import socket
import subprocess
import threading
import time  # noqa: TID251 - to refuse its sleep
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

Refuse: TypeAlias = Callable[[str], NoReturn]

# (owner, attribute, name in a report)
_GUARDED: tuple[tuple[Any, str, str], ...] = (
    (time, "sleep", "time.sleep"),
    (threading.Thread, "start", "threading.Thread.start"),
    (socket.socket, "__init__", "socket.socket"),
    (socket, "getaddrinfo", "socket.getaddrinfo"),
    (subprocess.Popen, "__init__", "subprocess.Popen"),
    (os, "fork", "os.fork"),
    (os, "system", "os.system"),
)


@contextmanager
def raised(refuse: Refuse) -> Iterator[None]:
    """Refuse the real world to this thread; `refuse` gets the name of the call."""
    thread = threading.get_ident()
    real = [getattr(owner, name) for owner, name, _ in _GUARDED]
    for (owner, name, what), original in zip(_GUARDED, real, strict=True):
        setattr(owner, name, _guarded(original, what, thread, refuse))
    try:
        yield
    finally:
        for (owner, name, _), original in zip(_GUARDED, real, strict=True):
            setattr(owner, name, original)


def _guarded(original: Any, what: str, thread: int, refuse: Refuse) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            refuse(what)
        return original(*args, **kwargs)

    return guarded

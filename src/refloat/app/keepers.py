# SPDX-License-Identifier: Apache-2.0
"""The keepers of nodes, as whoever runs their agents sees them.

A keeper holds a lock in the node's folder from its start until all of its
containers are gone. Whoever has that lock knows that nothing of the node runs,
and that nothing will; no other sign says as much.
"""

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from refloat.agent.keeper import peers, service
from refloat.app.socket_paths import reachable
from refloat.base.clock import Clock

# A keeper is gone some ten milliseconds after it is told to end.
_POLL_SECONDS = 0.02


def find(folder: Path) -> int:
    """The process that keeps the containers of a node; 0 if there is none that listens."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.setblocking(False)  # a keeper that is frozen, and asked often, would keep us waiting
        with reachable(folder / service.SOCKET) as name:
            line.connect(name)
        pid, uid = peers.credentials(line)
        return pid if uid in (0, os.geteuid()) else 0
    return 0


def all_below(nodes: Path) -> set[int]:
    """The keepers of all nodes that have a folder in this one."""
    if not nodes.is_dir():
        return set()
    return {find(each) for each in nodes.iterdir() if each.is_dir()} - {0}


def end(folder: Path) -> None:
    """Have a node's keeper end, and with it all its containers; if there is one."""
    if pid := find(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@contextlib.asynccontextmanager
async def none(folder: Path, clock: Clock) -> AsyncIterator[None]:
    """A time without keeper and containers: those that are there are ended first."""
    lock = _opened(folder)
    try:
        while not _is_taken(lock):
            end(folder)  # again: one that is only being started does not listen yet
            await clock.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(lock)


def _opened(folder: Path) -> int:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(folder / service.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

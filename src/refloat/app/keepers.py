# SPDX-License-Identifier: Apache-2.0
"""The keepers of nodes, for the process that runs the agents.

A keeper holds a lock in the node's folder from the start until all of its
containers are gone. A process with this lock knows that no container of the node
runs or will run; nothing else proves that.
"""

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from refloat.agent.keeper import peer_check, service
from refloat.app import private_files
from refloat.app.socket_paths import reachable
from refloat.base.clock import Clock

# A keeper is gone some ten milliseconds after the signal to end.
_POLL_SECONDS = 0.02


def find(folder: Path) -> int:
    """The process that keeps the containers of a node; 0 if no keeper listens."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.setblocking(False)  # a frozen keeper with a full backlog would block us
        with reachable(folder / service.SOCKET) as name:
            line.connect(name)
        pid, uid = peer_check.credentials(line)
        return pid if uid in (0, os.geteuid()) else 0
    return 0


def all_below(nodes: Path) -> set[int]:
    """The keepers of all nodes with a folder in this one."""
    if not nodes.is_dir():
        return set()
    return {find(each) for each in nodes.iterdir() if each.is_dir()} - {0}


def end(folder: Path) -> None:
    """End a node's keeper, if there is one, and with it all containers."""
    if pid := find(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@contextlib.asynccontextmanager
async def none(folder: Path, clock: Clock) -> AsyncIterator[None]:
    """End keeper and containers; none can start before the end of the block."""
    lock = private_files.open_lock(folder / service.LOCK)
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            end(folder)  # again: a keeper that has just started does not listen yet
            await clock.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(lock)

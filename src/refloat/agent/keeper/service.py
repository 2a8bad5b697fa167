# SPDX-License-Identifier: Apache-2.0
"""The keeper process: one for each folder, with a socket that only its owner can open."""

import binascii
import contextlib
import fcntl
import gc
import os
import signal
import socket
import sys

from refloat.agent.keeper import launch, mounts, syscalls
from refloat.agent.keeper.cgroups import CgroupTree
from refloat.agent.keeper.container import ContainerTable
from refloat.agent.keeper.loop import Loop
from refloat.agent.keeper.server import KeeperServer, purge

SOCKET, LOCK = "keeper.sock", "keeper.lock"

NO_GROUPS = "--no-groups"

READY, KEPT = b"ready", b"kept"
GOOD_WORDS = (READY, KEPT)
"""The keeper's output: this keeper listens, or another keeper has the folder."""


def node_mark(folder: str) -> str:
    """The prefix of the ids of a node's containers: a hash of the folder."""
    return f"{binascii.crc32(os.path.realpath(folder).encode()):08x}"


def main(folder: str, *options: str) -> int:
    if os.fork():
        os._exit(0)  # the caller waits only for the first process
    lock = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _print_once(KEPT)
        return 0
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    launch.allow_many_files()
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    # The agent may block signals, and its children inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    mark = node_mark(folder)
    cgroups = None if NO_GROUPS in options else CgroupTree.make(mark)
    purge(mark, cgroups)
    _serve(folder, cgroups)
    if cgroups is not None:
        cgroups.close()
    return 0


def _serve(folder: str, cgroups: CgroupTree | None) -> None:
    listener = _listen(f"{folder}/{SOCKET}")
    server: KeeperServer | None = None

    def on_signal(number: int) -> None:
        assert server is not None
        server.reap()
        if number == signal.SIGTERM:
            server.close()

    loop = Loop(on_signal, lambda error: sys.excepthook(type(error), error, error.__traceback__))
    view = mounts.probe()
    table = ContainerTable(loop, cgroups, view, can_protect=mounts.can_protect(view))
    server = KeeperServer(loop, table, listener)
    gc.freeze()  # so that forks share these pages
    _print_once(READY)
    loop.run()
    server.finish()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{folder}/{SOCKET}")


def _listen(path: str) -> socket.socket:
    """Listen at a path of any length, with rights for the owner only."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
    before = os.umask(0o177)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.umask(before)
        os.close(folder)
    listener.listen(16)
    return listener


def _print_once(word: bytes) -> None:
    """Write to the standard output and close it; the reader may be dead."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, word)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 1)

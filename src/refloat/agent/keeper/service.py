# SPDX-License-Identifier: Apache-2.0
"""The keeper as a process: one for each folder, with a socket that only its owner can open."""

import binascii
import contextlib
import fcntl
import gc
import os
import signal
import socket
import sys

from refloat.agent.keeper import launch, linux, mounts
from refloat.agent.keeper.container import Keeping
from refloat.agent.keeper.groups import Groups
from refloat.agent.keeper.loop import Loop
from refloat.agent.keeper.server import Server, purge

SOCKET, LOCK = "keeper.sock", "keeper.lock"

NO_GROUPS = "--no-groups"

READY, KEPT = b"ready", b"kept"
GOOD_WORDS = (READY, KEPT)
"""What it says on its standard output: that it listens, or that another does."""


def node_mark(folder: str) -> str:
    """With what the ids of a node's containers begin: the same for the same folder."""
    return f"{binascii.crc32(os.path.realpath(folder).encode()):08x}"


def main(folder: str, *options: str) -> int:
    if os.fork():
        os._exit(0)  # whoever started this has nothing to wait for
    lock = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say(KEPT)
        return 0
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    launch.allow_many_files()
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    # An agent is started with some held back, and so would be its keeper, for ever.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    mark = node_mark(folder)
    cgroups = None if NO_GROUPS in options else Groups.make(mark)
    purge(mark, cgroups)
    _serve(folder, cgroups)
    if cgroups is not None:
        cgroups.close()
    return 0


def _serve(folder: str, cgroups: Groups | None) -> None:
    listener = _listen(f"{folder}/{SOCKET}")
    server: Server | None = None

    def on_signal(number: int) -> None:
        assert server is not None
        server.reap()
        if number == signal.SIGTERM:
            server.close()

    loop = Loop(on_signal, _report)
    server = Server(loop, _keeping(loop, cgroups), listener)
    gc.freeze()  # a fork shares what is never looked at again
    _say(READY)
    loop.run()
    server.finish()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{folder}/{SOCKET}")


def _keeping(loop: Loop, cgroups: Groups | None) -> Keeping:
    view = mounts.probe()
    return Keeping(loop, cgroups, view, can_protect=mounts.can_protect(view))


def _listen(path: str) -> socket.socket:
    """Under another name until only its owner can open it; a path of any length."""
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


def _say(word: bytes) -> None:
    """On the standard output, which is then closed; whoever waited may have been killed."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, word)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 1)


def _report(error: Exception) -> None:
    sys.excepthook(type(error), error, error.__traceback__)

# SPDX-License-Identifier: Apache-2.0
"""Files below a folder that a container can write, opened by descriptor.

A container can replace any part of a path by a symbolic link between a check and a
use. So agent and keeper never check a path and use the path later. They hold a
descriptor of the folder, open files below without following links, and use the new
descriptor.

`openat2` does that in one system call. On kernels before 5.6, and under filters that
refuse the call, `walk` does the same: one component at a time, each opened with
O_NOFOLLOW in its folder.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from refloat.agent.keeper import syscalls

FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
ANY = os.O_PATH | os.O_CLOEXEC

_RESOLVE = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS | syscalls.RESOLVE_NO_MAGICLINKS

# The errors of a kernel, or of a filter of system calls, without openat2.
_UNKNOWN_CALL = (errno.ENOSYS, errno.EPERM)

# openat2 returns EAGAIN if a rename elsewhere raced with the look-up of "..". These paths
# have no "..", but the kernel may still return EAGAIN. Then the walk decides.
_UNDECIDED = (errno.EAGAIN,)


def components(path: str) -> list[str]:
    """The parts of a relative path; raises `OSError` for one that leads up or is absolute."""
    parts = [each for each in path.split("/") if each not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise OSError(errno.EXDEV, "leads out of its folder", path)
    return parts


def open_below(folder: int, path: str, flags: int = ANY, *, same_mount: bool = False) -> int:
    """Open what is at a path below a folder; raises `OSError` (ELOOP) at a symbolic link.

    With `same_mount` a mount on the way is an error too (EXDEV).
    """
    parts = components(path)
    resolve = _RESOLVE | (syscalls.RESOLVE_NO_XDEV if same_mount else 0)
    try:
        return syscalls.openat2(folder, "/".join(parts) or ".", flags | os.O_CLOEXEC, resolve)
    except OSError as error:
        if error.errno not in (*_UNKNOWN_CALL, *_UNDECIDED):
            raise
    return walk(folder, parts, flags, same_mount=same_mount)


def walk(folder: int, parts: list[str], flags: int = ANY, *, same_mount: bool = False) -> int:
    """The same without openat2."""
    device = os.fstat(folder).st_dev
    at = os.open(".", FOLDER, dir_fd=folder)
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        with closing(at):
            at = _step(at, part, flags if is_last else FOLDER)
        if same_mount and os.fstat(at).st_dev != device:
            os.close(at)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
    if parts:
        return at
    with closing(at):
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=at)


def _step(folder: int, name: str, flags: int) -> int:
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise
    if stat.S_ISLNK(os.fstat(opened).st_mode):  # with O_PATH, the link itself was opened
        os.close(opened)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return opened


def make_folders(folder: int, path: str, mode: int, *, same_mount: bool = False) -> int:
    """Open a path below a folder; create missing folders with this mode."""
    at = os.open(".", FOLDER, dir_fd=folder)
    parts = components(path)
    for number, part in enumerate(parts):
        flags = ANY if number == len(parts) - 1 else FOLDER
        with closing(at):
            with contextlib.suppress(FileNotFoundError):
                at = open_below(at, part, flags, same_mount=same_mount)
                continue
            with contextlib.suppress(FileExistsError):  # another process may have been quicker
                os.mkdir(part, 0o700, dir_fd=at)
                # Readable: the mode of a descriptor with O_PATH alone cannot be changed.
                readable = os.O_RDONLY | os.O_DIRECTORY
                with closing(open_below(at, part, readable, same_mount=same_mount)) as new:
                    # If another process put its own folder here meanwhile, that keeps its mode.
                    if os.fstat(new).st_uid == os.geteuid():
                        os.fchmod(new, mode)
            at = open_below(at, part, flags, same_mount=same_mount)
    return at


def make_file(folder: int, name: str, mode: int) -> None:
    """Create an empty file, unless the name is taken."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError), closing(os.open(name, flags, mode, dir_fd=folder)):
        return


def by_descriptor(descriptor: int) -> str:
    """A path of this process for the file of a descriptor, even after a rename."""
    return f"/proc/self/fd/{descriptor}"


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)

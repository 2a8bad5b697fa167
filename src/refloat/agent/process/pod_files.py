# SPDX-License-Identifier: Apache-2.0
"""Removes and measures folders that a container could write, by descriptor.

A container may create links, folders that their owner cannot read, and trees deeper
than the longest path, even during the removal. So this module follows no link, crosses
no mount and uses no path twice.
"""

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path

from refloat.agent.keeper import paths
from refloat.agent.keeper.paths import closing

# The most folders that a removal has open. Deeper folders move to the top first.
MAX_OPEN = 64

# Rounds over a tree. Each goes MAX_OPEN folders deep, so a tree may be 640,000 deep; a
# process that the kernel has not ended yet cannot keep the agent busy for ever.
_MAX_ROUNDS = 10_000

# Names in one read: a folder may have millions.
_MAX_NAMES = 10_000

_LIST = os.O_RDONLY | os.O_DIRECTORY

_BLOCK = 512  # of st_blocks


def remove(path: Path) -> None:
    """Remove a folder and all below; raises `OSError` for the first entry that stays."""
    try:
        parent = os.open(path.parent, paths.FOLDER | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    with closing(parent):
        try:
            top = _open_folder(parent, path.name)
        except FileNotFoundError:
            return
        with closing(top):
            _Removal(top).run()
        os.rmdir(path.name, dir_fd=parent)


class _Removal:
    """The removal of one tree."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._moved = self._removed = 0
        self._error: OSError | None = None

    def run(self) -> None:
        for _ in range(_MAX_ROUNDS):
            before = self._removed + self._moved
            self._empty(self._top, depth=1)
            if not _names(self._top):
                return
            if self._removed + self._moved == before:
                break
        raise self._error or OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    def _empty(self, folder: int, depth: int) -> None:
        names = _names(folder)
        while names:
            before = self._removed + self._moved
            for name in names:
                self._remove(folder, name, depth)
            is_stuck = self._removed + self._moved == before
            names = [] if is_stuck else _names(folder)

    def _remove(self, parent: int, name: str, depth: int) -> None:
        try:
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                self._removed += 1
            elif depth >= MAX_OPEN:
                # To the top, for the next round: a deep tree would use up all descriptors.
                _make_writable(parent, name)
                moved = f".moved-{self._moved}"
                os.rename(name, moved, src_dir_fd=parent, dst_dir_fd=self._top)
                self._moved += 1
            else:
                with closing(_open_folder(parent, name)) as folder:
                    self._empty(folder, depth + 1)
                os.rmdir(name, dir_fd=parent)
                self._removed += 1
        except FileNotFoundError:
            return  # another process removed the entry
        except OSError as error:
            self._error = self._error or error  # later errors follow from the first


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [each.name for each in itertools.islice(entries, _MAX_NAMES)]


def _open_folder(parent: int, name: str) -> int:
    """Open a folder for reading and changes; raises `OSError` at a link or a mount."""
    try:
        opened = paths.open_below(parent, name, _LIST, same_mount=True)
    except PermissionError:
        _make_writable(parent, name)
        opened = paths.open_below(parent, name, _LIST, same_mount=True)
    if os.geteuid() != 0 and stat.S_IMODE(os.fstat(opened).st_mode) & 0o700 != 0o700:
        os.fchmod(opened, 0o700)  # a container may take rights from its own folders
    return opened


def _make_writable(parent: int, name: str) -> None:
    """Give the owner all rights of a folder; root needs no rights."""
    if os.geteuid() == 0:
        return
    with closing(paths.open_below(parent, name, paths.FOLDER, same_mount=True)) as folder:
        if os.fstat(folder).st_uid == os.geteuid():
            Path(paths.by_descriptor(folder)).chmod(0o700)


def size(parent: int, name: str) -> int:
    """The bytes on disk below a folder, as `du` counts; 0 if the folder does not exist.

    Files below the longest possible path (4096 bytes) do not count.
    """
    try:
        top = paths.open_below(parent, name, _LIST)
    except OSError:
        return 0
    total, waiting = 0, ["."]
    with closing(top):
        while waiting:
            inner = waiting.pop()
            with (
                contextlib.suppress(OSError),
                closing(paths.open_below(top, inner, _LIST, same_mount=True)) as folder,
                os.scandir(folder) as entries,
            ):
                for each in entries:
                    with contextlib.suppress(OSError):
                        total += each.stat(follow_symlinks=False).st_blocks * _BLOCK
                        if each.is_dir(follow_symlinks=False):
                            waiting.append(f"{inner}/{each.name}")
    return total

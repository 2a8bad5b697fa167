# SPDX-License-Identifier: Apache-2.0
"""Removal and measurement of folders that a container could write, by descriptor.

A container may have left, or may still be making, links, folders that its owner
cannot read, and trees deeper than a path can be long. Nothing here follows a link,
crosses a mount, or uses a path twice.
"""

import contextlib
import errno
import itertools
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from refloat.agent.keeper import paths
from refloat.agent.keeper.paths import closing

# So many folders are open at once while a tree is removed. What is deeper is moved up.
MAX_OPEN = 64

# Rounds over a tree. Each goes MAX_OPEN folders deep, so a tree may be 640,000 deep; a
# process that the kernel has not ended yet cannot keep the agent busy for ever.
_MAX_ROUNDS = 10_000

# Names that are read at once: a folder may have millions.
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
    """One tree's."""

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
            if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                self._remove_folder(parent, name, depth)
            else:
                os.unlink(name, dir_fd=parent)
                self._removed += 1
        except FileNotFoundError:
            return  # it went by itself
        except OSError as error:
            self._error = self._error or error  # what follows from it is no news

    def _remove_folder(self, parent: int, name: str, depth: int) -> None:
        if depth >= MAX_OPEN:
            self._move_up(parent, name)
            return
        with closing(_open_folder(parent, name)) as folder:
            self._empty(folder, depth + 1)
        os.rmdir(name, dir_fd=parent)
        self._removed += 1

    def _move_up(self, parent: int, name: str) -> None:
        """To the top, for the next round: else a deep tree would use up all descriptors."""
        _make_writable(parent, name)
        moved = f".moved-{self._moved}"
        os.rename(name, moved, src_dir_fd=parent, dst_dir_fd=self._top)
        self._moved += 1


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [each.name for each in itertools.islice(entries, _MAX_NAMES)]


def _open_folder(parent: int, name: str) -> int:
    """A folder that can be listed and changed; raises `OSError` at a link or a mount."""
    try:
        opened = paths.open_below(parent, name, _LIST, same_mount=True)
    except PermissionError:
        _make_writable(parent, name)
        opened = paths.open_below(parent, name, _LIST, same_mount=True)
    if os.geteuid() != 0 and stat.S_IMODE(os.fstat(opened).st_mode) & 0o700 != 0o700:
        os.fchmod(opened, 0o700)  # a container may have shut its own folders
    return opened


def _make_writable(parent: int, name: str) -> None:
    """Give the owner all rights of a folder; root needs none."""
    if os.geteuid() == 0:
        return
    with closing(paths.open_below(parent, name, paths.FOLDER, same_mount=True)) as folder:
        if os.fstat(folder).st_uid == os.geteuid():
            Path(paths.by_descriptor(folder)).chmod(0o700)


@dataclass(slots=True)
class _Sizes:
    total: int = 0
    waiting: list[str] = field(default_factory=lambda: ["."])


def size(parent: int, name: str) -> int:
    """The bytes on disk below a folder, as `du` counts; 0 if it is none.

    What is deeper than a path can be long (4096 bytes) is not counted.
    """
    try:
        top = paths.open_below(parent, name, _LIST)
    except OSError:
        return 0
    counted = _Sizes()
    with closing(top):
        while counted.waiting:
            inner = counted.waiting.pop()
            with (
                contextlib.suppress(OSError),
                closing(paths.open_below(top, inner, _LIST, same_mount=True)) as folder,
            ):
                _count(folder, inner, counted)
    return counted.total


def _count(folder: int, inner: str, counted: _Sizes) -> None:
    with os.scandir(folder) as entries:
        for each in entries:
            with contextlib.suppress(OSError):
                counted.total += each.stat(follow_symlinks=False).st_blocks * _BLOCK
                if each.is_dir(follow_symlinks=False):
                    counted.waiting.append(f"{inner}/{each.name}")

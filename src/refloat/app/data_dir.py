# SPDX-License-Identifier: Apache-2.0
"""The data directory of an embedded cluster, checked before anything in it counts.

Another user must not choose the administrator's token, the authority's key or
the objects in the store. In a folder that all may write to, such as /tmp,
another user can make the data directory first and put files into it. So a
server starts only in a directory of its own user, in which no other user can
write, and only with files of this kind.
"""

import os
from pathlib import Path

from refloat.app import files
from refloat.base.errors import UsageError

# Not tokens and keys: those are checked where they are read.
_STORE = ("state.db", "state.db-wal", "state.db.lock", "state.db.newest", "state.db.reserve")

_FOLDERS = ("pki", "nodes")


def prepare(folder: Path, *, user: int | None = None) -> None:
    """Have the directory; `UsageError` if another user has a hand in it."""
    _check_link(folder, user)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        files.check_opened_folder(opened, folder, user=user)
        files.check_parents(opened, folder)
    except UsageError as error:
        raise UsageError(f"--data-dir: {error}") from error
    finally:
        os.close(opened)
    for name in _FOLDERS:
        if os.path.lexists(folder / name):
            files.check_folder(folder / name, user=user)
    for name in _STORE:
        _check_store(folder / name, user)


def _check_link(folder: Path, user: int | None) -> None:
    """A link of our own, or root's, is a choice; one of another user is a trap."""
    try:
        owner = os.lstat(folder).st_uid
    except OSError:
        return
    if folder.is_symlink() and owner not in (0, os.geteuid() if user is None else user):
        raise UsageError(f"--data-dir: {folder} is a symbolic link of another user; remove it")


def _check_store(path: Path, user: int | None) -> None:
    """Without opening it to read: to close that would drop SQLite's locks (POSIX)."""
    try:
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        files.check_file(file, path, secret=False, user=user)
    finally:
        os.close(file)

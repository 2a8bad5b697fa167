# SPDX-License-Identifier: Apache-2.0
"""Checks the data directory of an embedded cluster before the cluster uses any file there.

Another user must not choose the administrator's token, the authority's key or
the objects in the store. In a folder that all may write to, such as /tmp,
another user can make the data directory first and put files into it. So a
server starts only in a directory of its own user, in which no other user can
write, and only with files of this kind.
"""

import os
from contextlib import suppress
from pathlib import Path

from refloat.app import private_files
from refloat.base.errors import UsageError

# Without tokens and keys, which are checked when they are read.
_STORE = ("state.db", "state.db-wal", "state.db.lock", "state.db.newest", "state.db.reserve")

_FOLDERS = ("pki", "nodes")


def prepare(folder: Path, *, user: int | None = None) -> None:
    """Make or check the directory; `UsageError` if another user can write in it."""
    # A link of our own, or of root, is allowed.
    own = os.geteuid() if user is None else user
    if folder.is_symlink() and folder.lstat().st_uid not in (0, own):
        raise UsageError(f"--data-dir: {folder} is a symbolic link of another user; remove it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        private_files.check_opened_folder(opened, folder, user=user)
        private_files.check_parents(opened, folder)
    except UsageError as error:
        raise UsageError(f"--data-dir: {error}") from error
    finally:
        os.close(opened)
    for name in _FOLDERS:
        if os.path.lexists(folder / name):
            private_files.check_folder(folder / name, user=user)
    for name in _STORE:
        path = folder / name
        # Not open for reading: the close would drop SQLite's locks (POSIX).
        with suppress(FileNotFoundError), private_files.descriptor(path, os.O_PATH) as file:
            private_files.check_file(file, path, secret=False, user=user)

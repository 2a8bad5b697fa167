# SPDX-License-Identifier: Apache-2.0
"""The small files of a data directory: whole or absent, and their owner's alone.

Tokens and keys decide who is the administrator. So a file counts only if no
other user can have put it there. All checks look at an open descriptor: what
a path means may change between a look and the opening.
"""

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from refloat.base.errors import UsageError

# Larger than any token, key or certificate; what is larger is none.
MAX_BYTES = 64 * 1024

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 in one step: a crash leaves the old one or the new one.

    A file that says the same already stays, so a full disk does not keep a server from a restart.
    """
    if _says(path, content):
        return
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    with _opened(path.parent, os.O_DIRECTORY) as folder:
        os.fsync(folder)


def _says(path: Path, content: bytes) -> bool:
    with contextlib.suppress(OSError), _opened(path) as file:
        found = os.fstat(file)
        is_ours = found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o600
        return is_ours and os.read(file, len(content) + 1) == content
    return False


def read(path: Path, *, secret: bool, user: int | None = None) -> bytes:
    """What a file says that only this user (by default ours) can have written.

    `FileNotFoundError` where there is none, `UsageError` where another user
    could have put it there or, if it is a secret, could have read it.
    """
    try:
        with _opened(path) as file:
            check_file(file, path, secret=secret, user=user)
            content = os.read(file, MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"{_reason(path, error)}; remove it, and it is made anew") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES} bytes; remove it, and it is made anew")
    return content


def _reason(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return f"{path} is a symbolic link, which another user may have put there"
    return f"cannot read {path}: {error.strerror}"


def check_file(file: int, path: Path, *, secret: bool, user: int | None = None) -> None:
    """Refuse an open file that another user may have put there."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is not a regular file; remove it, and it is made anew")
    _check_owner(found, path, user)
    if found.st_nlink > 1:
        raise UsageError(
            f"{path} has {found.st_nlink} names (hard links), so it may be another user's file; "
            "remove it, and it is made anew"
        )
    if found.st_mode & (_OTHERS if secret else _OTHERS_WRITE):
        what = "read or change" if secret else "change"
        raise UsageError(
            f"other users may {what} {path} (mode {stat.S_IMODE(found.st_mode):04o}); "
            f"if none did, `chmod 600 {path}`, else remove it"
        )


def check_folder(folder: Path, *, user: int | None = None) -> None:
    """Refuse a folder in which another user may put files."""
    try:
        with _opened(folder, os.O_DIRECTORY) as opened:
            check_opened_folder(opened, folder, user=user)
    except OSError as error:
        if folder.is_symlink():
            raise UsageError(f"{folder} is a symbolic link; put a folder in its place") from error
        raise UsageError(f"cannot use the folder {folder}: {error.strerror}") from error


def check_opened_folder(opened: int, folder: Path, *, user: int | None = None) -> None:
    found = os.fstat(opened)
    _check_owner(found, folder, user)
    if found.st_mode & _OTHERS_WRITE:
        raise UsageError(
            f"other users may put files into {folder} (mode {stat.S_IMODE(found.st_mode):04o}); "
            f"if none did, `chmod 700 {folder}`, else use another directory"
        )


def check_parents(opened: int, folder: Path) -> None:
    """Refuse a folder that any user may move away, and put another one in its place.

    It goes up from the open folder, whatever links its path has.
    """
    here, below = os.open("..", os.O_PATH | os.O_CLOEXEC, dir_fd=opened), os.fstat(opened)
    try:
        while not os.path.samestat(found := os.fstat(here), below):
            if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
                parent = Path(f"/proc/self/fd/{here}").readlink()
                raise UsageError(
                    f"every user may replace {folder}, because {parent} is writable by all (mode "
                    f"{stat.S_IMODE(found.st_mode):04o}); `chmod o-w {parent}`, or use another "
                    "directory"
                )
            above = os.open("..", os.O_PATH | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here, below = above, found
    finally:
        os.close(here)


def _check_owner(found: os.stat_result, path: Path, user: int | None) -> None:
    ours = os.geteuid() if user is None else user
    if found.st_uid != ours:
        raise UsageError(
            f"{path} belongs to {_name(found.st_uid)} and this process runs as {_name(ours)}, "
            "so another user may know or choose what is in it; use another data directory"
        )


def _name(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"


@contextlib.contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    """Open to read, no link and without waiting for the other end of a pipe."""
    always = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, always | flags)
    try:
        yield file
    finally:
        os.close(file)

# SPDX-License-Identifier: Apache-2.0
"""The small files of a data directory: complete or absent, and for their owner only.

Tokens and keys decide who is the administrator. So a file counts only if no other
user can have written it. All checks use an open descriptor, because a path may
lead to another file between check and opening.
"""

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from refloat.base.errors import UsageError

# Larger than any token, key or certificate.
MAX_BYTES = 64 * 1024

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def write(path: Path, content: bytes) -> None:
    """Write a file of mode 0600 in one step: after a crash there is the old or the new file.

    A file with the same content stays, so a full disk does not prevent a restart of the server.
    """
    with contextlib.suppress(OSError), descriptor(path) as current:
        status = os.fstat(current)
        is_ours = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o600
        if is_ours and os.read(current, len(content) + 1) == content:
            return
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    with descriptor(path.parent, os.O_DIRECTORY) as folder:
        os.fsync(folder)


def open_lock(path: Path) -> int:
    """Open a file for `flock`; make the file and its folder if they are missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def read(path: Path, *, secret: bool, user: int | None = None) -> bytes:
    """The content of a file that only this user (by default ours) can have written.

    `FileNotFoundError` without the file; `UsageError` if another user could have
    written the file or, if the file is secret, could have read it.
    """
    try:
        with descriptor(path) as file:
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
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{path} is not a regular file; remove it, and it is made anew")
    _check_owner(status, path, user)
    if status.st_nlink > 1:
        raise UsageError(
            f"{path} has {status.st_nlink} names (hard links), so it may be another user's file; "
            "remove it, and it is made anew"
        )
    if status.st_mode & (_OTHERS if secret else _OTHERS_WRITE):
        what = "read or change" if secret else "change"
        raise UsageError(
            f"other users may {what} {path} (mode {stat.S_IMODE(status.st_mode):04o}); "
            f"if none did, `chmod 600 {path}`, else remove it"
        )


def check_folder(folder: Path, *, user: int | None = None) -> None:
    """Refuse a folder in which another user may put files."""
    try:
        with descriptor(folder, os.O_DIRECTORY) as file:
            check_opened_folder(file, folder, user=user)
    except OSError as error:
        if folder.is_symlink():
            raise UsageError(f"{folder} is a symbolic link; put a folder in its place") from error
        raise UsageError(f"cannot use the folder {folder}: {error.strerror}") from error


def check_opened_folder(opened: int, folder: Path, *, user: int | None = None) -> None:
    status = os.fstat(opened)
    _check_owner(status, folder, user)
    if status.st_mode & _OTHERS_WRITE:
        raise UsageError(
            f"other users may put files into {folder} (mode {stat.S_IMODE(status.st_mode):04o}); "
            f"if none did, `chmod 700 {folder}`, else use another directory"
        )


def check_parents(opened: int, folder: Path) -> None:
    """Refuse a folder that any user may move away and replace.

    The check goes up from the open folder, and follows no links of the path.
    """
    here, below = os.open("..", os.O_PATH | os.O_CLOEXEC, dir_fd=opened), os.fstat(opened)
    try:
        while not os.path.samestat(status := os.fstat(here), below):
            if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
                parent = Path(f"/proc/self/fd/{here}").readlink()
                raise UsageError(
                    f"every user may replace {folder}, because {parent} is writable by all (mode "
                    f"{stat.S_IMODE(status.st_mode):04o}); `chmod o-w {parent}`, or use another "
                    "directory"
                )
            above = os.open("..", os.O_PATH | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here, below = above, status
    finally:
        os.close(here)


def _check_owner(status: os.stat_result, path: Path, user: int | None) -> None:
    ours = os.geteuid() if user is None else user
    if status.st_uid != ours:
        raise UsageError(
            f"{path} belongs to {_name(status.st_uid)} and this process runs as {_name(ours)}, "
            "so another user may know or choose what is in it; use another data directory"
        )


def _name(user: int) -> str:
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"


@contextlib.contextmanager
def descriptor(path: Path, flags: int = 0) -> Iterator[int]:
    """Open a file for reading; follows no link and waits for no other end of a pipe."""
    always = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = os.open(path, always | flags)
    try:
        yield file
    finally:
        os.close(file)

# SPDX-License-Identifier: Apache-2.0
"""The paths of the machine that pods name as `hostPath`, and their types.

A user who may create such a pod may name any path. But for some types the agent creates
the path with the agent's rights, and a container that can write a parent folder could
put a link there. So when the agent creates a path, it follows no link of another user.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

from refloat.agent.keeper import paths
from refloat.agent.keeper.paths import closing
from refloat.agent.runtime import StartError
from refloat.api.meta import Object

_IS_KIND = {
    "Directory": (stat.S_ISDIR, "directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "directory"),
    "File": (stat.S_ISREG, "file"),
    "FileOrCreate": (stat.S_ISREG, "file"),
    "Socket": (stat.S_ISSOCK, "socket file"),
    "CharDevice": (stat.S_ISCHR, "character device"),
    "BlockDevice": (stat.S_ISBLK, "block device"),
}

_FOLDER_MODE, _FILE_MODE = 0o755, 0o644  # a kubelet's

_MAX_LINKS = 40  # the kernel's limit


def find(volume: str, host: Object) -> Path:
    """The path of a volume, created if the type says so; raises `StartError`."""
    path, kind = Path(host["path"]), host.get("type") or ""
    try:
        if kind.endswith("OrCreate") and not path.exists():
            _make(str(path), folder=kind == "DirectoryOrCreate")
        with closing(os.open(path, paths.ANY)) as opened:
            mode = os.fstat(opened).st_mode
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            raise _failed(volume, f"{path}: {(error.strerror or '').lower()}") from error
        mode = 0
    is_kind, name = _IS_KIND.get(kind, (bool, "path"))
    if not is_kind(mode):
        raise _failed(volume, f"hostPath type check failed: {path} is not a {name}")
    return path


def _failed(volume: str, why: str) -> StartError:
    return StartError(f'MountVolume.SetUp failed for volume "{volume}" : {why}', reason="")


def _make(path: str, *, folder: bool) -> None:
    """Create a folder or an empty file, and the missing folders above."""
    above, name = os.path.split(os.path.normpath(path))
    inner = f"{above}/{name}" if folder else above
    waiting, links = inner.split("/"), 0
    trail = [os.open("/", paths.FOLDER)]
    try:
        while waiting:
            part = waiting.pop(0)
            link = _step(trail, part)
            if link is None:
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), inner)
            if link.startswith("/"):
                _close(trail, keep=1)
            waiting = link.split("/") + waiting
        with closing(os.open(".", paths.FOLDER, dir_fd=trail[-1])) as parent:
            if not folder:
                paths.make_file(parent, name, _FILE_MODE)
    finally:
        _close(trail, keep=0)


def _step(trail: list[int], part: str) -> str | None:
    """Open the next part of a path. Returns the target instead if the part is a link.

    Raises `OSError` for a link of another user.
    """
    if part == "..":
        _close(trail, keep=max(1, len(trail) - 1))
        return None
    if part in ("", "."):
        return None
    with (
        contextlib.suppress(FileNotFoundError),
        closing(os.open(part, paths.ANY | os.O_NOFOLLOW, dir_fd=trail[-1])) as link,
    ):
        info = os.fstat(link)
        if stat.S_ISLNK(info.st_mode):
            if info.st_uid not in (0, os.geteuid()):
                text = f"{part} is a symbolic link of user {info.st_uid}"
                raise OSError(errno.ELOOP, text, part)
            return os.readlink("", dir_fd=link)
    trail.append(paths.make_folders(trail[-1], part, _FOLDER_MODE))
    return None


def _close(trail: list[int], *, keep: int) -> None:
    for each in trail[keep:]:
        os.close(each)
    del trail[keep:]

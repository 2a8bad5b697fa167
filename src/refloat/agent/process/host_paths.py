# SPDX-License-Identifier: Apache-2.0
"""The paths of the machine that pods name as `hostPath`, and their types.

A path is used as it is: whoever may create such a pod may name any. But what a type
has the agent make is made with the agent's rights, and a container that can write a
folder on the way could put a link there. So where something has to be made, no link
is followed that another user made.
"""

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

_MAX_LINKS = 40  # as the kernel has it


def find(volume: str, host: Object) -> Path:
    """The path of a volume, made if its type says so; raises `StartError`."""
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
    above, name = os.path.split(os.path.normpath(path))
    inner = f"{above}/{name}" if folder else above
    with closing(_make_folders(inner)) as parent:
        if not folder:
            paths.make_file(parent, name, _FILE_MODE)


def _make_folders(path: str) -> int:
    """Open a folder; those that are missing on the way are made."""
    waiting, links = path.split("/"), 0
    trail = [os.open("/", paths.FOLDER)]
    try:
        while waiting:
            part = waiting.pop(0)
            link = _step(trail, part)
            if link is None:
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if link.startswith("/"):
                _close(trail, keep=1)
            waiting = link.split("/") + waiting
        return os.open(".", paths.FOLDER, dir_fd=trail[-1])
    finally:
        _close(trail, keep=0)


def _step(trail: list[int], part: str) -> str | None:
    """Go on by one part of a path; the text of a link if it is one."""
    if part == "..":
        _close(trail, keep=max(1, len(trail) - 1))
    elif part not in ("", "."):
        link = _read_link(trail[-1], part)
        if link is not None:
            return link
        trail.append(paths.make_folders(trail[-1], part, _FOLDER_MODE))
    return None


def _read_link(folder: int, name: str) -> str | None:
    """Where a link leads; None for all else. Raises `OSError` for one of another user."""
    try:
        link = os.open(name, paths.ANY | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError:
        return None
    with closing(link):
        found = os.fstat(link)
        if not stat.S_ISLNK(found.st_mode):
            return None
        if found.st_uid not in (0, os.geteuid()):
            raise OSError(errno.ELOOP, f"{name} is a symbolic link of user {found.st_uid}", name)
        return os.readlink("", dir_fd=link)


def _close(trail: list[int], *, keep: int) -> None:
    for each in trail[keep:]:
        os.close(each)
    del trail[keep:]

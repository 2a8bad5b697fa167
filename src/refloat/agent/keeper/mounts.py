# SPDX-License-Identifier: Apache-2.0
"""A container's own view of the file system: this machine's, with its volumes in it.

It is made by the child itself, between fork and exec, in a mount namespace
that ends with the container, so the machine's own folders are never touched.
A volume that is to appear where nothing is needs a folder to be mounted on.
That folder is made in a stand-in for its parent: a file system in memory that
shows all of the parent's entries, bound from where they are.
"""

import errno
import os
from typing import Any

from refloat.agent.keeper import linux

NONE, NAMESPACE, USER_NAMESPACE = "none", "mount namespace", "user namespace"

# Each entry of a folder that a stand-in is made for costs a mount, some 30 microseconds.
MAX_ENTRIES = 4096

_CONSOLES = ("tty", "ttyS", "vcs", "vcsa", "vcsu", "loop", "ram")

_KEPT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC


def probe() -> str:
    """Which kind of namespace this process may make; asked in a child, once."""
    for kind in (NAMESPACE, USER_NAMESPACE):
        child = os.fork()
        if child == 0:
            try:
                enter(kind)
                linux.mount("none", "/", None, linux.MS_REC | linux.MS_SLAVE)
                os._exit(0)
            except OSError:
                os._exit(1)
        if os.waitpid(child, 0)[1] == 0:
            return kind
    return NONE


def enter(kind: str) -> None:
    """A mount namespace for this process alone; nothing mounted in it shows outside."""
    if kind == NAMESPACE:
        linux.unshare(linux.CLONE_NEWNS)
        return
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def show(mounts: list[dict[str, Any]], kind: str, scratch: str) -> None:
    """Make each mount's source appear at its target, as seen by this process."""
    enter(kind)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_SLAVE)
    view = _View(scratch)
    # Descriptors, because a volume's folder may be hidden by another's.
    opened = [(each, os.open(each["source"], os.O_PATH | os.O_CLOEXEC)) for each in mounts]
    if any(view.needs_root(each["target"]) for each in mounts):
        view.replace_root()
    for each, source in sorted(opened, key=lambda pair: pair[0]["target"].count("/")):
        view.bind(source, each["target"], read_only=each.get("read_only", False))


class _View:
    """What was changed so far."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        # Where making an entry changes nothing of the machine's: in a stand-in itself,
        # though not below what it shows, and anywhere below a volume or a new folder.
        self._stand_ins: list[str] = []
        self._made: list[str] = []

    def needs_root(self, target: str) -> bool:
        real = os.path.realpath(target)
        return not os.path.exists(real) and _existing(real) == "/"

    def replace_root(self) -> None:
        root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._stand_in(root, self._scratch)
        os.chroot(self._scratch)
        os.chdir("/")
        self._stand_ins.append("/")

    def bind(self, source: int, target: str, *, read_only: bool) -> None:
        real = os.path.realpath(target)
        path = f"/proc/self/fd/{source}"
        if not os.path.exists(real):
            self._make(real, folder=os.path.isdir(path))
        linux.mount(path, real, None, linux.MS_BIND | linux.MS_REC)
        if read_only:
            kept = os.statvfs(real).f_flag & _KEPT_FLAGS
            again = linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | kept
            linux.mount("none", real, None, again)
        self._made.append(real)

    def _make(self, target: str, *, folder: bool) -> None:
        above = _existing(target)
        if not self._is_ours(above):
            original = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._stand_in(original, above)
            self._stand_ins.append(above)
        first = target[len(above) :].lstrip("/").split("/")[0]
        self._made.append(os.path.join(above, first))
        if folder:
            os.makedirs(target, exist_ok=True)
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _touch(target)

    def _is_ours(self, folder: str) -> bool:
        if folder in self._stand_ins:
            return True
        return any(folder == each or folder.startswith(each + "/") for each in self._made)

    def _stand_in(self, original: int, target: str) -> None:
        """Mount a folder in memory on the target, with all of the original's entries."""
        with os.scandir(f"/proc/self/fd/{original}/") as found:
            entries = [each for each in found if target != "/dev" or not _is_console(each.name)]
        if len(entries) > MAX_ENTRIES:
            raise OSError(errno.E2BIG, f"more than {MAX_ENTRIES} entries beside it", target)
        mode = os.stat(original).st_mode & 0o7777
        flags = linux.MS_NOSUID | linux.MS_NODEV
        linux.mount("tmpfs", target, "tmpfs", flags, f"mode={mode:o},size=1m")
        for entry in entries:
            _show_entry(entry, os.path.join(target, entry.name))


def _show_entry(entry: "os.DirEntry[str]", target: str) -> None:
    try:
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
            return
        if entry.is_dir():
            os.mkdir(target)
        else:
            _touch(target)
        linux.mount(entry.path, target, None, linux.MS_BIND | linux.MS_REC)
    except FileNotFoundError:
        return  # it went between being listed and being shown


def _is_console(name: str) -> bool:
    """Of the machine alone, and most of what is in /dev, which is made for each container."""
    kind = name.rstrip("0123456789")
    return kind != name and kind in _CONSOLES


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _existing(path: str) -> str:
    """The nearest folder above that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path

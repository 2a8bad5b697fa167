# SPDX-License-Identifier: Apache-2.0
"""A container's own view of the file system: the machine's files and the pod's volumes.

The child makes the view between fork and exec, in a mount namespace that ends with the
container. So the machine's own folders never change. A volume whose mount point does
not exist needs a new folder. The child makes that folder in a stand-in for the parent
folder: a file system in memory with bind mounts of all entries of the parent.

Other containers may change the machine's folders and the volumes meanwhile, and this
process may be root. So this module uses a path only to open a file. It creates files
only below a descriptor of a stand-in or of a volume, and mounts only on a descriptor
(`paths`).
"""

import errno
import os
import re
import stat
from typing import Any

from refloat.agent.keeper import paths, syscalls
from refloat.agent.keeper.paths import by_descriptor, closing

NONE, NAMESPACE, USER_NAMESPACE = "none", "mount namespace", "user namespace"

# Each entry of a stand-in costs a mount, some 30 microseconds.
MAX_ENTRIES = 4096

# Most of the machine's /dev, which containers must not have; a stand-in leaves them out.
_CONSOLE = re.compile(r"/dev/(tty|ttyS|vcs|vcsa|vcsu|loop|ram)[0-9]+")

_KEPT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC

_IN_MEMORY = syscalls.MS_NOSUID | syscalls.MS_NODEV
_BIND = syscalls.MS_BIND | syscalls.MS_REC

# The errors for a path below a stand-in that leaves the stand-in, by a link or a mount.
_NOT_OWN = (errno.ELOOP, errno.EXDEV)


def probe() -> str:
    """The kind of namespace that this process may make; tries in a child."""
    kinds = (each for each in (NAMESPACE, USER_NAMESPACE) if _can_enter(each))
    return next(kinds, NONE)


def can_protect(kind: str) -> bool:
    """Whether the whole view can be read-only; tries in a child."""
    return kind != NONE and _can_enter(kind, protect=True)


def _can_enter(kind: str, *, protect: bool = False) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            enter(kind)
            spread = syscalls.MS_PRIVATE if protect else syscalls.MS_SLAVE
            syscalls.mount("none", "/", None, syscalls.MS_REC | spread)
            if protect:
                with closing(os.open("/", paths.FOLDER)) as root:
                    syscalls.set_read_only(root, value=True, recursive=True)
            code = 0
        finally:
            os._exit(code)  # after any exception, because the child must not go on as a keeper
    return os.waitpid(child, 0)[1] == 0


def enter(kind: str) -> None:
    """Enter a mount namespace of this process alone: its mounts do not show outside."""
    if kind == NAMESPACE:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        return
    uid, gid = os.getuid(), os.getgid()
    syscalls.unshare(syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def show(
    mounts: list[dict[str, Any]],
    kind: str,
    scratch: str,
    *,
    hide: list[str] | None = None,
    read_only: bool = False,
) -> None:
    """Mount each source at its target, for this process.

    `hide` are paths of the machine that the process must not see, even if a mount shows
    a folder above them. With `read_only` the process can write only to writable mounts.
    """
    enter(kind)
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
    view = _View(scratch)
    # Before the calls of `hide`, because the pod's volumes are in a hidden folder.
    opened = [(each, _open_source(each)) for each in mounts if not each.get("of_machine")]
    for path in hide or ():
        view.hide(path)
    opened += [(each, _open_source(each)) for each in mounts if each.get("of_machine")]
    if any(view.needs_root(each["target"]) for each in mounts):
        view.replace_root()
    for each, source in sorted(opened, key=lambda pair: pair[0]["target"].count("/")):
        view.bind(source, each["target"], read_only=each.get("read_only", False))
    if read_only:
        view.protect()


def _open_source(mount: dict[str, Any]) -> int:
    """Open the source of a mount, without following links below the agent's folder."""
    if mount.get("inner"):
        with closing(os.open(mount["source"], paths.FOLDER)) as volume:
            return paths.open_below(volume, mount["inner"])
    return os.open(mount["source"], paths.ANY)


class _View:
    """The changes to the file system so far."""

    def __init__(self, scratch: str) -> None:
        # Folders where a new entry does not change a folder of the machine: stand-ins (but not
        # their bind mounts) and volumes; by path, with a descriptor of each.
        self._places: dict[str, int] = {}
        self._writable: list[int] = []  # the mounts that a container may write
        with closing(os.open(os.path.dirname(scratch), paths.FOLDER)) as above:
            # By name below the parent, because a look-up from a descriptor does not cross
            # to a mount on that descriptor.
            at = f"{by_descriptor(above)}/{os.path.basename(scratch)}"
            syscalls.mount("tmpfs", at, "tmpfs", _IN_MEMORY, "mode=700,size=1m")
            self._workshop = os.open(at, paths.FOLDER)
        os.mkdir("root", dir_fd=self._workshop)
        os.mkdir("folder", dir_fd=self._workshop)
        paths.make_file(self._workshop, "file", 0o600)

    def hide(self, path: str) -> None:
        """Mount an empty folder, or an empty file, over a path."""
        try:
            at = os.open(os.path.realpath(path), paths.ANY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return  # a container cannot reach the path either
        with closing(at):
            if stat.S_ISDIR(os.fstat(at).st_mode):
                flags = _IN_MEMORY | syscalls.MS_NOEXEC | syscalls.MS_RDONLY
                syscalls.mount("tmpfs", by_descriptor(at), "tmpfs", flags, "mode=555,size=4k")
            else:
                syscalls.mount(os.devnull, by_descriptor(at), None, syscalls.MS_BIND)

    def needs_root(self, target: str) -> bool:
        real = os.path.realpath(target)
        return not os.path.exists(real) and _existing(real) == "/"

    def replace_root(self) -> None:
        with closing(os.open("/", paths.FOLDER)) as root:
            self._places["/"] = self._stand_in(root, "/", self._in_workshop("root"))
        os.fchdir(self._places["/"])
        os.chroot(".")
        os.chdir("/")

    def protect(self) -> None:
        """Make all mounts read-only, except the writable volumes."""
        # Private, because later mounts of the machine would appear here and be writable.
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        with closing(os.open("/", paths.FOLDER)) as root:
            syscalls.set_read_only(root, value=True, recursive=True)
        for each in self._writable:
            syscalls.set_read_only(each, value=False)

    def bind(self, source: int, target: str, *, read_only: bool) -> None:
        real = os.path.realpath(target)
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        stage = self._in_workshop("folder" if is_folder else "file")
        syscalls.mount(by_descriptor(source), stage, None, _BIND)
        mounted = os.open(stage, paths.ANY)
        flags = os.statvfs(mounted).f_flag
        if read_only:
            again = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY
            syscalls.mount("none", stage, None, again | flags & _KEPT_FLAGS)
        elif not flags & os.ST_RDONLY:
            self._writable.append(mounted)
        with closing(self._target(real, folder=is_folder)) as mount_point:
            syscalls.mount(stage, by_descriptor(mount_point), None, syscalls.MS_MOVE)
        if is_folder:
            self._places[real] = mounted

    def _in_workshop(self, name: str) -> str:
        return f"{by_descriptor(self._workshop)}/{name}"

    def _target(self, real: str, *, folder: bool) -> int:
        """Open the mount point; create one if the path does not exist."""
        # The innermost folder above, or the path itself.
        above = [each for each in self._places if f"{real}/".startswith(each.rstrip("/") + "/")]
        place = max(above, key=len, default=None)
        if place is not None:
            try:
                return self._make(place, real, folder=folder)
            except OSError as error:
                if error.errno not in _NOT_OWN:
                    raise
        if os.path.exists(real):
            return os.open(real, paths.ANY | os.O_NOFOLLOW)
        parent = _existing(real)
        with closing(os.open(parent, paths.FOLDER | os.O_NOFOLLOW)) as original:
            stage = self._in_workshop("folder")
            self._places[parent] = self._stand_in(original, parent, stage)
            syscalls.mount(stage, by_descriptor(original), None, syscalls.MS_MOVE)
        return self._make(parent, real, folder=folder)

    def _make(self, place: str, real: str, *, folder: bool) -> int:
        inner = real[len(place) :].lstrip("/")
        if folder:
            return paths.make_folders(self._places[place], inner, 0o755, same_mount=True)
        above, name = os.path.split(inner)
        with closing(
            paths.make_folders(self._places[place], above, 0o755, same_mount=True)
        ) as parent:
            paths.make_file(parent, name, 0o644)
            return paths.open_below(parent, name, same_mount=True)

    def _stand_in(self, original: int, shown_at: str, at: str) -> int:
        """Mount a folder in memory with all entries of the original; returns its descriptor."""
        with closing(os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=original)) as directory:
            names = [
                each
                for each in os.listdir(directory)
                if not _CONSOLE.fullmatch(f"{shown_at}/{each}")
            ]
        if len(names) > MAX_ENTRIES:
            raise OSError(errno.E2BIG, f"more than {MAX_ENTRIES} entries beside it", shown_at)
        mode = os.stat(original).st_mode & 0o7777
        syscalls.mount("tmpfs", at, "tmpfs", _IN_MEMORY, f"mode={mode:o},size=1m")
        folder = os.open(at, paths.FOLDER)
        for name in names:
            try:
                source = os.open(name, paths.ANY | os.O_NOFOLLOW, dir_fd=original)
            except FileNotFoundError:
                continue  # another process removed the entry meanwhile
            with closing(source):
                mode = os.fstat(source).st_mode
                if stat.S_ISLNK(mode):
                    os.symlink(os.readlink("", dir_fd=source), name, dir_fd=folder)
                    continue
                if stat.S_ISDIR(mode):
                    os.mkdir(name, dir_fd=folder)
                else:
                    paths.make_file(folder, name, 0o644)
                at_name = f"{by_descriptor(folder)}/{name}"
                syscalls.mount(by_descriptor(source), at_name, None, _BIND)
        return folder


def _existing(path: str) -> str:
    """The nearest folder above that exists."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path

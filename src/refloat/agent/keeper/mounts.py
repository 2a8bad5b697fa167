# SPDX-License-Identifier: Apache-2.0
"""A container's own view of the file system: this machine's, with its volumes in it.

It is made by the child itself, between fork and exec, in a mount namespace
that ends with the container, so the machine's own folders are never touched.
A volume that is to appear where nothing is needs a folder to be mounted on.
That folder is made in a stand-in for its parent: a file system in memory that
shows all of the parent's entries, bound from where they are.

Other containers may change the machine's folders and the volumes meanwhile, and
this process may be root. So a path only says where to look. Whatever is made is
made below a descriptor of a stand-in or of a volume, and whatever is mounted is
mounted on a descriptor (`paths`).
"""

import errno
import os
import stat
from typing import Any

from refloat.agent.keeper import linux, paths
from refloat.agent.keeper.paths import by_descriptor, closing

NONE, NAMESPACE, USER_NAMESPACE = "none", "mount namespace", "user namespace"

# Each entry of a folder that a stand-in is made for costs a mount, some 30 microseconds.
MAX_ENTRIES = 4096

_CONSOLES = ("tty", "ttyS", "vcs", "vcsa", "vcsu", "loop", "ram")

_KEPT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC

_IN_MEMORY = linux.MS_NOSUID | linux.MS_NODEV
_BIND = linux.MS_BIND | linux.MS_REC

# Why a place below a stand-in is not the stand-in's own: a link, or a mount of the machine's.
_NOT_OWN = (errno.ELOOP, errno.EXDEV)


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


def can_protect(kind: str) -> bool:
    """Whether all of a view can be made read-only; asked in a child, once."""
    if kind == NONE:
        return False
    child = os.fork()
    if child == 0:
        try:
            enter(kind)
            linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
            with closing(os.open("/", paths.FOLDER)) as root:
                linux.set_read_only(root, value=True, recursive=True)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


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


def show(
    mounts: list[dict[str, Any]],
    kind: str,
    scratch: str,
    *,
    hidden: list[str] | None = None,
    read_only: bool = False,
) -> None:
    """Make each mount's source appear at its target, as seen by this process.

    `hidden` are paths of the machine that it must not see, whatever is mounted from
    above them. With `read_only` it can write nothing but what is mounted for writing.
    """
    enter(kind)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_SLAVE)
    view = _View(scratch)
    # Before anything is hidden: the volumes of the pod are in a folder that is.
    opened = [(each, _open_source(each)) for each in mounts if not each.get("of_machine")]
    for path in hidden or ():
        view.hide(path)
    opened += [(each, _open_source(each)) for each in mounts if each.get("of_machine")]
    if any(view.needs_root(each["target"]) for each in mounts):
        view.replace_root()
    for each, source in sorted(opened, key=lambda pair: pair[0]["target"].count("/")):
        view.bind(source, each["target"], read_only=each.get("read_only", False))
    if read_only:
        view.protect()


def _open_source(mount: dict[str, Any]) -> int:
    """What is mounted; below `source`, which the agent has made, no link is followed."""
    if mount.get("inner"):
        with closing(os.open(mount["source"], paths.FOLDER)) as volume:
            return paths.open_below(volume, mount["inner"])
    return os.open(mount["source"], paths.ANY)


class _View:
    """What was changed so far."""

    def __init__(self, scratch: str) -> None:
        # Where an entry can be made without changing a folder of the machine's: stand-ins,
        # though not below what they show, and volumes; by path, with a descriptor of each.
        self._places: dict[str, int] = {}
        self._writable: list[int] = []  # the mounts that a container may write
        with closing(os.open(os.path.dirname(scratch), paths.FOLDER)) as above:
            # By name below its parent, because a look-up does not cross to what is
            # mounted on a descriptor itself.
            at = f"{by_descriptor(above)}/{os.path.basename(scratch)}"
            linux.mount("tmpfs", at, "tmpfs", _IN_MEMORY, "mode=700,size=1m")
            self._workshop = os.open(at, paths.FOLDER)
        os.mkdir("root", dir_fd=self._workshop)
        os.mkdir("folder", dir_fd=self._workshop)
        paths.make_file(self._workshop, "file", 0o600)

    def hide(self, path: str) -> None:
        """Show an empty folder, or an empty file, instead."""
        try:
            at = os.open(os.path.realpath(path), paths.ANY | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return  # what this process cannot reach, a container cannot reach either
        with closing(at):
            if stat.S_ISDIR(os.fstat(at).st_mode):
                flags = _IN_MEMORY | linux.MS_NOEXEC | linux.MS_RDONLY
                linux.mount("tmpfs", by_descriptor(at), "tmpfs", flags, "mode=555,size=4k")
            else:
                linux.mount(os.devnull, by_descriptor(at), None, linux.MS_BIND)

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
        """Make all that is mounted read-only, but for the volumes that can be written."""
        # From now on nothing that the machine mounts appears here: it could be written.
        linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
        with closing(os.open("/", paths.FOLDER)) as root:
            linux.set_read_only(root, value=True, recursive=True)
        for each in self._writable:
            linux.set_read_only(each, value=False)

    def bind(self, source: int, target: str, *, read_only: bool) -> None:
        real = os.path.realpath(target)
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        stage = self._in_workshop("folder" if is_folder else "file")
        linux.mount(by_descriptor(source), stage, None, _BIND)
        mounted = os.open(stage, paths.ANY)
        if read_only:
            _protect(stage)
        elif not os.statvfs(mounted).f_flag & os.ST_RDONLY:
            self._writable.append(mounted)
        self._move(stage, self._target(real, folder=is_folder))
        if is_folder:
            self._places[real] = mounted

    def _move(self, stage: str, target: int) -> None:
        with closing(target):
            linux.mount(stage, by_descriptor(target), None, linux.MS_MOVE)

    def _in_workshop(self, name: str) -> str:
        return f"{by_descriptor(self._workshop)}/{name}"

    def _target(self, real: str, *, folder: bool) -> int:
        """Where to mount something: what is there, or what is made for it."""
        place = self._place(real)
        if place is not None:
            try:
                return self._make(place, real, folder=folder)
            except OSError as error:
                if error.errno not in _NOT_OWN:
                    raise
        if os.path.exists(real):
            return os.open(real, paths.ANY | os.O_NOFOLLOW)
        above = _existing(real)
        with closing(os.open(above, paths.FOLDER | os.O_NOFOLLOW)) as original:
            stage = self._in_workshop("folder")
            self._places[above] = self._stand_in(original, above, stage)
            linux.mount(stage, by_descriptor(original), None, linux.MS_MOVE)
        return self._make(above, real, folder=folder)

    def _place(self, real: str) -> str | None:
        """The innermost one of which a path is part."""
        above = [each for each in self._places if real == each or _is_below(real, each)]
        return max(above, key=len, default=None)

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
        """Mount a folder in memory, with all of the original's entries; its descriptor."""
        with closing(os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=original)) as listed:
            names = [each for each in os.listdir(listed) if not _is_left_out(shown_at, each)]
        if len(names) > MAX_ENTRIES:
            raise OSError(errno.E2BIG, f"more than {MAX_ENTRIES} entries beside it", shown_at)
        mode = os.stat(original).st_mode & 0o7777
        linux.mount("tmpfs", at, "tmpfs", _IN_MEMORY, f"mode={mode:o},size=1m")
        folder = os.open(at, paths.FOLDER)
        for name in names:
            _show_entry(original, folder, name)
        return folder


def _protect(at: str) -> None:
    kept = os.statvfs(at).f_flag & _KEPT_FLAGS
    again = linux.MS_BIND | linux.MS_REMOUNT | linux.MS_RDONLY | kept
    linux.mount("none", at, None, again)


def _show_entry(original: int, folder: int, name: str) -> None:
    try:
        source = os.open(name, paths.ANY | os.O_NOFOLLOW, dir_fd=original)
    except FileNotFoundError:
        return  # it went between being listed and being shown
    with closing(source):
        mode = os.fstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink("", dir_fd=source), name, dir_fd=folder)
            return
        if stat.S_ISDIR(mode):
            os.mkdir(name, dir_fd=folder)
        else:
            paths.make_file(folder, name, 0o644)
        linux.mount(by_descriptor(source), f"{by_descriptor(folder)}/{name}", None, _BIND)


def _is_left_out(folder: str, name: str) -> bool:
    """Consoles: of the machine alone, and most of /dev, which is made for each container."""
    kind = name.rstrip("0123456789")
    return folder == "/dev" and kind != name and kind in _CONSOLES


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _existing(path: str) -> str:
    """The nearest folder above that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path

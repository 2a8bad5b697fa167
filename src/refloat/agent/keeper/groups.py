# SPDX-License-Identifier: Apache-2.0
"""A cgroup for each container, where the machine gives us one to divide.

It says who belongs to a container, whatever a process did to hide, and bounds
how many they are (`pids`) and what they hold (`memory`). The group that the
keeper is in is divided, so that bounds of others go on to hold for all; but
where systemd made it only if that says so (`Delegate=yes`), for it takes all
else for its own. Without `pids`, `members` looks at what processes inherit,
and the bound is one of the user (`RLIMIT_NPROC`); without `memory`, it is
measured.

Version 2 has one hierarchy, and a group that is divided may hold no process,
the root aside: whoever is in it goes to a group beside those of containers.
Version 1 has a hierarchy for each of the two, and there they may stay.
"""

import contextlib
import errno
import os

from refloat.agent.keeper.files import read, write

INHERITED, MEASURED = "inherited", "measured"

_SYSTEMD = "/run/systemd/system"
_DELEGATED = ("trusted.delegate", "user.delegate")  # attributes that systemd sets

_BOTH = "+pids +memory"

# For whoever is in a group of version 2 that is divided: the agent, and this.
_AGENTS = "refloat-agents"

# What is born while the others are moved is moved with the next round.
_MOVE_ROUNDS = 3


class Files:
    """What a version calls the files of `memory`."""

    def __init__(self, version: str, *, limit: str, kills: str, more: dict[str, str | None]):
        self.version, self.limit, self.kills = version, limit, kills
        self.more = more  # what else is written, None for the limit; not every kernel has them


_V1 = Files(
    "v1",
    limit="memory.limit_in_bytes",
    kills="memory.oom_control",
    more={"memory.memsw.limit_in_bytes": None},
)
_V2 = Files(
    "v2",
    limit="memory.max",
    kills="memory.events",
    more={"memory.swap.max": "0", "memory.oom.group": "1"},
)


class Group:
    """One container's, with a folder in each hierarchy."""

    def __init__(self, pids: str, memory: str | None, files: Files) -> None:
        self._pids, self._memory, self._files = pids, memory, files
        self.folders = [pids] if memory in (None, pids) else [pids, str(memory)]

    def make(self, pids: int | None, memory: int | None) -> None:
        for folder in self.folders:
            os.makedirs(folder, exist_ok=True)
        write(f"{self._pids}/pids.max", "max" if pids is None else str(pids))
        if self._memory is None or memory is None:
            return
        write(f"{self._memory}/{self._files.limit}", str(memory))
        for name, value in self._files.more.items():
            with contextlib.suppress(OSError):
                write(f"{self._memory}/{name}", str(memory) if value is None else value)

    def members(self) -> list[int]:
        return [int(each) for each in read(f"{self._pids}/cgroup.procs").split()]

    def stop_forks(self) -> None:
        """Else a fork bomb would make more than can be killed."""
        with contextlib.suppress(OSError):
            write(f"{self._pids}/pids.max", "0")

    @property
    def bounds_memory(self) -> bool:
        return self._memory is not None

    def ran_out(self) -> bool:
        """Whether the kernel has killed one of it for want of memory."""
        text = read(f"{self._memory}/{self._files.kills}") if self._memory is not None else ""
        killed = (line.split()[1] for line in text.splitlines() if line.startswith("oom_kill "))
        return any(each != "0" for each in killed)

    def remove(self) -> bool:
        """Whether it is gone; it is not while a process of it is."""
        return not [folder for folder in self.folders if not _remove(folder)]


class Groups:
    """The groups of one keeper, in a folder of its own in each hierarchy."""

    def __init__(self, pids: str, memory: str | None, files: Files) -> None:
        self._pids, self._memory, self._files = pids, memory, files

    @classmethod
    def make(cls, name: str) -> "Groups | None":
        if (both := _home(f"refloat-{name}")) is not None:
            return cls(both, both, _V2)
        pids = _home(f"refloat-{name}", "pids")
        return None if pids is None else cls(pids, _home(f"refloat-{name}", "memory"), _V1)

    @property
    def processes(self) -> str:
        """By what their number is bounded."""
        return f"cgroup {self._files.version}"

    @property
    def memory(self) -> str:
        """By what that is bounded."""
        return MEASURED if self._memory is None else f"cgroup {self._files.version}"

    def add(self, container: str, *, pids: int | None, memory: int | None) -> Group:
        group = self._group(container, with_memory=memory is not None)
        try:
            group.make(pids, memory)
        except OSError:
            group.remove()
            raise
        return group

    def left(self) -> list[Group]:
        """Groups that are there, perhaps of a keeper before."""
        names = {name: None for home in self._homes for name in _folders(home)}
        return [self._group(name, with_memory=True) for name in names]

    def close(self) -> None:
        for home in self._homes:
            with contextlib.suppress(OSError):
                os.rmdir(home)

    @property
    def _homes(self) -> list[str]:
        return list(dict.fromkeys(each for each in (self._pids, self._memory) if each is not None))

    def _group(self, name: str, *, with_memory: bool) -> Group:
        memory = f"{self._memory}/{name}" if self._memory is not None and with_memory else None
        return Group(f"{self._pids}/{name}", memory, self._files)


def _remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _folders(home: str) -> list[str]:
    with os.scandir(home) as entries:
        return [each.name for each in entries if each.is_dir()]


def _home(name: str, controller: str = "") -> str | None:
    """A folder for the keeper's groups, of version 2 or of one controller of version 1; None where
    it must not or cannot be."""
    own, root = _own_group(controller), _mounted(controller)
    if own is None or root is None:
        return None
    folder = f"{root}{own.rstrip('/')}"
    if own != "/" and not _is_ours(folder, controller):
        return None
    home = f"{folder}/{name}"
    try:
        if not controller:
            _make_room(folder, is_root=own == "/")
        os.makedirs(home, exist_ok=True)
        if not controller:
            write(f"{home}/cgroup.subtree_control", _BOTH)
    except OSError:
        return None
    return home


def _make_room(folder: str, *, is_root: bool) -> None:
    """Let a group of version 2 be divided by what we want to bound."""
    if not {"pids", "memory"} <= set(read(f"{folder}/cgroup.controllers").split()):
        raise OSError(errno.ENOTSUP, "not by these")
    if not is_root:
        agents = f"{folder}/{_AGENTS}"
        os.makedirs(agents, exist_ok=True)
        for _ in range(_MOVE_ROUNDS):
            for pid in read(f"{folder}/cgroup.procs").split():
                with contextlib.suppress(ProcessLookupError):
                    write(f"{agents}/cgroup.procs", pid)
    write(f"{folder}/cgroup.subtree_control", _BOTH)


def _is_ours(folder: str, controller: str) -> bool:
    """Whether we may divide it, though it is not the root."""
    if controller and not os.path.exists(_SYSTEMD):
        return True  # nobody in it has to go elsewhere
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _own_group(controller: str) -> str | None:
    """Without a controller, that of version 2."""
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            # One that was divided before: another node's keeper, or this one's before.
            return path.removesuffix(f"/{_AGENTS}") or "/"
    return None


def _mounted(controller: str) -> str | None:
    """Where the whole hierarchy can be seen."""
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        fields = before.split(" ")
        is_it = controller in options.split(",") if controller else kind == "cgroup2"
        if kind in ("cgroup", "cgroup2") and is_it and fields[3] == "/":
            return fields[4]
    return None

# SPDX-License-Identifier: Apache-2.0
"""A cgroup for each container, if the machine allows the keeper to make cgroups.

A cgroup lists the processes of a container, even those that try to hide, and limits
their number (`pids`) and their memory (`memory`). The keeper makes the cgroups below
its own cgroup, so that the limits of that cgroup still hold. If systemd made that
cgroup, the keeper does so only with `Delegate=yes`, because systemd owns all others.
Without `pids`, `process_tree` finds the processes and the user has the limit
(`RLIMIT_NPROC`). Without `memory`, the keeper measures the memory.

Version 2 has one hierarchy. There a cgroup with child groups must not have processes
of its own, except the root. So the keeper moves these processes to a sibling of the
containers' groups. Version 1 has one hierarchy for each controller, and processes stay.
"""

import contextlib
import errno
import os
from typing import NamedTuple

from refloat.agent.keeper.small_files import read, write

INHERITED, MEASURED = "inherited", "measured"

_SYSTEMD = "/run/systemd/system"
_DELEGATED = ("trusted.delegate", "user.delegate")  # attributes that systemd sets

_BOTH = "+pids +memory"

# Version 2: the group to which the keeper moves itself and the agent.
_AGENTS = "refloat-agents"

# Processes can fork during a round; the next round moves their children.
_MOVE_ROUNDS = 3


class MemoryFiles(NamedTuple):
    """The names of the files of `memory` in one version."""

    version: str
    limit: str
    kills: str
    more: dict[str, str | None]  # further files and their text; None: the limit


_V1 = MemoryFiles(
    "v1",
    limit="memory.limit_in_bytes",
    kills="memory.oom_control",
    more={"memory.memsw.limit_in_bytes": None},
)
_V2 = MemoryFiles(
    "v2",
    limit="memory.max",
    kills="memory.events",
    more={"memory.swap.max": "0", "memory.oom.group": "1"},
)


class Cgroup:
    """The cgroup of one container, with a folder in each hierarchy."""

    def __init__(self, pids: str, memory: str | None, files: MemoryFiles) -> None:
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
            with contextlib.suppress(OSError):  # some kernels lack these files
                write(f"{self._memory}/{name}", str(memory) if value is None else value)

    def members(self) -> list[int]:
        return [int(each) for each in read(f"{self._pids}/cgroup.procs").split()]

    def stop_forks(self) -> None:
        """Allow no further processes: a fork bomb is faster than the kills."""
        with contextlib.suppress(OSError):
            write(f"{self._pids}/pids.max", "0")

    @property
    def bounds_memory(self) -> bool:
        return self._memory is not None

    def had_oom_kill(self) -> bool:
        """Whether the kernel killed a process of this cgroup because memory ran out."""
        text = read(f"{self._memory}/{self._files.kills}") if self._memory is not None else ""
        killed = (line.split()[1] for line in text.splitlines() if line.startswith("oom_kill "))
        return any(each != "0" for each in killed)

    def remove(self) -> bool:
        """Returns whether the cgroup is gone; the kernel keeps a cgroup with processes."""
        return not [folder for folder in self.folders if not _remove(folder)]


class CgroupTree:
    """The cgroups of one keeper, in one folder of each hierarchy."""

    def __init__(self, pids: str, memory: str | None, files: MemoryFiles) -> None:
        self._pids, self._memory, self._files = pids, memory, files

    @classmethod
    def make(cls, name: str) -> "CgroupTree | None":
        if (both := _home(f"refloat-{name}")) is not None:
            return cls(both, both, _V2)
        pids = _home(f"refloat-{name}", "pids")
        return None if pids is None else cls(pids, _home(f"refloat-{name}", "memory"), _V1)

    @property
    def processes(self) -> str:
        """The mechanism that limits the number of processes."""
        return f"cgroup {self._files.version}"

    @property
    def memory(self) -> str:
        """The mechanism that limits the memory."""
        return MEASURED if self._memory is None else f"cgroup {self._files.version}"

    def add(self, container: str, *, pids: int | None, memory: int | None) -> Cgroup:
        group = self._group(container, with_memory=memory is not None)
        try:
            group.make(pids, memory)
        except OSError:
            group.remove()
            raise
        return group

    def existing(self) -> list[Cgroup]:
        """All cgroups, also those of an earlier keeper."""
        names = {name: None for home in self._homes for name in _folders(home)}
        return [self._group(name, with_memory=True) for name in names]

    def close(self) -> None:
        for home in self._homes:
            with contextlib.suppress(OSError):
                os.rmdir(home)

    @property
    def _homes(self) -> list[str]:
        return list(dict.fromkeys(each for each in (self._pids, self._memory) if each is not None))

    def _group(self, name: str, *, with_memory: bool) -> Cgroup:
        memory = f"{self._memory}/{name}" if self._memory is not None and with_memory else None
        return Cgroup(f"{self._pids}/{name}", memory, self._files)


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
    """The folder for the keeper's cgroups, of version 2 or of one controller of version 1.

    None if the keeper must not or cannot make this folder.
    """
    group = _own_group(controller)
    if group is None:
        return None
    root, own = group
    folder = f"{root}{own.rstrip('/')}"
    if own != "/" and not _is_delegated(folder, controller):
        return None
    home, agents = f"{folder}/{name}", f"{folder}/{_AGENTS}"
    with contextlib.suppress(OSError):
        if controller:
            os.makedirs(home, exist_ok=True)
            return home
        if not {"pids", "memory"} <= set(read(f"{folder}/cgroup.controllers").split()):
            return None
        if own != "/":
            os.makedirs(agents, exist_ok=True)
            for _ in range(_MOVE_ROUNDS):
                for pid in read(f"{folder}/cgroup.procs").split():
                    with contextlib.suppress(ProcessLookupError):
                        write(f"{agents}/cgroup.procs", pid)
        write(f"{folder}/cgroup.subtree_control", _BOTH)
        os.makedirs(home, exist_ok=True)
        write(f"{home}/cgroup.subtree_control", _BOTH)
        return home
    return None


def _is_delegated(folder: str, controller: str) -> bool:
    """Whether the keeper may make child groups of a group that is not the root."""
    if controller and not os.path.exists(_SYSTEMD):
        return True  # processes may stay in a group of version 1
    for name in _DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _own_group(controller: str) -> tuple[str, str] | None:
    """The mount of the whole hierarchy and the keeper's own group in it.

    Without a controller, those of version 2.
    """
    groups = (line.split(":", 2)[1:] for line in read("/proc/self/cgroup").splitlines())
    own = next((path for names, path in groups if controller in names.split(",")), None)
    if own is None:
        return None
    # The keeper of another node, or an earlier keeper, may have moved this process already.
    own = own.removesuffix(f"/{_AGENTS}") or "/"
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        fields = before.split(" ")
        is_match = controller in options.split(",") if controller else kind == "cgroup2"
        if kind in ("cgroup", "cgroup2") and is_match and fields[3] == "/":
            return fields[4], own
    return None

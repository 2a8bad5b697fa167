# SPDX-License-Identifier: Apache-2.0
"""A cgroup for each container, where the machine gives us one to divide.

It says who belongs to a container, whatever a process did to hide, and bounds
how many they are (`pids`) and what they hold (`memory`). The group that the
keeper is in is divided, so that bounds of others go on to hold for all; but
not where systemd made it, which takes all of it for its own. Only version 1 is used.
Without `pids`, `members` looks at what processes inherit, and the bound is
one of the user (`RLIMIT_NPROC`); without `memory`, it is measured.
"""

import contextlib
import errno
import os

from refloat.agent.keeper.files import read, write

PIDS, INHERITED = "cgroup v1 pids", "inherited"
MEMORY, MEASURED = "cgroup v1 memory", "measured"

_SYSTEMD = "/run/systemd/system"


class Group:
    """One container's, with a folder in each hierarchy."""

    def __init__(self, pids: str, memory: str | None) -> None:
        self._pids, self._memory = pids, memory
        self.folders = [pids] if memory is None else [pids, memory]

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
        text = read(f"{self._memory}/memory.oom_control") if self._memory is not None else ""
        killed = (line.split()[1] for line in text.splitlines() if line.startswith("oom_kill "))
        return any(each != "0" for each in killed)

    def remove(self) -> bool:
        """Whether it is gone; it is not while a process of it is."""
        return not [folder for folder in self.folders if not _remove(folder)]


class Groups:
    """The groups of one keeper, in a folder of its own in each hierarchy."""

    def __init__(self, pids: str, memory: str | None) -> None:
        self._pids, self._memory = pids, memory

    @classmethod
    def make(cls, name: str) -> "Groups | None":
        pids = _home("pids", name)
        return None if pids is None else cls(pids, _home("memory", name))

    @property
    def bounds_memory(self) -> bool:
        return self._memory is not None

    def add(self, container: str, *, pids: int | None, memory: int | None) -> Group:
        group = self._group(container, with_memory=memory is not None)
        try:
            for folder in group.folders:
                os.makedirs(folder, exist_ok=True)
            write(f"{self._pids}/{container}/pids.max", "max" if pids is None else str(pids))
            if group.bounds_memory:
                _bound_memory(f"{self._memory}/{container}", str(memory))
        except OSError:
            group.remove()
            raise
        return group

    def left(self) -> list[Group]:
        """Groups that are there, perhaps of a keeper before."""
        homes = [each for each in (self._pids, self._memory) if each is not None]
        names = {name: None for home in homes for name in _folders(home)}
        return [self._group(name, with_memory=True) for name in names]

    def _group(self, name: str, *, with_memory: bool) -> Group:
        memory = f"{self._memory}/{name}" if self._memory is not None and with_memory else None
        return Group(f"{self._pids}/{name}", memory)

    def close(self) -> None:
        for home in (self._pids, self._memory):
            with contextlib.suppress(OSError):
                if home is not None:
                    os.rmdir(home)


def _bound_memory(folder: str, limit: str) -> None:
    write(f"{folder}/memory.limit_in_bytes", limit)
    # Nor may it go to the disk instead; not every kernel counts that.
    with contextlib.suppress(OSError):
        write(f"{folder}/memory.memsw.limit_in_bytes", limit)


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


def _home(controller: str, name: str) -> str | None:
    """A folder for the keeper's groups in a hierarchy; None where it must not or cannot be."""
    own = _own_group(controller)
    root = _mounted(controller)
    if own is None or root is None or (own != "/" and os.path.exists(_SYSTEMD)):
        return None
    home = f"{root}{own.rstrip('/')}/refloat-{name}"
    try:
        os.makedirs(home, exist_ok=True)
    except OSError:
        return None
    return home


def _own_group(controller: str) -> str | None:
    for line in read("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return None


def _mounted(controller: str) -> str | None:
    """Where the whole hierarchy can be seen."""
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        fields = before.split(" ")
        if kind == "cgroup" and controller in options.split(",") and fields[3] == "/":
            return fields[4]
    return None

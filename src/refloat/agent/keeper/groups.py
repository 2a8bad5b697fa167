# SPDX-License-Identifier: Apache-2.0
"""A cgroup for each container, where the machine gives us one to divide.

It says who belongs to a container, whatever a process did to hide, and bounds
how many they are. Only the root of the hierarchy is divided: a group that
somebody else made for us is theirs to divide. Only version 1's `pids` is
used; without it, `members` looks at what processes inherit, and the bound is
one of the user (`RLIMIT_NPROC`).
"""

import contextlib
import errno
import os

from refloat.agent.keeper.files import read, write

CGROUP, INHERITED = "cgroup v1 pids", "inherited"


class Groups:
    """The groups of one keeper, in a folder of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @classmethod
    def make(cls, name: str) -> "Groups | None":
        root = _pids_root()
        if root is None:
            return None
        folder = f"{root}/refloat-{name}"
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            return None
        return cls(folder)

    def add(self, container: str, most: int | None) -> str:
        folder = f"{self._folder}/{container}"
        os.makedirs(folder, exist_ok=True)
        write(f"{folder}/pids.max", "max" if most is None else str(most))
        return folder

    def remove(self, folder: str) -> bool:
        """Whether it is gone; it is not while a process of it is."""
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    def left(self) -> list[str]:
        """Groups that are there, perhaps of a keeper before."""
        with os.scandir(self._folder) as entries:
            return [each.path for each in entries if each.is_dir()]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)


def members(group: str) -> list[int]:
    text = read(f"{group}/cgroup.procs")
    return [int(each) for each in text.split()]


def stop_forks(group: str) -> None:
    """Else a fork bomb would make more than can be killed."""
    with contextlib.suppress(OSError):
        write(f"{group}/pids.max", "0")


def _pids_root() -> str | None:
    own = [line.split(":", 2) for line in read("/proc/self/cgroup").splitlines()]
    if not any("pids" in each[1].split(",") and each[2] == "/" for each in own):
        return None
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        fields = before.split(" ")
        if kind == "cgroup" and "pids" in options.split(",") and fields[3] == "/":
            return fields[4]
    return None

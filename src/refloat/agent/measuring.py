# SPDX-License-Identifier: Apache-2.0
"""The `Usage` of a node whose containers are processes of this machine.

Memory and processes of the containers are the keeper's numbers, files are
counted in the pods' folders, and what is left is what the kernel says of the
whole machine. All nodes on one machine share that.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from refloat.client import errors
from refloat.policy import eviction_thresholds as thresholds
from refloat.policy.kubelet_eviction import ContainerUsage, Level, Measured, PodUsage, VolumeUsage

_VOLUMES, _LOGS = "volumes/", "logs/"

SizeLimits = Callable[[str], Awaitable[Mapping[str, str]]]
"""The `sizeLimit` of each emptyDir of a pod that has one, by the pod's uid."""


class Taken(Protocol):
    """Of one container."""

    @property
    def processes(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...


class Meter(Protocol):
    """What is asked of the process runtime."""

    def pods(self) -> Sequence[str]: ...

    async def usage(self) -> Mapping[str, Mapping[str, Taken]]: ...

    async def disk_usage(self, uid: str) -> Mapping[str, int]: ...


class ProcessUsage:
    """Measures one node of this machine."""

    def __init__(
        self,
        meter: Meter,
        folder: Path,
        size_limits: SizeLimits,
        machine: Callable[[Path], Mapping[str, Level]] | None = None,
    ) -> None:
        self._meter = meter
        self._folder = folder
        self._size_limits = size_limits
        self._machine = machine if machine is not None else levels
        self._limits: dict[str, Mapping[str, str]] = {}  # they never change

    def is_idle(self) -> bool:
        """Never: others may fill the machine, and its node has to say so."""
        return False

    async def measure(self) -> Measured:
        uids = self._meter.pods()
        used = await self._meter.usage() if uids else {}
        pods = {uid: await self._pod(uid, used.get(uid, {})) for uid in uids}
        self._limits = {uid: each for uid, each in self._limits.items() if uid in pods}
        return Measured(self._machine(self._folder), pods)

    async def _pod(self, uid: str, used: Mapping[str, Taken]) -> PodUsage:
        files = await self._meter.disk_usage(uid)
        sizes = {
            name.removeprefix(_VOLUMES): size
            for name, size in files.items()
            if name.startswith(_VOLUMES)
        }
        limits = await self._limits_of(uid) if sizes else {}
        return PodUsage(
            memory=sum(each.memory_bytes for each in used.values()),
            storage=sum(files.values()),
            pids=sum(each.processes for each in used.values()),
            containers=_containers(used, files),
            volumes={name: VolumeUsage(size, limits.get(name, "")) for name, size in sizes.items()},
        )

    async def _limits_of(self, uid: str) -> Mapping[str, str]:
        """Those of a pod; asked again if the API does not say: it may be away for long."""
        if uid not in self._limits:
            try:
                self._limits[uid] = await self._size_limits(uid)
            except errors.ClientError:
                return {}
        return self._limits[uid]


def _containers(used: Mapping[str, Taken], files: Mapping[str, int]) -> dict[str, ContainerUsage]:
    """A process has no files of its own but its log."""
    return {
        name: ContainerUsage(each.memory_bytes, files.get(_LOGS + name, 0))
        for name, each in used.items()
    }


def levels(folder: Path) -> dict[str, Level]:
    """What is left of the machine, and of the disk with this folder."""
    disk = os.statvfs(folder)
    found = {thresholds.DISK: Level(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)}
    memory = _memory(Path("/proc/meminfo").read_text())
    if memory is not None:
        found[thresholds.MEMORY] = memory
    found[thresholds.PIDS] = _processes()
    return found


def _memory(text: str) -> Level | None:
    told = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "MemAvailable" not in told or "MemTotal" not in told:
        return None
    available, total = (int(told[each].split()[0]) << 10 for each in ("MemAvailable", "MemTotal"))
    return Level(available, total)


def _processes() -> Level:
    """Threads are counted, as the kernel counts them."""
    bounds = ("pid_max", "threads-max")
    most = min(int(Path("/proc/sys/kernel", each).read_text()) for each in bounds)
    there = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    return Level(max(0, most - there), most)

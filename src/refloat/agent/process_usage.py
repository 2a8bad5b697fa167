# SPDX-License-Identifier: Apache-2.0
"""Measures a node whose containers are processes of this machine.

The keeper counts the memory and the processes of containers. This module counts the
files in the pods' folders, and reads from the kernel what the machine has left. All
nodes on one machine share that.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from refloat.client import errors
from refloat.policy.node import eviction_thresholds as thresholds
from refloat.policy.node.kubelet_eviction import (
    ContainerUsage,
    Level,
    PodUsage,
    Usage,
    VolumeUsage,
)

_VOLUMES, _LOGS = "volumes/", "logs/"

SizeLimits = Callable[[str], Awaitable[Mapping[str, str]]]
"""Returns the `sizeLimit` of each emptyDir that has one, for the uid of a pod."""


class ContainerSample(Protocol):
    """The measured usage of one container."""

    @property
    def processes(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...


class Meter(Protocol):
    """The part of the process runtime that measures."""

    def pods(self) -> Sequence[str]: ...

    async def usage(self) -> Mapping[str, Mapping[str, ContainerSample]]: ...

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
        """Never: processes outside Refloat may fill the machine too."""
        return False

    async def measure(self) -> Usage:
        uids = self._meter.pods()
        used = await self._meter.usage() if uids else {}
        pods = {uid: await self._pod(uid, used.get(uid, {})) for uid in uids}
        self._limits = {uid: each for uid, each in self._limits.items() if uid in pods}
        return Usage(self._machine(self._folder), pods)

    async def _pod(self, uid: str, used: Mapping[str, ContainerSample]) -> PodUsage:
        files = await self._meter.disk_usage(uid)
        sizes = {
            name.removeprefix(_VOLUMES): size
            for name, size in files.items()
            if name.startswith(_VOLUMES)
        }
        if sizes and uid not in self._limits:
            # Without an answer the next measurement reads them: the API may be away for long.
            with contextlib.suppress(errors.ClientError):
                self._limits[uid] = await self._size_limits(uid)
        limits = self._limits.get(uid, {})
        return PodUsage(
            memory=sum(each.memory_bytes for each in used.values()),
            storage=sum(files.values()),
            pids=sum(each.processes for each in used.values()),
            containers={  # the only file of a container is its log
                name: ContainerUsage(each.memory_bytes, files.get(_LOGS + name, 0))
                for name, each in used.items()
            },
            volumes={name: VolumeUsage(size, limits.get(name, "")) for name, size in sizes.items()},
        )


def levels(folder: Path) -> dict[str, Level]:
    """What the machine has left, and the disk of a folder."""
    disk = os.statvfs(folder)
    levels_by_signal = {
        thresholds.DISK: Level(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
    }
    memory = _memory(Path("/proc/meminfo").read_text())
    if memory is not None:
        levels_by_signal[thresholds.MEMORY] = memory
    # Processes and threads, because the kernel's limits count threads.
    bounds = ("pid_max", "threads-max")
    most = min(int(Path("/proc/sys/kernel", each).read_text()) for each in bounds)
    threads = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    levels_by_signal[thresholds.PIDS] = Level(max(0, most - threads), most)
    return levels_by_signal


def _memory(text: str) -> Level | None:
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    if "MemAvailable" not in fields or "MemTotal" not in fields:
        return None
    available, total = (int(fields[each].split()[0]) << 10 for each in ("MemAvailable", "MemTotal"))
    return Level(available, total)

# SPDX-License-Identifier: Apache-2.0
"""Measures the usage of a node and of its pods, for evictions.

`UsageMeter` is the interface; the scripts of simulated containers have their usage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from refloat.agent.simulated import Script, SimulatedRuntime
from refloat.api import quantity
from refloat.policy.node import eviction_thresholds as thresholds
from refloat.policy.node.kubelet_eviction import (
    ContainerUsage,
    Level,
    PodUsage,
    Usage,
    VolumeUsage,
)

# Process ids of a simulated node: Linux' own default.
PIDS = 32768


class UsageMeter(Protocol):
    """Measures a node."""

    def is_idle(self) -> bool:
        """Whether there is nothing to measure."""
        ...

    async def measure(self) -> Usage:
        """Measure now. This may take seconds, because a meter may count files."""
        ...


@dataclass(slots=True)
class SimulatedUsage:
    """The usage of a simulated node, from the scripts of its containers."""

    runtime: SimulatedRuntime
    capacity: Mapping[str, str]
    taken: dict[str, int] = field(default_factory=dict)
    """Further usage besides the containers, by signal, for tests."""

    def is_idle(self) -> bool:
        return not self.taken and not self.runtime.measured

    async def measure(self) -> Usage:
        pods: dict[str, PodUsage] = {}
        for uid, name, entry in self.runtime.running():
            pods[uid] = _with(pods.get(uid, PodUsage()), name, entry)
        used = {
            thresholds.MEMORY: sum(each.memory for each in pods.values()),
            thresholds.DISK: sum(each.storage for each in pods.values()),
            thresholds.PIDS: sum(each.pids for each in pods.values()),
        }
        return Usage({each: self._level(each, used[each]) for each in used}, pods)

    def _level(self, signal: str, used: int) -> Level:
        resource = thresholds.RESOURCES[signal]
        text = self.capacity.get(resource, "0")
        capacity = PIDS if signal == thresholds.PIDS else quantity.int_value(text)
        return Level(max(0, capacity - used - self.taken.get(signal, 0)), capacity)


def _with(pod: PodUsage, name: str, entry: Script) -> PodUsage:
    memory, files = quantity.int_value(entry.memory), quantity.int_value(entry.storage)
    volumes = {
        each: VolumeUsage(quantity.int_value(volume.used), volume.size_limit)
        for each, volume in entry.volumes.items()
    }
    return PodUsage(
        pod.memory + memory,
        pod.storage + files + sum(each.used for each in volumes.values()),
        pod.pids + entry.pids,
        {**pod.containers, name: ContainerUsage(memory, files)},
        {**pod.volumes, **volumes},
    )

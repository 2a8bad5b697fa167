# SPDX-License-Identifier: Apache-2.0
"""What the pods of a node take of it, and what is left: the numbers that evictions go by.

`Usage` is what whoever runs containers offers; simulated ones say in their
scripts what they take.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from refloat.agent.simulated import Script, SimulatedRuntime
from refloat.api import quantity
from refloat.policy import eviction_thresholds as thresholds
from refloat.policy.kubelet_eviction import ContainerUsage, Level, Measured, PodUsage, VolumeUsage

# Process ids of a simulated node: Linux' own default.
PIDS = 32768


class Usage(Protocol):
    """Measures a node."""

    def is_idle(self) -> bool:
        """Whether there is nothing to measure, so that nobody need look."""
        ...

    async def measure(self) -> Measured:
        """How things stand now. May take a while: files are counted."""
        ...


@dataclass(slots=True)
class SimulatedUsage:
    """A simulated node: its capacity, and what its containers say that they take."""

    runtime: SimulatedRuntime
    capacity: Mapping[str, str]
    taken: dict[str, int] = field(default_factory=dict)
    """Beside the containers, by signal: what tests take away."""

    def is_idle(self) -> bool:
        return not self.taken and not self.runtime.measured

    async def measure(self) -> Measured:
        pods: dict[str, PodUsage] = {}
        for uid, name, told in self.runtime.running():
            pods[uid] = _with(pods.get(uid, PodUsage()), name, told)
        used = {
            thresholds.MEMORY: sum(each.memory for each in pods.values()),
            thresholds.DISK: sum(each.storage for each in pods.values()),
            thresholds.PIDS: sum(each.pids for each in pods.values()),
        }
        return Measured({each: self._level(each, used[each]) for each in used}, pods)

    def _level(self, signal: str, used: int) -> Level:
        resource = thresholds.RESOURCES[signal]
        text = self.capacity.get(resource, "0")
        capacity = PIDS if signal == thresholds.PIDS else quantity.int_value(text)
        return Level(max(0, capacity - used - self.taken.get(signal, 0)), capacity)


def _with(pod: PodUsage, name: str, told: Script) -> PodUsage:
    memory, files = quantity.int_value(told.memory), quantity.int_value(told.storage)
    volumes = {
        each: VolumeUsage(quantity.int_value(volume.used), volume.size_limit)
        for each, volume in told.volumes.items()
    }
    return PodUsage(
        pod.memory + memory,
        pod.storage + files + sum(each.used for each in volumes.values()),
        pod.pids + told.pids,
        {**pod.containers, name: ContainerUsage(memory, files)},
        {**pod.volumes, **volumes},
    )

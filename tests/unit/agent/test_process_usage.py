# SPDX-License-Identifier: Apache-2.0
"""What is measured of processes, and of this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from refloat.agent.process_usage import ProcessUsage, levels
from refloat.agent.usage import UsageMeter
from refloat.policy.node.eviction_thresholds import SIGNALS
from refloat.policy.node.kubelet_eviction import ContainerUsage, VolumeUsage
from refloat.sim.run import Sim
from tests.virtual import virtual


@dataclass
class _Taken:
    processes: int
    memory_bytes: int


class _Meter:
    def __init__(self) -> None:
        self.uids = ["u", "v"]
        self.asked = 0

    def pods(self) -> list[str]:
        return self.uids

    async def usage(self) -> dict[str, dict[str, _Taken]]:
        self.asked += 1
        return {"u": {"a": _Taken(2, 100), "b": _Taken(1, 50)}, "v": {"c": _Taken(1, 7)}}

    async def disk_usage(self, uid: str) -> dict[str, int]:
        if uid == "u":
            return {"volumes/tmp": 30, "logs/a": 3, "logs/b": 2}
        return {"logs/c": 9}


def test_a_machine_has_all_that_can_be_low(tmp_path: Path) -> None:
    measurement = levels(tmp_path)
    assert sorted(measurement) == sorted(SIGNALS)
    for each in measurement.values():
        assert 0 < each.available <= each.capacity


@virtual()
async def test_pods_are_the_sum_of_their_parts(sim: Sim) -> None:
    uids: list[str] = []

    async def limits(uid: str) -> Mapping[str, str]:
        uids.append(uid)
        return {"tmp": "1Gi"}

    usage: UsageMeter = ProcessUsage(_Meter(), Path("/"), limits)
    measured = await usage.measure()
    first, second = measured.pods["u"], measured.pods["v"]
    assert (first.memory, first.storage, first.pids) == (150, 35, 3)
    assert first.volumes == {"tmp": VolumeUsage(30, "1Gi")}
    assert first.containers == {"a": ContainerUsage(100, 3), "b": ContainerUsage(50, 2)}
    assert second.containers == {"c": ContainerUsage(7, 9)}
    await usage.measure()
    assert uids == ["u"]  # once for each pod that has volumes


@virtual()
async def test_nobody_is_asked_when_there_are_no_pods(sim: Sim) -> None:
    async def limits(uid: str) -> Mapping[str, str]:
        raise AssertionError(uid)

    meter = _Meter()
    meter.uids = []
    usage = ProcessUsage(meter, Path("/"), limits)
    assert not usage.is_idle()
    assert (await usage.measure()).pods == {}
    assert meter.asked == 0

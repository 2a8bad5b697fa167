# SPDX-License-Identifier: Apache-2.0
"""Starts a server with a meter, sends the attacks one after the other, and says what each cost."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e import cluster
from tests.hostile import attacks, leases
from tests.hostile.client import Target
from tests.hostile.meter import Meter

STALL_SECONDS = 0.100
ANSWER_BYTES = 10 * 10**6
GROWTH_BYTES = 50 * 10**6

MB = 10**6

SETTLE_SECONDS = 20.0
"""In which the server gives memory back: it does so a second after large requests, and a busy
machine takes longer."""

RENEWALS = 5
"""That are waited for after each attack: half a second of those of 100 nodes."""


@dataclass(frozen=True)
class Cost:
    """What one attack cost the server and the nodes."""

    name: str
    codes: dict[int, int]
    busy: float  # processor time of the longest callback, seconds
    late: float  # the latest tick of the loop by the wall's clock, seconds
    answer: int  # bytes of the largest answer
    peak: int  # bytes of memory more than before, at the worst moment
    growth: int  # bytes of memory more than before the first attack, once it is over
    slowest_lease: float  # seconds of the slowest renewal
    refused_leases: int

    def excesses(self, growth: int = GROWTH_BYTES) -> list[str]:
        """What of this is more than allowed and does not depend on how busy the machine is."""
        found = []
        if self.busy > STALL_SECONDS:
            found.append(f"{self.name}: one callback took {self.busy * 1000:.0f} ms")
        if self.answer > ANSWER_BYTES:
            found.append(f"{self.name}: an answer of {self.answer / MB:.1f} MB")
        if self.growth > growth:
            found.append(f"{self.name}: memory grew by {self.growth / MB:.0f} MB")
        if self.refused_leases:
            found.append(f"{self.name}: {self.refused_leases} renewals failed")
        return found

    def __str__(self) -> str:
        codes = " ".join(f"{code}:{count}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.name:58} {self.busy * 1000:7.0f} {self.late * 1000:7.0f}"
            f" {self.answer / MB:8.2f} {self.peak / MB:7.0f} {self.growth / MB:7.0f}"
            f" {self.slowest_lease * 1000:8.0f}  {codes}"
        )


HEADER = (
    f"{'request':58} {'busy':>7} {'late':>7} {'answer':>8} {'peak':>7} {'growth':>7}"
    f" {'lease':>8}  codes\n{'':58} {'ms':>7} {'ms':>7} {'MB':>8} {'MB':>7} {'MB':>7} {'ms':>8}"
)


class MeasuredServer(cluster.Server):
    """A `refloat up` that tells how long its callbacks take."""

    def __init__(self, data_dir: Path, loop: str) -> None:
        self._loop = loop
        self.meter = Meter(data_dir.with_name(f"{data_dir.name}.meter"))
        super().__init__(data_dir)

    def command(self, *args: str) -> list[str]:
        meter = str(self.data_dir.with_name(f"{self.data_dir.name}.meter"))
        return [sys.executable, "-m", "tests.hostile.meter", meter, self._loop, *args]

    @property
    def memory(self) -> tuple[int, int]:
        """The bytes of memory now, and the most since the last reset."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return tuple(int(found[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]

    def reset(self) -> None:
        self.meter.reset()
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")  # the peak


@contextmanager
def measured_server(data_dir: Path, loop: str) -> Iterator[MeasuredServer]:
    server = MeasuredServer(data_dir, loop)
    try:
        yield server
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.end()
        server.kill()
    assert "Traceback" not in server.errors(), server.errors()[-4000:]


@asynccontextmanager
async def under_attack(data_dir: Path, loop: str) -> AsyncIterator["Siege"]:
    """A server with 100 nodes and some objects."""
    with measured_server(data_dir, loop) as server:
        port = int((data_dir / "port").read_text())
        target = Target.of(data_dir, port)
        async with leases.renewed(target) as renewals:
            await attacks.prepare(target)
            yield Siege(server, target, renewals)


@dataclass
class Siege:
    """The server, the attacker and the nodes."""

    server: MeasuredServer
    target: Target
    renewals: leases.Renewals
    base: int = 0

    async def costs(self, chosen: Iterable[attacks.Attack]) -> AsyncIterator[Cost]:
        self.base = self.server.memory[0]
        for attack in chosen:
            yield await self.cost(attack)

    async def _settled_memory(self) -> int:
        """What the server has when it has given back what it can, or when that takes too long."""
        deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
        while (now := self.server.memory[0]) - self.base > GROWTH_BYTES:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.1)
        return now

    async def cost(self, attack: attacks.Attack) -> Cost:
        """Send one attack and measure until some nodes were heard once more."""
        before = self.server.memory[0]
        self.target.reset()
        self.renewals.reset()
        self.server.reset()
        await attack.send(self.target)
        seen = self.renewals.count
        while self.renewals.count < seen + RENEWALS:
            await asyncio.sleep(0.01)
        busy, late = self.server.meter.read()
        peak = self.server.memory[1]
        now = await self._settled_memory()
        return Cost(
            attack.name,
            self.target.codes,
            busy,
            late,
            0 if attack.reads_all else self.target.largest,
            peak - before,
            now - self.base,
            self.renewals.slowest,
            self.renewals.refused,
        )

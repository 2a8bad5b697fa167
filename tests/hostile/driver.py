# SPDX-License-Identifier: Apache-2.0
"""Sends the attacks one by one to a server with a meter, and reports the cost of each."""

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
from tests.hostile.client import AttackTarget
from tests.hostile.meter import ServerMeter

STALL_SECONDS = 0.100
ANSWER_BYTES = 10 * 10**6
GROWTH_BYTES = 50 * 10**6

MB = 10**6

SETTLE_SECONDS = 20.0
"""The server returns memory a second after large requests; a busy machine takes longer."""

STILL_SECONDS = 3.0
"""Memory that does not change by 1 MB in this time stands still."""

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
    growth: int  # bytes of memory more than before the first attack, at most 20 s after this one
    slowest_lease: float  # seconds of the slowest renewal
    refused_leases: int

    def delays(self) -> list[str]:
        """What of this holds the server or the nodes longer than allowed."""
        lines = []
        if self.busy > STALL_SECONDS:
            lines.append(f"{self.name}: one callback took {self.busy * 1000:.0f} ms")
        if self.answer > ANSWER_BYTES:
            lines.append(f"{self.name}: an answer of {self.answer / MB:.1f} MB")
        if self.refused_leases:
            lines.append(f"{self.name}: {self.refused_leases} renewals failed")
        return lines

    def excesses(self) -> list[str]:
        """What of this is more than allowed."""
        if self.growth <= GROWTH_BYTES:
            return self.delays()
        return [*self.delays(), f"{self.name}: memory grew by {self.growth / MB:.0f} MB"]

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


class MeasuredServer(cluster.ServerProcess):
    """A `refloat up` that reports the duration of callbacks."""

    def __init__(self, data_dir: Path, loop: str) -> None:
        self._loop = loop
        self.meter = ServerMeter(data_dir.with_name(f"{data_dir.name}.meter"))
        super().__init__(data_dir)

    def command(self, *args: str) -> list[str]:
        meter = str(self.data_dir.with_name(f"{self.data_dir.name}.meter"))
        return [sys.executable, "-m", "tests.hostile.meter", meter, self._loop, *args]

    @property
    def memory(self) -> tuple[int, int]:
        """The bytes of memory now, and the most since the last reset."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[return-value]

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
        target = AttackTarget.of(data_dir, port)
        async with leases.renewed(target) as renewals:
            await attacks.prepare(target)
            yield Siege(server, target, renewals)


@dataclass
class Siege:
    """The server, the attacker and the nodes."""

    server: MeasuredServer
    target: AttackTarget
    renewals: leases.LeaseRenewals
    base: int = 0

    async def costs(self, selection: Iterable[attacks.Attack]) -> AsyncIterator[Cost]:
        self.base = self.server.memory[0]
        for attack in selection:
            yield await self.cost(attack)

    async def _settled_memory(self) -> int:
        """The memory at the first moment below the bound, or when that takes too long."""
        deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
        while (now := self.server.memory[0]) - self.base > GROWTH_BYTES:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.1)
        return now

    async def final_growth(self) -> int:
        """Bytes of memory more than before the first attack, once the memory stands still."""
        deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
        now = self.server.memory[0]
        while asyncio.get_running_loop().time() < deadline:
            before = now
            await asyncio.sleep(STILL_SECONDS)
            now = self.server.memory[0]
            if abs(now - before) < MB:
                break
        return now - self.base

    async def cost(self, attack: attacks.Attack) -> Cost:
        """Send one attack and measure until some nodes were heard once more."""
        before = self.server.memory[0]
        self.target.reset()
        self.renewals.reset()
        self.server.reset()
        await attack.send(self.target)
        count = self.renewals.count
        while self.renewals.count < count + RENEWALS:
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

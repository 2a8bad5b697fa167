# SPDX-License-Identifier: Apache-2.0
"""Refloat's processes, as users run them, and what they cost."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

# What is not up by then will not come.
START_SECONDS = 30.0

# A process that takes less of a core than this, so many times in a row, is idle.
QUIET_SHARE = 0.03
QUIET_LOOKS = 3
LOOK_SECONDS = 1.0

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """A process under measurement, of whichever program."""

    pid: int

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * _PAGE

    def peak_bytes(self) -> int:
        """The most that was ever resident."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"process {self.pid} has ended")

    def cpu_seconds(self) -> float:
        """Of all its threads, in user and kernel mode."""
        # The second field is the name, in brackets, and may hold anything.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    async def settled(self) -> None:
        """Wait until it has nothing more to do: its caches are full, its Jobs looked at."""
        quiet, before = 0, self.cpu_seconds()
        while quiet < QUIET_LOOKS:
            await asyncio.sleep(LOOK_SECONDS)
            now = self.cpu_seconds()
            quiet = quiet + 1 if now - before <= QUIET_SHARE * LOOK_SECONDS else 0
            before = now


@dataclass(frozen=True, slots=True)
class Running(Process):
    """A server under measurement."""

    url: str
    token: str
    authority: Path
    ready_seconds: float


@dataclass(frozen=True, slots=True)
class Manager(Process):
    """A manager under measurement."""

    metrics: str
    """The address of its metrics."""


@asynccontextmanager
async def server(data_dir: Path, *more: str) -> AsyncIterator[Running]:
    """`refloat up` until the block ends; the API server alone unless `more` says otherwise."""
    started = time.monotonic()
    arguments = more or ("--controllers", "none")
    if "--nodes" not in arguments:
        arguments = (*arguments, "--nodes", "0")
    async with refloat("up", "--data-dir", str(data_dir), *arguments) as (process, output):
        line = await _line(output)
        yield Running(
            process.pid,
            line.split()[-1],
            (data_dir / "admin.token").read_text().strip(),
            data_dir / "pki" / "ca.crt",
            time.monotonic() - started,
        )


@asynccontextmanager
async def manager(kubeconfig: Path, *more: str) -> AsyncIterator[Manager]:
    """`refloat manager` on that cluster, until the block ends."""
    arguments = ("--kubeconfig", str(kubeconfig), "--log-level", "warning", *more)
    async with refloat("manager", *arguments) as (process, output):
        while "metrics at" not in (line := await _line(output)):
            pass
        yield Manager(process.pid, f"{line.split()[-1]}/metrics")


@asynccontextmanager
async def refloat(
    *arguments: str,
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """A command of Refloat's, with what it prints, until the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from refloat.cli.main import main; main()",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _line(output: asyncio.StreamReader) -> str:
    async with asyncio.timeout(START_SECONDS):
        line = await output.readline()
    if not line:
        raise RuntimeError("the process ended before it was ready; what it said is above")
    return line.decode()

# SPDX-License-Identifier: Apache-2.0
"""Refloat's processes, started as users start them, with their memory and CPU."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

# A process that is not ready by then is stuck.
START_SECONDS = 30.0

# A process that takes less of a core than this, so many times in a row, is idle.
QUIET_SHARE = 0.03
QUIET_POLLS = 3
POLL_SECONDS = 1.0

Output: TypeAlias = tuple[asyncio.subprocess.Process, asyncio.StreamReader]

_PAGE = os.sysconf("SC_PAGE_SIZE")
# The resolution of CPU times.
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class MeasuredProcess:
    """The memory and CPU of a process of any program."""

    pid: int

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * _PAGE

    def peak_bytes(self) -> int:
        """The highest resident memory so far."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"process {self.pid} has ended")

    def cpu_seconds(self) -> float:
        """The CPU time of all threads, in user and kernel mode."""
        # The second field is the name, in brackets, and may contain anything.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_SECONDS

    async def settled(self) -> None:
        """Wait until the process is idle: the caches are full and no reconcile is left."""
        quiet, before = 0, self.cpu_seconds()
        while quiet < QUIET_POLLS:
            await asyncio.sleep(POLL_SECONDS)
            now = self.cpu_seconds()
            quiet = quiet + 1 if now - before <= QUIET_SHARE * POLL_SECONDS else 0
            before = now


@dataclass(frozen=True, slots=True)
class ServerProcess(MeasuredProcess):
    """A running `refloat up`."""

    url: str
    token: str
    authority: Path
    ready_seconds: float


@dataclass(frozen=True, slots=True)
class ManagerProcess(MeasuredProcess):
    """A running `refloat manager`."""

    metrics: str
    """The URL of the manager's metrics."""


@asynccontextmanager
async def server(data_dir: Path, *flags: str) -> AsyncIterator[ServerProcess]:
    """`refloat up` until the block ends; without flags, the API server alone."""
    started = time.monotonic()
    arguments = flags or ("--controllers", "none")
    if "--nodes" not in arguments:
        arguments = (*arguments, "--nodes", "0")
    async with refloat("up", "--data-dir", str(data_dir), *arguments) as (process, output):
        line = await _line(output)
        yield ServerProcess(
            process.pid,
            line.split()[-1],
            (data_dir / "admin.token").read_text().strip(),
            data_dir / "pki" / "ca.crt",
            time.monotonic() - started,
        )


@asynccontextmanager
async def manager(kubeconfig: Path, *flags: str) -> AsyncIterator[ManagerProcess]:
    """`refloat manager` on that cluster, until the block ends."""
    arguments = ("--kubeconfig", str(kubeconfig), "--log-level", "warning", *flags)
    async with refloat("manager", *arguments) as (process, output):
        while "metrics at" not in (line := await _line(output)):
            pass
        yield ManagerProcess(process.pid, f"{line.split()[-1]}/metrics")


def refloat(*arguments: str) -> AbstractAsyncContextManager[Output]:
    """A command of Refloat and its output, until the block ends."""
    return python("refloat.cli.main", *arguments)


@asynccontextmanager
async def python(module: str, *arguments: str) -> AsyncIterator[Output]:
    """The `main` of a module in a new process and its output, until the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        f"from {module} import main; main()",
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
        raise RuntimeError("the process ended before it was ready; its errors are above")
    return line.decode()

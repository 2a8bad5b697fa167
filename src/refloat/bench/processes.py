# SPDX-License-Identifier: Apache-2.0
"""Refloat as a separate process, as users run it."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

# A server that is not up by then will not come.
START_SECONDS = 30.0

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Running:
    """A server under measurement."""

    pid: int
    url: str
    token: str
    authority: Path
    ready_seconds: float

    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * _PAGE


@asynccontextmanager
async def server(data_dir: Path) -> AsyncIterator[Running]:
    """`refloat up`, the API server alone, until the block ends."""
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from refloat.cli.main import main; main()",
        "up",
        "--data-dir",
        str(data_dir),
        "--controllers",
        "none",
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = (await process.stdout.readline()).decode()
        yield Running(
            process.pid,
            line.split()[-1],
            (data_dir / "admin.token").read_text().strip(),
            data_dir / "pki" / "ca.crt",
            time.monotonic() - started,
        )
    finally:
        process.terminate()
        await process.wait()

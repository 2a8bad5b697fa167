# SPDX-License-Identifier: Apache-2.0
"""Commands that are ended with all that they have started, however it comes to that."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from refloat.agent.keeper import linux

# How long a command may take to clean up after itself.
END_SECONDS = 15.0


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    env: dict[str, str],
    output: IO[Any] | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """A command in a session of its own; if it still runs when the block ends, it is ended.

    It hears of the end of whoever started it as of a Ctrl-C, and cleans up.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_hear_of_the_end,  # noqa: PLW1509 - a system call, no more
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            end(process)


def _hear_of_the_end() -> None:
    linux.die_with_parent(signal.SIGINT)


def end(process: "subprocess.Popen[bytes]") -> None:
    """As Ctrl-C would, and then without asking: it and whatever it has started."""
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    # Its session has its number for as long as anybody is left in it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

# SPDX-License-Identifier: Apache-2.0
"""Commands that end with all processes that they started."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from refloat.agent.keeper import syscalls

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
    """A command in a session of its own; the end of the block ends the command.

    The command gets SIGINT, as by Ctrl-C, when its starter ends, and cleans up.
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
    syscalls.die_with_parent(signal.SIGINT)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End the command and all that it started: first as Ctrl-C would, then by SIGKILL."""
    os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    # A session keeps its number as long as a process is left in that session.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

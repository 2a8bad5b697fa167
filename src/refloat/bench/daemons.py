# SPDX-License-Identifier: Apache-2.0
"""Programs that run in the background until a block ends, however it ends.

Each writes into a log of its own, is asked whether it is ready, and is stopped
by its pid. One that dies while it is waited for is told with the end of its
log, because that is where the reason is. Whoever started it and is killed takes
it along.
"""

import http.client
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from refloat.agent.keeper import linux
from refloat.base.errors import RefloatError

# On two busy cores an API server takes 20 s; what takes five times that is stuck.
READY_SECONDS = 120.0

# An API server ends its requests first; then nobody waits any more.
STOP_SECONDS = 20.0

LOOK_SECONDS = 0.1
TAIL_LINES = 15

Ready = Callable[[], bool]


class DaemonError(RefloatError):
    """A program could not be started, died, or did not become ready."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A page that answers 200 when a program is ready."""

    port: int
    path: str
    context: ssl.SSLContext | None = None
    token: str = ""

    def __call__(self) -> bool:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection = self._connection()
        try:
            connection.request("GET", self.path, headers=headers)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self.context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=self.context)


class Daemon:
    """One running program."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self.name = Path(command[0]).name
        self.log = log
        try:
            with log.open("ab") as output:
                # A session of its own: Ctrl-C is for whoever started it, who ends it in order.
                self._process = subprocess.Popen(  # noqa: S603 - a program that the caller chose
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=linux.die_with_parent,  # noqa: PLW1509 - a system call, no more
                )
        except OSError as error:
            raise DaemonError(f"cannot start {command[0]}: {error.strerror}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Ready, what: str, seconds: float = READY_SECONDS) -> None:
        """Wait for its answer; raises when it dies or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._process.poll() is not None:
                raise DaemonError(self._death())
            if time.monotonic() > deadline:
                raise DaemonError(f"{self.name}: no {what} within {seconds:.0f} s\n{self.tail()}")
            time.sleep(LOOK_SECONDS)

    def _death(self) -> str:
        tail = self.tail()
        if "address already in use" in tail:
            why = "a port that it needs is taken by another program; run it again"
        elif "no space left on device" in tail:
            why = f"the disk of {self.log.parent} is full; make room and run it again"
        else:
            why = f"it ended with {self._process.returncode}"
        return f"{self.name}: {why}\n{tail}"

    def tail(self) -> str:
        """The last lines of its log, and where the rest is."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"the end of {self.log}:", *(f"  {line}" for line in lines)])

    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, make it end; returns when it is gone."""
        if self.is_running():
            self._process.send_signal(by)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

# SPDX-License-Identifier: Apache-2.0
"""Programs that run in the background until a block ends.

Each program writes a log and has a probe for readiness. If a program dies before
it is ready, the error shows the end of the log, which has the reason. The kernel
kills a program together with the process that started it.
"""

import http.client
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from refloat.agent.keeper import syscalls
from refloat.base.errors import RefloatError

# An API server takes 20 s on two busy cores; a program that takes six times that is stuck.
READY_SECONDS = 120.0

# An API server first ends its requests; a program that takes longer is killed.
STOP_SECONDS = 20.0

POLL_SECONDS = 0.1
TAIL_LINES = 15

# Why a program died, by the words for it in its log; `{folder}` is the folder of the log.
_CAUSES = {
    "address already in use": "another program uses one of its ports; try again",
    "no space left on device": "the disk of {folder} is full; free some space and try again",
}

Ready = Callable[[], bool]


class DaemonError(RefloatError):
    """A program did not start, died, or did not become ready."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A URL that returns 200 when a program is ready."""

    port: int
    path: str
    context: ssl.SSLContext | None = None
    token: str = ""

    def __call__(self) -> bool:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection = (
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            if self.context is None
            else http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=5, context=self.context
            )
        )
        try:
            connection.request("GET", self.path, headers=headers)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class Daemon:
    """One running program."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self.name = Path(command[0]).name
        self.log = log
        try:
            with log.open("ab") as output:
                # A new session, because Ctrl-C is for the caller, which ends programs in order.
                self._process = subprocess.Popen(  # noqa: S603 - a program that the caller chose
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=syscalls.die_with_parent,  # noqa: PLW1509 - a system call, no more
                )
        except OSError as error:
            raise DaemonError(f"cannot start {command[0]}: {error.strerror}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Ready, what: str, seconds: float = READY_SECONDS) -> None:
        """Wait until the program is ready; raises if the program dies or takes too long."""
        deadline = time.monotonic() + seconds
        while not ready():
            if (code := self._process.poll()) is not None:
                tail = self.tail()
                causes = (cause for words, cause in _CAUSES.items() if words in tail)
                cause = next(causes, f"ended with exit code {code}")
                raise DaemonError(f"{self.name}: {cause.format(folder=self.log.parent)}\n{tail}")
            if time.monotonic() > deadline:
                raise DaemonError(f"{self.name}: no {what} within {seconds:.0f} s\n{self.tail()}")
            time.sleep(POLL_SECONDS)

    def tail(self) -> str:
        """The last lines of the log, and the path of the log."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"the end of {self.log}:", *(f"  {line}" for line in lines)])

    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal, then SIGKILL; return when the program has ended."""
        if self.is_running():
            self._process.send_signal(by)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

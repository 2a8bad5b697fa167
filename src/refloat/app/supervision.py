# SPDX-License-Identifier: Apache-2.0
"""The agents of an embedded cluster: each a process, started again when it ends by itself.

An agent ends with the process that started it, however that ends. Its
containers do not: they are the keeper's, and the agents of the next start find
them again. Only who is told to stop takes them along.
"""

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

from refloat.agent.keeper import linux
from refloat.app import certificates, files, keepers, kubeconfig, tokens
from refloat.app.faults import CUT, MEND, Fault
from refloat.base.clock import Clock
from refloat.base.tasks import Tasks

log = logging.getLogger(__name__)

# An agent that cannot run is not to keep the machine busy with its starts.
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0

# One that ran for so long was well.
WELL_SECONDS = 60.0

# For an agent to end its pods: their part of a shutdown, and some seconds to say so.
STOP_SECONDS = 45.0

# For a keeper to kill what is left; it takes some ten milliseconds.
KEEPER_SECONDS = 10.0

# With these a node's containers run on.
_LESSER = ("freeze", "partition")

_SIGNALS = {"crash": signal.SIGKILL, "freeze": signal.SIGSTOP, "partition": CUT}

Process: TypeAlias = subprocess.Popen[bytes]

_REFLOAT = (sys.executable, "-c", "from refloat.cli.main import main; main()")


def commands(data_dir: Path, server: str, count: int, flags: Sequence[str]) -> dict[str, list[str]]:
    """What is run for so many nodes, by name; each gets a kubeconfig of its own."""
    names = (f"n{number}" for number in range(1, count + 1))
    return {name: command(data_dir, server, name, flags) for name in names}


def command(data_dir: Path, server: str, name: str, flags: Sequence[str]) -> list[str]:
    """What is run for one node, which gets a kubeconfig of its own."""
    authority = certificates.Paths.below(data_dir / "pki").authority.read_bytes()
    token = tokens.node_token(data_dir, name)
    access = data_dir / "nodes" / f"{name}.kubeconfig"
    content = kubeconfig.render(server=server, authority=authority, token=token)
    files.write(access, content)
    where = ("--kubeconfig", str(access), "--data-dir", str(data_dir), "--name", name)
    # The cluster is this user's own, and so are its pods.
    return [*_REFLOAT, "agent", *where, "--end-pods", "--trust-pods", *flags]


class Agents:
    """Runs one process for each node."""

    def __init__(self, commands: Mapping[str, Sequence[str]], folder: Path, clock: Clock) -> None:
        """`folder` has a folder for each node."""
        self._commands = dict(commands)
        self._folder = folder
        self._clock = clock
        self._running: dict[str, Process] = {}
        self._faults: dict[str, str] = {}
        self._renewed: set[str] = set()
        self._off: set[str] = set()
        self._changed = asyncio.Event()
        self._stopping = False
        self._tasks = Tasks()
        self._keeping: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for name in self._commands:
            self._keeping.append(self._tasks.spawn(self._keep(name), name=f"agent/{name}"))

    def names(self) -> list[str]:
        return list(self._commands)

    def fault(self, name: str) -> str | None:
        """What is the matter with a node."""
        return self._faults.get(name)

    def fail(self, name: str, fault: Fault) -> None:
        """Make a node fail, as `agent.fleet` says; a crash takes also what a lesser one left."""
        self._faults[name] = fault
        self._changed.set()
        self._signal(name, _SIGNALS[fault])
        if fault == "crash":
            keepers.end(self._folder / name)  # at once: it may be healed before its agent is gone

    def shut_down(self, name: str) -> None:
        """Have it end its pods with their grace, and go off."""
        self._faults[name] = "shutdown"
        self._changed.set()
        self._ask_to_end(name)

    def is_off(self, name: str) -> bool:
        """Whether nothing of it runs, agent or container, and nothing will before it is healed."""
        return name in self._off

    def heal(self, name: str) -> None:
        """Let a node return, whatever is the matter with it."""
        del self._faults[name]
        self._changed.set()
        for number in (signal.SIGCONT, MEND):
            self._signal(name, number)

    def renew(self, name: str, command: Sequence[str]) -> None:
        """Let another agent go on with a node at once; its containers run on."""
        self._commands[name] = command
        self._renewed.add(name)
        self._changed.set()
        self._signal(name, signal.SIGKILL)

    def _signal(self, name: str, number: int) -> None:
        if (process := self._running.get(name)) is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def _ask_to_end(self, name: str) -> None:
        self._signal(name, signal.SIGTERM)
        self._signal(name, signal.SIGCONT)  # one that is frozen could not end

    async def close(self) -> None:
        """Have all pods end with their grace, then agents and keepers."""
        self._stopping = True
        self._changed.set()
        for name in self._commands:
            if self._faults.get(name) in _LESSER:
                self.heal(name)  # one that is cut off could not say that its pods have ended
            self._ask_to_end(name)
        try:
            async with self._clock.timeout(STOP_SECONDS):
                await asyncio.gather(*self._keeping, return_exceptions=True)
        except TimeoutError:
            await self._kill_all()
        await self._tasks.close()
        await asyncio.gather(*map(self._end_keeper, self._commands))

    async def _kill_all(self) -> None:
        if self._running:
            log.error("agents that did not end in time are killed: %s", ", ".join(self._running))
        for process in self._running.values():
            process.kill()
            await _ended(process)

    async def _end_keeper(self, name: str) -> None:
        """Of an agent that did not; one that ended its pods has ended its keeper too."""
        try:
            async with self._clock.timeout(KEEPER_SECONDS), self._without_keeper(name):
                pass
        except TimeoutError:
            log.error("the keeper of node %s did not end in time, and is left behind", name)

    def _without_keeper(self, name: str) -> AbstractAsyncContextManager[None]:
        return keepers.none(self._folder / name, self._clock)

    async def _keep(self, name: str) -> None:
        wait = FIRST_SECONDS
        while not self._stopping:
            if name in self._faults:
                await self._stay_away(name, self._faults[name])
                continue
            self._renewed.discard(name)
            started = self._clock.monotonic()
            code = await self._run(name)
            if self._is_meant(name):
                continue
            if self._clock.monotonic() - started > WELL_SECONDS:
                wait = FIRST_SECONDS
            log.warning(
                "the agent of node %s ended with %d, and is started again in %g s", name, code, wait
            )
            await self._pause(name, wait)
            wait = min(2 * wait, LONGEST_SECONDS)
        await self._end_pods(name)

    def _is_meant(self, name: str) -> bool:
        """Whether somebody wants something else of a node than that its agent runs on."""
        return self._stopping or name in self._faults or name in self._renewed

    def _is_to_end(self, name: str) -> bool:
        fault = self._faults.get(name)
        return fault == "shutdown" or (self._stopping and fault != "crash")

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def _pause(self, name: str, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await self._until(lambda: self._is_meant(name))

    async def _stay_away(self, name: str, fault: str) -> None:
        """Until it is healed, or something worse is the matter."""
        if fault in _LESSER:
            await self._until(lambda: self._stopping or self._faults.get(name) not in _LESSER)
            return
        if fault == "shutdown":
            await self._end_pods(name)
        async with self._without_keeper(name):
            self._off.add(name)
            try:
                await self._until(lambda: self._stopping or name not in self._faults)
            finally:
                self._off.remove(name)

    async def _end_pods(self, name: str) -> None:
        """By a last agent, if one died before it could; it is told to end as it starts."""
        if self._is_to_end(name) and keepers.find(self._folder / name):
            await self._run(name)

    async def _run(self, name: str) -> int:
        try:
            process = self._running[name] = _started(self._commands[name])
        except OSError as error:  # too many processes, too little memory: that passes
            log.error("the agent of node %s cannot be started: %s", name, error)
            return os.EX_OSERR
        if self._is_to_end(name):
            self._ask_to_end(name)
        code = await _ended(process)
        del self._running[name]
        return code


def _started(command: Sequence[str]) -> Process:
    """Not by the event loop: under uvloop a child forgets which signals are held back."""
    return subprocess.Popen(  # noqa: S603 - our own
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for whoever started it
        preexec_fn=_before_exec,  # noqa: PLW1509 - it takes no lock
    )


async def _ended(process: Process) -> int:
    """Its exit code, once it has ended."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    line = os.pidfd_open(process.pid)
    loop.add_reader(line, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(line)
        os.close(line)
    return process.wait()


def _before_exec() -> None:
    """In the child: it dies with us, and hears of no end before it can see to one."""
    linux.die_with_parent()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, CUT, MEND])

# SPDX-License-Identifier: Apache-2.0
"""Runs the agents of an embedded cluster as processes, and restarts those that end.

An agent ends with the process that started it, in every case. The agent's
containers run on: they belong to the keeper, and the agents of the next start
find them again. Only an ordered stop ends the containers too.
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
from functools import partial
from pathlib import Path
from typing import TypeAlias

from refloat.agent.keeper import syscalls
from refloat.app import certificates, keepers, kubeconfig, private_files, tokens
from refloat.app.node_faults import CUT, MEND, Fault
from refloat.base.clock import Clock
from refloat.base.tasks import Tasks

log = logging.getLogger(__name__)

# The waits between starts, so that an agent that cannot run does not keep the machine busy.
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0

# After so long a run, the next wait is the first one again.
WELL_SECONDS = 60.0

# For an agent to end its pods: their part of a shutdown, and some seconds to report that.
STOP_SECONDS = 45.0

# For a keeper to kill the remaining containers; this takes some ten milliseconds.
KEEPER_SECONDS = 10.0

# During these faults a node's containers run on.
_LESSER = ("freeze", "partition")

_SIGNALS = {"crash": signal.SIGKILL, "freeze": signal.SIGSTOP, "partition": CUT}

Process: TypeAlias = subprocess.Popen[bytes]

_REFLOAT = (sys.executable, "-c", "from refloat.cli.main import main; main()")


def commands(data_dir: Path, server: str, count: int, flags: Sequence[str]) -> dict[str, list[str]]:
    """The commands for so many nodes, by name; each node gets a kubeconfig of its own."""
    names = (f"n{number}" for number in range(1, count + 1))
    return {name: command(data_dir, server, name, flags) for name in names}


def command(data_dir: Path, server: str, name: str, flags: Sequence[str]) -> list[str]:
    """The command for one node, which gets a kubeconfig of its own."""
    authority = certificates.Paths.below(data_dir / "pki").authority.read_bytes()
    token = tokens.node_token(data_dir, name)
    access = data_dir / "nodes" / f"{name}.kubeconfig"
    content = kubeconfig.render(server=server, authority=authority, token=token)
    private_files.write(access, content)
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
        """The fault of a node, if it has one."""
        return self._faults.get(name)

    def fail(self, name: str, fault: Fault) -> None:
        """Make a node fail, as in `agent.fleet`; a crash also ends what a lesser fault left."""
        self._faults[name] = fault
        self._changed.set()
        self._signal(name, _SIGNALS[fault])
        if fault == "crash":
            keepers.end(self._folder / name)  # at once: `heal` may come before the agent is gone

    def shut_down(self, name: str) -> None:
        """Let the node end its pods with their grace, and go off."""
        self._faults[name] = "shutdown"
        self._changed.set()
        self._ask_to_end(name)

    def is_off(self, name: str) -> bool:
        """Whether neither agent nor containers of the node run, nor will before `heal`."""
        return name in self._off

    def heal(self, name: str) -> None:
        """Let a node return from any fault."""
        del self._faults[name]
        self._changed.set()
        for number in (signal.SIGCONT, MEND):
            self._signal(name, number)

    def renew(self, name: str, command: Sequence[str]) -> None:
        """Replace the agent of a node at once; the containers run on."""
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
        self._signal(name, signal.SIGCONT)  # a frozen agent could not end

    async def close(self) -> None:
        """Let all pods end with their grace, then agents and keepers."""
        self._stopping = True
        self._changed.set()
        for name in self._commands:
            if self._faults.get(name) in _LESSER:
                self.heal(name)  # an agent without the API server could not report ended pods
            self._ask_to_end(name)
        try:
            async with self._clock.timeout(STOP_SECONDS):
                await asyncio.gather(*self._keeping, return_exceptions=True)
        except TimeoutError:
            if self._running:
                log.error("killing agents that did not end in time: %s", ", ".join(self._running))
            for process in self._running.values():
                process.kill()
                await _exit_code(process)
        await self._tasks.close()
        await asyncio.gather(*map(self._end_keeper, self._commands))

    async def _end_keeper(self, name: str) -> None:
        """End the keeper of an agent that did not end its pods."""
        try:
            async with self._clock.timeout(KEEPER_SECONDS), self._without_keeper(name):
                pass
        except TimeoutError:
            log.error("the keeper of node %s did not end in time, and still runs", name)

    def _without_keeper(self, name: str) -> AbstractAsyncContextManager[None]:
        return keepers.none(self._folder / name, self._clock)

    async def _keep(self, name: str) -> None:
        wait = FIRST_SECONDS
        while not self._stopping:
            fault = self._faults.get(name)
            if fault in _LESSER:  # until `heal`, or a worse fault
                await self._until(lambda: self._stopping or self._faults.get(name) not in _LESSER)
                continue
            if fault is not None:
                if fault == "shutdown":
                    await self._end_pods(name)
                async with self._without_keeper(name):
                    self._off.add(name)
                    try:
                        await self._until(lambda: self._stopping or name not in self._faults)
                    finally:
                        self._off.remove(name)
                continue
            self._renewed.discard(name)
            started = self._clock.monotonic()
            code = await self._run(name)
            if self._is_expected(name):
                continue
            if self._clock.monotonic() - started > WELL_SECONDS:
                wait = FIRST_SECONDS
            log.warning(
                "the agent of node %s ended with %d, and is started again in %g s", name, code, wait
            )
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(wait):
                    await self._until(partial(self._is_expected, name))
            wait = min(2 * wait, LONGEST_SECONDS)
        await self._end_pods(name)

    def _is_expected(self, name: str) -> bool:
        """Whether there is a reason for the end of the agent: a stop, a fault or a renewal."""
        return self._stopping or name in self._faults or name in self._renewed

    def _is_to_end(self, name: str) -> bool:
        fault = self._faults.get(name)
        return fault == "shutdown" or (self._stopping and fault != "crash")

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def _end_pods(self, name: str) -> None:
        """If the agent died before its pods ended, run a last agent, which ends them."""
        if self._is_to_end(name) and keepers.find(self._folder / name):
            await self._run(name)

    async def _run(self, name: str) -> int:
        try:
            process = self._running[name] = _start(self._commands[name])
        except OSError as error:  # too many processes, too little memory: a temporary error
            log.error("the agent of node %s cannot be started: %s", name, error)
            return os.EX_OSERR
        if self._is_to_end(name):
            self._ask_to_end(name)
        code = await _exit_code(process)
        del self._running[name]
        return code


def _start(command: Sequence[str]) -> Process:
    """Start without the event loop: uvloop resets the blocked signals of a child."""

    def before_exec() -> None:
        """In the child: let it die with its parent, and block signals until it has handlers."""
        syscalls.die_with_parent()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, CUT, MEND])

    return subprocess.Popen(  # noqa: S603 - our own
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # the terminal's Ctrl-C goes to `refloat up` only
        preexec_fn=before_exec,  # noqa: PLW1509 - it takes no lock
    )


async def _exit_code(process: Process) -> int:
    """Wait for the end of the process."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    line = os.pidfd_open(process.pid)
    loop.add_reader(line, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(line)
        os.close(line)
    return process.wait()

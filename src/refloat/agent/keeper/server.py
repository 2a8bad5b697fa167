# SPDX-License-Identifier: Apache-2.0
"""Serves the requests of agents, over a socket in the node's folder.

    hello     {}                               makes the sender the agent; machine features
    list      {}                               records of all attempts, and the deadlines
    start     {spec} (`process.start_request`) the record, once the container runs or failed
    stop      {pod, container, grace}          whether this is the first call
    prepare   {pod, container, grace}          runs the preStop hook; whether first call
    exec      {pod, container, argv, timeout}  exit code and output, after the end
    stats     {}                               processes and memory of live containers
    deadlines {at}                             ends pods at a CLOCK_BOOTTIME; null: never
    remove    {pod}                            forgets a pod without live containers
    shutdown  {}                               kills all containers and ends the keeper

The keeper accepts only processes of its own user, and none of a container
(`peer_check`). One connection is the agent. A `hello` replaces the previous agent, and
the keeper reads no further requests of that agent. So a frozen agent cannot start a
container that its successor has removed.
"""

import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from refloat.agent.keeper import (
    cgroups,
    container,
    peer_check,
    process_tree,
    seccomp,
    start_request,
    syscalls,
)
from refloat.agent.keeper.container import ContainerAttempt, ContainerTable
from refloat.agent.keeper.loop import READ, Loop, Timer
from refloat.agent.keeper.wire import KeeperConnection, Message

# Seconds between two measurements of memory, while a container with a limit runs.
MEASURE_SECONDS = 0.1

_PURGE_SECONDS, _PURGE_STEP_SECONDS = 10.0, 0.005

# Seconds between two kills of a pod whose deadline has passed: the first kill may have
# met an error, or a process that hangs in the kernel.
_FENCE_AGAIN_SECONDS = 1.0

# One agent, and some commands that look for the keeper's process.
_MAX_CONNECTIONS = 64

# The exceptions that a malformed request causes.
_MISTAKES = (
    AttributeError,
    KeyError,
    OSError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)

Answer = Callable[[Any], object]


class RequestError(Exception):
    """The keeper refuses a request; `code` is for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class KeeperServer:
    """All containers of one node."""

    def __init__(self, loop: Loop, table: ContainerTable, listener: socket.socket) -> None:
        self._loop, self._table, self._listener = loop, table, listener
        # By pod and container; the newest attempt is the last.
        self._attempts: dict[str, dict[str, list[ContainerAttempt]]] = {}
        self._waiting: dict[str, list[Answer]] = {}  # by id, until the container runs or failed
        self._deadlines: dict[str, Timer] = {}  # by pod, also past ones
        self._agent: KeeperConnection | None = None
        self._connections: set[KeeperConnection] = set()
        self._is_measuring = self._is_closing = False
        self._handlers: dict[str, Callable[[Message, Answer], None]] = {
            "hello": self._hello,
            "list": self._list,
            "start": self._start,
            "stop": functools.partial(self._stop, ContainerAttempt.stop),
            "prepare": functools.partial(self._stop, ContainerAttempt.prepare_stop),
            "exec": self._exec,
            "stats": self._stats,
            "deadlines": self._set_deadlines,
            "remove": self._remove,
            "shutdown": self._shutdown,
        }
        loop.watch(listener.fileno(), READ, lambda _: self._accept())

    def reap(self) -> None:
        """Handle all children that have ended."""
        strays = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            on_exit = self._table.children.pop(pid, None)
            if on_exit is None:
                strays = True
            else:
                on_exit(status)
        if strays:
            for each in list(self._table.live.values()):
                each.check_end()

    def close(self) -> None:
        """Kill all containers; the loop ends when no container is left."""
        self._is_closing = True
        self._listener.close()
        for each in list(self._table.live.values()):
            each.kill()
        self._end_if_empty()

    def finish(self) -> None:
        """Send the last answers to the agent, after the loop's end."""
        if self._agent is not None:
            self._agent.finish()

    def _end_if_empty(self) -> None:
        if self._is_closing and not self._table.live:
            self._loop.stop()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            end = self._listener.accept()[0]
            is_full = len(self._connections) >= _MAX_CONNECTIONS
            if is_full or peer_check.refusal(end, (os.getpid(),)):
                end.close()
                return
            self._connections.add(
                KeeperConnection(self._loop, end, self._on_message, self._on_close)
            )

    def _on_close(self, connection: KeeperConnection) -> None:
        self._connections.discard(connection)
        if self._agent is connection:
            self._agent = None

    def _on_message(self, connection: KeeperConnection, message: Message) -> None:
        number, op = message.get("id"), message.get("op")

        def answer(value: Any) -> None:
            connection.send({"id": number, "ok": value})

        try:
            if op == "hello":
                before, self._agent = self._agent, connection
                if before is not None and before is not connection:
                    before.send({"event": "replaced"})
                    before.close()
            handler = self._handlers.get(str(op))
            if handler is None:
                raise RequestError("Unknown", f"op: {op!r} is not known")
            handler(message, answer)
        except RequestError as error:
            connection.send({"id": number, "error": str(error), "code": error.code})
        except _MISTAKES as error:
            text = f"{op}: {type(error).__name__}: {error}"
            connection.send({"id": number, "error": text, "code": "Failed"})

    def _hello(self, message: Message, answer: Answer) -> None:
        groups = self._table.cgroups
        answer(
            {
                "pid": os.getpid(),
                "protocol": start_request.PROTOCOL,
                "mounts": self._table.view,
                "processes": groups.processes if groups is not None else cgroups.INHERITED,
                "memory": groups.memory if groups is not None else cgroups.MEASURED,
                "seccomp": seccomp.is_available(),
                "read_only_root": self._table.can_protect,
                "now": syscalls.now(),
            }
        )

    def _list(self, message: Message, answer: Answer) -> None:
        records = [
            each.record()
            for names in self._attempts.values()
            for attempts in names.values()
            for each in attempts
        ]
        deadlines = {pod: timer.when for pod, timer in self._deadlines.items()}
        answer({"containers": records, "deadlines": deadlines})

    def _start(self, message: Message, answer: Answer) -> None:
        spec = start_request.check(message["spec"])
        pod, name, attempt = spec["pod"], spec["container"], spec["attempt"]
        if self._is_closing:
            raise RequestError("Closing", "the keeper is about to end")
        # Each start has the deadline, so that a new keeper knows it before the container runs.
        if pod not in self._deadlines and spec.get("deadline") is not None:
            self._set_deadline(pod, spec["deadline"])
        if self._has_passed(pod):
            raise RequestError("DeadlinePassed", f"pod {pod}: its deadline has passed")
        attempts = self._attempts.get(pod, {}).get(name, [])
        newest = attempts[-1] if attempts else None
        if newest is not None and newest.spec["attempt"] == attempt:
            self._answer_when_started(newest, answer)
            return
        if newest is not None and not newest.has_ended:
            raise RequestError("Running", f"container {name} of pod {pod} still runs")
        if newest is not None and attempt < newest.spec["attempt"]:
            raise RequestError("Stale", f"attempt: {attempt} is before {newest.spec['attempt']}")
        new = ContainerAttempt(self._table, spec, self._on_change)
        self._attempts.setdefault(pod, {})[name] = [*attempts[-1:], new]
        self._answer_when_started(new, answer)
        self._measure_if_needed()

    def _answer_when_started(self, attempt: ContainerAttempt, answer: Answer) -> None:
        if attempt.record()["started_at"] is not None or attempt.has_ended:
            answer(attempt.record())
        else:
            self._waiting.setdefault(attempt.id, []).append(answer)

    def _on_change(self, changed: ContainerAttempt) -> None:
        record = changed.record()
        for answer in self._waiting.pop(changed.id, ()):
            answer(record)
        if self._agent is not None:
            self._agent.send({"event": "container", "record": record})
        if changed.has_ended:
            self._end_if_empty()

    def _find(self, message: Message) -> ContainerAttempt:
        attempts = self._attempts.get(message["pod"], {}).get(message["container"])
        if not attempts:
            raise RequestError("NotFound", f"no container {message['container']}")
        return attempts[-1]

    def _stop(
        self, act: Callable[[ContainerAttempt, float], bool], message: Message, answer: Answer
    ) -> None:
        attempt = self._find(message)
        answer(act(attempt, start_request.number("grace", message["grace"])))

    def _exec(self, message: Message, answer: Answer) -> None:
        attempt = self._find(message)
        if attempt.state != container.RUNNING:
            raise RequestError("NotRunning", f"container {message['container']} does not run")

        def done(code: int | None, output: bytes) -> None:
            answer({"exit_code": code, "output": output.decode(errors="replace")})

        argv = start_request.texts("argv", message["argv"])
        attempt.execute(argv, start_request.number("timeout", message["timeout"]), done)

    def _stats(self, message: Message, answer: Answer) -> None:
        stats, processes = [], self._table.list_processes()
        for each in self._table.live.values():
            count, size = each.measure(processes=processes)
            where = {"pod": each.spec["pod"], "container": each.spec["container"]}
            stats.append({**where, "processes": count, "memory": size})
        answer(stats)

    def _set_deadlines(self, message: Message, answer: Answer) -> None:
        for pod, when in message["at"].items():
            self._set_deadline(pod, when)
        answer({"passed": [pod for pod in message["at"] if self._has_passed(pod)]})

    def _set_deadline(self, pod: str, when: float | None) -> None:
        """Set or remove a deadline, unless the old one has passed, even before its timer ran."""
        if self._has_passed(pod):
            return
        if when is not None:
            start_request.number("at", when)
        if (before := self._deadlines.pop(pod, None)) is not None:
            before.cancel()
        if when is not None:
            self._deadlines[pod] = self._loop.at(float(when), functools.partial(self._fence, pod))

    def _has_passed(self, pod: str) -> bool:
        timer = self._deadlines.get(pod)
        return timer is not None and timer.when <= syscalls.now()

    def _fence(self, pod: str) -> None:
        """Kill a pod whose deadline the agent did not extend in time."""
        if self._agent is not None:
            self._agent.send({"event": "passed", "pod": pod})
        newest = [attempts[-1] for attempts in self._attempts.get(pod, {}).values()]
        live = [each for each in newest if not each.has_ended]
        if live:  # first, because the rest may raise
            self._loop.after(_FENCE_AGAIN_SECONDS, functools.partial(self._fence, pod))
        for each in live:
            each.kill(container.FENCED, "The agent did not extend the pod's deadline")

    def _remove(self, message: Message, answer: Answer) -> None:
        pod = message["pod"]
        names = self._attempts.get(pod, {})
        live = [name for name, attempts in names.items() if not attempts[-1].has_ended]
        if live:
            raise RequestError("Running", f"container {live[0]} of pod {pod} still runs")
        self._attempts.pop(pod, None)
        if (timer := self._deadlines.pop(pod, None)) is not None:
            timer.cancel()
        answer({})

    def _shutdown(self, message: Message, answer: Answer) -> None:
        answer({})
        self.close()

    def _measure_if_needed(self) -> None:
        live = self._table.live.values()
        if not self._is_measuring and any(each.memory_limit for each in live):
            self._is_measuring = True
            self._loop.after(MEASURE_SECONDS, self._measure)

    def _measure(self) -> None:
        try:
            processes = self._table.list_processes()
            for each in list(self._table.live.values()):
                if each.holds_too_much(processes=processes):
                    each.kill(container.OOM_KILLED)
        finally:  # also after a failed measurement
            self._is_measuring = False
            self._measure_if_needed()


def purge(node: str, cgroups: cgroups.CgroupTree | None) -> None:
    """Kill the containers of an earlier keeper, before this keeper listens."""
    for group in cgroups.existing() if cgroups is not None else ():
        group.stop_forks()
        _end_all(group.members)
        group.remove()
    _end_all(functools.partial(process_tree.find_marked, node))


def _end_all(find: Callable[[], list[int]]) -> None:
    """Kill processes until none is left, or for 10 s: some may hang in the kernel."""
    give_up = syscalls.now() + _PURGE_SECONDS
    while (pids := find()) and syscalls.now() < give_up:
        container.signal_all(pids)
        time.sleep(_PURGE_STEP_SECONDS)

# SPDX-License-Identifier: Apache-2.0
"""What a keeper may be asked, over a socket in the node's folder.

    hello     {}                                what this machine allows; makes the asker the agent
    list      {}                                all attempts that are kept, and the deadlines
    start     {spec}: see `process.request`     its record, once it runs or could not
    stop      {pod, container, grace}           whether this was the first time
    prepare   {pod, container, grace}           the same, of its hook alone
    exec      {pod, container, argv, timeout}   its exit code and output, when it ended
    stats     {}                                processes and memory of what runs
    deadlines {at}                              ends pods at that CLOCK_BOOTTIME; null: never
    remove    {pod}                             forgets a pod of which nothing runs
    shutdown  {}                                kills everything, and ends

Only a process of the keeper's own user is heard, and none of a container (`peers`).
One agent is heard at a time: whoever says hello replaces the one before, whose
requests are no longer read. So an agent that was frozen cannot start what its
successor has removed.
"""

import contextlib
import functools
import os
import socket
import time
from collections.abc import Callable
from typing import Any

from refloat.agent.keeper import container, groups, linux, members, peers, seccomp, specs
from refloat.agent.keeper.container import Container, Keeping
from refloat.agent.keeper.loop import READ, Loop, Timer
from refloat.agent.keeper.wire import Connection, Message

# Memory is measured so often, and only while something with a limit runs.
MEASURE_SECONDS = 0.1

_PURGE_SECONDS, _PURGE_STEP_SECONDS = 10.0, 0.005

# What is left of a pod whose deadline has passed is killed again so often: the
# first time may have met an error, or a process that hangs in the kernel.
_FENCE_AGAIN_SECONDS = 1.0

# One agent, and some commands that look for the keeper's process.
_MAX_CONNECTIONS = 64

# What a request of the wrong form leads to.
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


class Refused(Exception):
    """What was asked cannot be done; the first word is for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """All containers of one node."""

    def __init__(self, loop: Loop, keeping: Keeping, listener: socket.socket) -> None:
        self._loop, self._keeping, self._listener = loop, keeping, listener
        self._kept: dict[str, dict[str, list[Container]]] = {}  # pod, name: newest attempt last
        self._waiting: dict[str, list[Answer]] = {}  # by id, until it runs or could not
        self._deadlines: dict[str, Timer] = {}  # by pod, also those that have passed
        self._agent: Connection | None = None
        self._connections: set[Connection] = set()
        self._is_measuring = self._is_closing = False
        self._handlers: dict[str, Callable[[Message, Answer], None]] = {
            "hello": self._hello,
            "list": self._list,
            "start": self._start,
            "stop": self._stop,
            "prepare": self._prepare,
            "exec": self._exec,
            "stats": self._stats,
            "deadlines": self._set_deadlines,
            "remove": self._remove,
            "shutdown": self._shutdown,
        }
        loop.watch(listener.fileno(), READ, lambda _: self._accept())

    def reap(self) -> None:
        """Hear of all children that have ended."""
        strays = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = 0
            if pid == 0:
                break
            told = self._keeping.children.pop(pid, None)
            if told is None:
                strays = True
            else:
                told(status)
        if strays:
            for each in list(self._keeping.live.values()):
                each.poke()

    def close(self) -> None:
        """Kill everything; the loop ends when nothing is left."""
        self._is_closing = True
        self._listener.close()
        for each in list(self._keeping.live.values()):
            each.kill()
        self._end_if_empty()

    def finish(self) -> None:
        """After the loop's end."""
        if self._agent is not None:
            self._agent.finish()

    def _end_if_empty(self) -> None:
        if self._is_closing and not self._keeping.live:
            self._loop.stop()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            end = self._listener.accept()[0]
            is_full = len(self._connections) >= _MAX_CONNECTIONS
            if is_full or peers.refusal(end, (os.getpid(),)):
                end.close()
                return
            self._connections.add(Connection(self._loop, end, self._asked, self._left))

    def _left(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._agent is connection:
            self._agent = None

    def _asked(self, connection: Connection, message: Message) -> None:
        number, op = message.get("id"), message.get("op")

        def answer(value: Any) -> None:
            connection.send({"id": number, "ok": value})

        try:
            if op == "hello":
                self._replace_agent(connection)
            handler = self._handlers.get(str(op))
            if handler is None:
                raise Refused("Unknown", f"op: {op!r} is not known")
            handler(message, answer)
        except Refused as error:
            connection.send({"id": number, "error": str(error), "code": error.code})
        except _MISTAKES as error:
            text = f"{op}: {type(error).__name__}: {error}"
            connection.send({"id": number, "error": text, "code": "Failed"})

    def _replace_agent(self, connection: Connection) -> None:
        before, self._agent = self._agent, connection
        if before is not None and before is not connection:
            before.send({"event": "replaced"})
            before.close()

    def _hello(self, message: Message, answer: Answer) -> None:
        cgroups = self._keeping.cgroups
        answer(
            {
                "pid": os.getpid(),
                "protocol": specs.PROTOCOL,
                "mounts": self._keeping.view,
                "processes": cgroups.processes if cgroups is not None else groups.INHERITED,
                "memory": cgroups.memory if cgroups is not None else groups.MEASURED,
                "seccomp": seccomp.is_available(),
                "read_only_root": self._keeping.can_protect,
                "now": linux.now(),
            }
        )

    def _list(self, message: Message, answer: Answer) -> None:
        kept = [
            each.record()
            for names in self._kept.values()
            for attempts in names.values()
            for each in attempts
        ]
        deadlines = {pod: timer.when for pod, timer in self._deadlines.items()}
        answer({"containers": kept, "deadlines": deadlines})

    def _start(self, message: Message, answer: Answer) -> None:
        spec = specs.check(message["spec"])
        pod, name, attempt = spec["pod"], spec["container"], spec["attempt"]
        if self._is_closing:
            raise Refused("Closing", "the keeper is about to end")
        # With each start, so that a keeper that was started anew knows it before anything runs.
        if pod not in self._deadlines and spec.get("deadline") is not None:
            self._set_deadline(pod, spec["deadline"])
        if self._has_passed(pod):
            raise Refused("DeadlinePassed", f"pod {pod}: its deadline has passed")
        attempts = self._kept.get(pod, {}).get(name, [])
        newest = attempts[-1] if attempts else None
        if newest is not None and newest.spec["attempt"] == attempt:
            self._answer_when_begun(newest, answer)
            return
        if newest is not None and not newest.has_ended:
            raise Refused("Running", f"container {name} of pod {pod} still runs")
        if newest is not None and attempt < newest.spec["attempt"]:
            raise Refused("Stale", f"attempt: {attempt} is before {newest.spec['attempt']}")
        made = Container(self._keeping, spec, self._changed)
        self._kept.setdefault(pod, {})[name] = [*attempts[-1:], made]
        self._answer_when_begun(made, answer)
        self._measure_if_needed()

    def _answer_when_begun(self, made: Container, answer: Answer) -> None:
        if made.record()["started_at"] is not None or made.has_ended:
            answer(made.record())
        else:
            self._waiting.setdefault(made.id, []).append(answer)

    def _changed(self, changed: Container) -> None:
        record = changed.record()
        for answer in self._waiting.pop(changed.id, ()):
            answer(record)
        if self._agent is not None:
            self._agent.send({"event": "container", "record": record})
        if changed.has_ended:
            self._end_if_empty()

    def _find(self, message: Message) -> Container:
        attempts = self._kept.get(message["pod"], {}).get(message["container"])
        if not attempts:
            raise Refused("NotFound", f"no container {message['container']}")
        return attempts[-1]

    def _stop(self, message: Message, answer: Answer) -> None:
        answer(self._find(message).stop(specs.number("grace", message["grace"])))

    def _prepare(self, message: Message, answer: Answer) -> None:
        answer(self._find(message).prepare_stop(specs.number("grace", message["grace"])))

    def _exec(self, message: Message, answer: Answer) -> None:
        found = self._find(message)
        if found.state != container.RUNNING:
            raise Refused("NotRunning", f"container {message['container']} does not run")

        def done(code: int | None, output: bytes) -> None:
            answer({"exit_code": code, "output": output.decode(errors="replace")})

        argv = specs.texts("argv", message["argv"])
        found.execute(argv, specs.number("timeout", message["timeout"]), done)

    def _stats(self, message: Message, answer: Answer) -> None:
        told, among = [], self._keeping.processes()
        for each in self._keeping.live.values():
            count, size = each.measure(among=among)
            where = {"pod": each.spec["pod"], "container": each.spec["container"]}
            told.append({**where, "processes": count, "memory": size})
        answer(told)

    def _set_deadlines(self, message: Message, answer: Answer) -> None:
        for pod, when in message["at"].items():
            self._set_deadline(pod, when)
        answer({"passed": [pod for pod in message["at"] if self._has_passed(pod)]})

    def _set_deadline(self, pod: str, when: float | None) -> None:
        """One that has passed stays, even if an extension is heard before its timer."""
        if self._has_passed(pod):
            return
        if when is not None:
            specs.number("at", when)
        if (before := self._deadlines.pop(pod, None)) is not None:
            before.cancel()
        if when is not None:
            self._deadlines[pod] = self._loop.at(float(when), functools.partial(self._pass, pod))

    def _has_passed(self, pod: str) -> bool:
        timer = self._deadlines.get(pod)
        return timer is not None and timer.when <= linux.now()

    def _pass(self, pod: str) -> None:
        """The agent did not come back in time: what it cannot vouch for must not run."""
        if self._agent is not None:
            self._agent.send({"event": "passed", "pod": pod})
        newest = [attempts[-1] for attempts in self._kept.get(pod, {}).values()]
        live = [each for each in newest if not each.has_ended]
        if live:  # first, whatever goes wrong below
            self._loop.after(_FENCE_AGAIN_SECONDS, functools.partial(self._pass, pod))
        for each in live:
            each.kill(container.FENCED, "The agent did not extend the pod's deadline")

    def _remove(self, message: Message, answer: Answer) -> None:
        pod = message["pod"]
        names = self._kept.get(pod, {})
        live = [name for name, attempts in names.items() if not attempts[-1].has_ended]
        if live:
            raise Refused("Running", f"container {live[0]} of pod {pod} still runs")
        self._kept.pop(pod, None)
        if (timer := self._deadlines.pop(pod, None)) is not None:
            timer.cancel()
        answer({})

    def _shutdown(self, message: Message, answer: Answer) -> None:
        answer({})
        self.close()

    def _measure_if_needed(self) -> None:
        live = self._keeping.live.values()
        if not self._is_measuring and any(each.memory_limit for each in live):
            self._is_measuring = True
            self._loop.after(MEASURE_SECONDS, self._measure)

    def _measure(self) -> None:
        try:
            among = self._keeping.processes()
            for each in list(self._keeping.live.values()):
                if each.holds_too_much(among=among):
                    each.kill(container.OOM_KILLED)
        finally:  # one look that failed is not the last
            self._is_measuring = False
            self._measure_if_needed()


def purge(node: str, cgroups: groups.Groups | None) -> None:
    """End what a keeper that was killed has left behind, before anybody is heard."""
    for group in cgroups.left() if cgroups is not None else ():
        group.stop_forks()
        _end_all(group.members)
        group.remove()
    _end_all(functools.partial(members.marked, node))


def _end_all(found: Callable[[], list[int]]) -> None:
    """A process that hangs in the kernel dies when it can: it is not waited for."""
    give_up = linux.now() + _PURGE_SECONDS
    while (pids := found()) and linux.now() < give_up:
        container.signal_all(pids)
        time.sleep(_PURGE_STEP_SECONDS)

# SPDX-License-Identifier: Apache-2.0
"""The life of one attempt at a container: starting, running, ending, ended.

    starting  forked; the program has not begun
    running   its first process lives
    ending    that process is gone; what it left behind is being killed
    ended     nothing of it is left, and its exit code can be told

An end is told only in the last state, so whoever hears of it may start the
next attempt, or remove the pod's folders, without a look at processes.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from refloat.agent.keeper import launch, linux
from refloat.agent.keeper import members as processes_of
from refloat.agent.keeper.groups import Group, Groups
from refloat.agent.keeper.loop import READ, Loop, Timer
from refloat.agent.keeper.output import Log, Stream

STARTING, RUNNING, ENDING, ENDED = "starting", "running", "ending", "ended"

START_FAILED = 128
"""The exit code of what could not be executed, with the reason StartError, as of containerd."""

OOM_KILLED, FENCED = "OOMKilled", "Fenced"

# Kills repeat until nothing is left: soon at first, then seldom, for a process that hangs in
# the kernel can take minutes.
_SWEEP_SECONDS, _LONGEST_SWEEP_SECONDS = 0.002, 0.25

# A first process that ignores SIGTERM after a slow hook still gets so long (behaviour D4.2).
_AFTER_HOOK_SECONDS = 2.0

# Kubernetes has no bound for a hook after the start; this is one all the same.
_POST_START_SECONDS = 3600.0

_MAX_OUTPUT = 16 * 1024  # of a hook
_FREEZE_ROUNDS = 20


class Keeping:
    """What all containers of a keeper share."""

    def __init__(
        self, loop: Loop, cgroups: Groups | None, view: str, *, can_protect: bool = False
    ) -> None:
        self.loop, self.cgroups, self.view = loop, cgroups, view
        self.can_protect = can_protect  # whether the root of a view can be read-only
        self.live: dict[str, Container] = {}  # by id, until they are ended
        self.children: dict[int, Callable[[int], object]] = {}  # whom to tell a wait status
        self._doomed: dict[str, Container] = {}
        self._ending: dict[str, Container] = {}
        self._next_sweep: Timer | None = None
        self._sweep_seconds = _SWEEP_SECONDS

    def processes(self) -> processes_of.Processes | None:
        """All of the machine, where that is needed to know whose is whose."""
        return processes_of.Processes() if self.cgroups is None else None

    def sessions(self) -> set[int]:
        return {pid for each in self.live.values() for pid in each.leaders}

    def has_strays(self) -> bool:
        """Whatever loses its parent comes to the keeper: is there any, without a look at all?"""
        children = processes_of.own_children()
        return children is None or bool(set(children) - self.children.keys())

    def doom(self, container: "Container") -> None:
        """Kill it together with all that are doomed now: to find one takes as long as all."""
        if not self._doomed:
            self.loop.after(0.0, self._kill_doomed)
        self._doomed[container.id] = container

    def _kill_doomed(self) -> None:
        doomed, self._doomed = self._doomed.values(), {}
        stopped: set[int] = set()
        # What is stopped cannot fork, so after some rounds there is nobody new.
        for _ in range(_FREEZE_ROUNDS):
            among = processes_of.Processes()
            new = {pid for each in doomed for pid in each.find(among)} - stopped
            if not new:
                break
            signal_all(new, signal.SIGSTOP)
            stopped |= new
        signal_all([*(pid for each in doomed for pid in each.first()), *stopped])

    def sweep(self, container: "Container") -> None:
        """Look again and again, soon at first, whether something of it is left."""
        self._ending[container.id] = container
        self._sweep_seconds = _SWEEP_SECONDS
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        when = linux.now() + self._sweep_seconds
        if self._next_sweep is None or self._next_sweep.when > when:
            if self._next_sweep is not None:
                self._next_sweep.cancel()
            self._next_sweep = self.loop.at(when, self._sweep)

    def _sweep(self) -> None:
        self._next_sweep = None
        self._sweep_seconds = min(_LONGEST_SWEEP_SECONDS, 2 * self._sweep_seconds)
        self._sweep_soon()  # first, whatever goes wrong below
        among = self.processes() if self.has_strays() else None
        for each in list(self._ending.values()):
            self.loop.guarded(self._settle, each, among)
        if not self._ending and self._next_sweep is not None:
            self._next_sweep.cancel()
            self._next_sweep = None

    def _settle(self, each: "Container", among: processes_of.Processes | None) -> None:
        if each.settle(among):
            del self._ending[each.id]


class Container:
    """One attempt."""

    def __init__(
        self, keeping: Keeping, spec: launch.Spec, on_change: Callable[["Container"], object]
    ) -> None:
        self.spec, self.state = spec, STARTING
        self.id: str = spec["id"]
        self.leaders: set[int] = set()
        self._keeping, self._on_change = keeping, on_change
        self._started_at: float | None = None
        self._finished_at: float | None = None
        self._exit_code: int | None = None
        self._reason = self._message = ""
        self._killed_for = ""
        self._kill: Timer | None = None
        self._is_asked = self._had_hook = self._is_hooked = False
        self._group = self._make_group()
        try:
            self._launch()
        except Exception:
            if self._group is not None:
                self._group.remove()
            raise

    @property
    def has_ended(self) -> bool:
        return self.state == ENDED

    def record(self) -> dict[str, Any]:
        spec = self.spec
        return {
            "pod": spec["pod"],
            "container": spec["container"],
            "attempt": spec["attempt"],
            "id": self.id,
            "pid": self._pid if self.state in (STARTING, RUNNING) else None,
            "started_at": self._started_at,
            "exit_code": self._exit_code if self.has_ended else None,
            "finished_at": self._finished_at if self.has_ended else None,
            "reason": self._reason,
            "message": self._message,
            "memo": spec.get("memo"),
        }

    def _make_group(self) -> Group | None:
        cgroups = self._keeping.cgroups
        if cgroups is None:
            # Not exact, because it is the user's: so many more than there are now.
            user = self.spec.get("user") or {"uid": os.getuid()}
            self.spec["processes"] = self.spec["pids"] + processes_of.threads_of(user["uid"])
            return None
        return cgroups.add(self.id, pids=self.spec.get("pids"), memory=self.memory_limit)

    def _launch(self) -> None:
        keeping, spec = self._keeping, self.spec
        self._log = Log(spec["log"], spec["log_bytes"], spec["log_files"])
        try:
            started = launch.start(spec, groups=_folders(self._group), view=keeping.view)
        except Exception:
            self._log.discard()
            raise
        self._pid = started.pid
        self.leaders.add(started.pid)
        keeping.live[self.id] = self
        keeping.children[started.pid] = self._exited
        names = ("stdout", "stderr")
        self._streams = [
            Stream(keeping.loop, pipe, name, self._log)
            for pipe, name in zip(started.output, names, strict=True)
        ]
        self._failure = started.failure
        keeping.loop.watch(started.failure, READ, lambda _: self._begun())

    def _begun(self) -> None:
        """The pipe of failures closed, or says what failed."""
        if self.state != STARTING:
            return
        try:
            text = os.read(self._failure, 4096)
        except BlockingIOError:
            return
        self._keeping.loop.forget(self._failure)
        os.close(self._failure)
        self.state = RUNNING
        if text:
            self._reason, self._message = "StartError", text.decode(errors="replace")
            return  # told when the child has ended, in a moment
        self._started_at = time.time()
        if self._is_asked:
            self._terminate()  # asked before it had a group that could be told
        elif hook := self.spec.get("post_start"):
            self.execute(hook, _POST_START_SECONDS, self._post_started)
        self._on_change(self)

    def _post_started(self, code: int | None, _: bytes) -> None:
        """A container whose first hook fails is ended, as a kubelet does."""
        if code != 0:
            self.stop(self.spec["grace"])

    def stop(self, grace: float) -> bool:
        """Ask it to end, and kill it after the grace; whether this was the first time."""
        if self.state in (ENDING, ENDED):
            return False
        first = not self._is_asked
        self._kill_by(linux.now() + grace)
        if not first:
            return False
        self._is_asked = True
        self.prepare_stop(grace)
        if not self._is_hooked:
            self._terminate()
        return True

    def prepare_stop(self, grace: float) -> bool:
        """Run the hook that comes before the end; whether this was the first time."""
        hook = self.spec.get("hook")
        if hook is None or self.state != RUNNING or self._had_hook:
            return False
        self._had_hook = self._is_hooked = True
        self.execute(hook, grace, lambda *_: self._hook_ended())
        return True

    def kill(self, reason: str = "", message: str = "") -> None:
        if self.state in (ENDING, ENDED):
            return
        self._killed_for = reason
        if reason:
            self._message = message
        self._kill_members()

    def execute(
        self,
        argv: list[str],
        timeout: float,
        done: Callable[[int | None, bytes], object],
    ) -> None:
        """Run something else within it; `done` gets exit code (None: timed out) and output."""
        _Hook(self._keeping, self, argv, timeout, done).start(self._pid, self._group)

    def measure(
        self, limit: int | None = None, *, among: processes_of.Processes | None
    ) -> tuple[int, int]:
        """How many processes it has, and the bytes of memory that they hold.

        Without cgroups they are looked for among all of the machine, listed once for many.
        """
        if self._group is not None:
            pids = self._group.members()
        else:
            pids = (among or processes_of.Processes()).members(self.id, self.leaders)
        return len(pids), processes_of.memory(pids, limit)

    def holds_too_much(self, *, among: processes_of.Processes | None) -> bool:
        """Whether its memory is over its limit, by the kernel's word or by measuring."""
        if (limit := self.memory_limit) is None:
            return False
        if self._group is not None and self._group.bounds_memory:
            return self._group.ran_out()
        return self.measure(limit, among=among)[1] > limit

    @property
    def memory_limit(self) -> int | None:
        """None, and also 0, is none."""
        return int(self.spec.get("memory") or 0) or None

    def poke(self) -> None:
        """A child of the keeper was reaped: perhaps the last of ours."""
        if self.state == ENDING and not (self._group is None and self._keeping.has_strays()):
            self.settle(None)

    def _kill_by(self, when: float) -> None:
        if self._kill is not None:
            if self._kill.when <= when:
                return
            self._kill.cancel()
        self._kill = self._keeping.loop.at(when, self.kill)

    def _hook_ended(self) -> None:
        """A hook uses up the grace, but for a last moment."""
        self._is_hooked = False
        if self.state != RUNNING or not self._is_asked:
            return
        least = linux.now() + _AFTER_HOOK_SECONDS
        if self._kill is not None and self._kill.when < least:
            self._kill.cancel()
            self._kill = self._keeping.loop.at(least, self.kill)
        self._terminate()

    def _terminate(self) -> None:
        asked = signal.Signals[self.spec.get("stop_signal") or "SIGTERM"]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, asked)

    def _exited(self, status: int) -> None:
        if self.state == STARTING:
            self._begun()
        self.state = ENDING
        self._finished_at = time.time()
        code = os.waitstatus_to_exitcode(status)
        self._exit_code = 128 - code if code < 0 else code
        if self._started_at is None and self._reason:
            self._exit_code = START_FAILED
        if not self._killed_for and self._group is not None and self._group.ran_out():
            self._killed_for = OOM_KILLED
        if self._killed_for:
            self._reason = self._killed_for
        else:
            self._message = self._message if self._started_at is None else ""
        if self._kill is not None:
            self._kill.cancel()
        self.poke()
        if self.state == ENDING:
            self._keeping.sweep(self)

    def settle(self, among: processes_of.Processes | None) -> bool:
        """Kill what is left, among these if there are strays; whether nothing was."""
        if self.state != ENDING:
            return True
        if self._left(among):
            self._kill_members()
            return False
        if self._group is not None and not self._group.remove():
            return False
        self._end()
        return True

    def _left(self, among: processes_of.Processes | None) -> list[int]:
        if self._group is not None:
            return self._group.members()
        return [] if among is None else self.find(among)

    def find(self, among: processes_of.Processes) -> list[int]:
        """Its processes, and those of which nobody knows whose they are."""
        if self.state == ENDED:
            return []
        hidden = among.hidden(self._keeping.live, self._keeping.sessions())
        return [*among.members(self.id, self.leaders), *hidden]

    def first(self) -> list[int]:
        """Its first process; once reaped, the number may be somebody else's."""
        return [self._pid] if self.state in (STARTING, RUNNING) else []

    def _end(self) -> None:
        for stream in self._streams:
            stream.drain()
        self._log.close()
        self.state = ENDED
        del self._keeping.live[self.id]
        self._on_change(self)

    def _kill_members(self) -> None:
        if self._group is None:
            self._keeping.doom(self)
            return
        self._group.stop_forks()
        signal_all([*self.first(), *self._group.members()])


class _Hook:
    """Something that is run within a container, besides its first process."""

    def __init__(
        self,
        keeping: Keeping,
        container: Container,
        argv: list[str],
        timeout: float,
        done: Callable[[int | None, bytes], object],
    ) -> None:
        self._keeping, self._container = keeping, container
        self._argv, self._done = argv, done
        self._timeout = timeout
        self._output = bytearray()

    def start(self, within: int, group: Group | None) -> None:
        spec = {**self._container.spec, "argv": self._argv}
        started = launch.start(spec, groups=_folders(group), view=self._keeping.view, within=within)
        self._pid, self._pipes = started.pid, [started.failure, *started.output]
        self._container.leaders.add(started.pid)
        self._keeping.children[started.pid] = self._exited
        for pipe in self._pipes:
            self._keeping.loop.watch(pipe, READ, self._reader(pipe))
        self._timer = self._keeping.loop.after(self._timeout, self._time_out)

    def _reader(self, pipe: int) -> Callable[[int], object]:
        return lambda _: self._read(pipe)

    def _read(self, pipe: int) -> None:
        try:
            data = os.read(pipe, _MAX_OUTPUT)
        except BlockingIOError:
            return
        if data:
            self._output += data[: _MAX_OUTPUT - len(self._output)]
        else:
            self._keeping.loop.forget(pipe)

    def _time_out(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        self._finish(None)

    def _exited(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._finish(128 - code if code < 0 else code)

    def _finish(self, code: int | None) -> None:
        self._timer.cancel()
        pipes, self._pipes = self._pipes, []
        for pipe in pipes:
            self._read(pipe)
            self._keeping.loop.forget(pipe)
            os.close(pipe)
        if pipes:
            self._done(code, bytes(self._output))


def _folders(group: Group | None) -> list[str]:
    return [] if group is None else group.folders


def signal_all(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)

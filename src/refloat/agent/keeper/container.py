# SPDX-License-Identifier: Apache-2.0
"""The life of one attempt at a container: starting, running, ending, ended.

    starting  forked; the program has not begun
    running   its first process lives
    ending    the first process has ended; the keeper kills the others
    ended     no process is left; the record has the exit code

The keeper reports an end only in the last state. So the agent may then start the next
attempt or remove the pod's folders without a look at processes.
"""

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from refloat.agent.keeper import launch, process_tree, syscalls
from refloat.agent.keeper.cgroups import Cgroup, CgroupTree
from refloat.agent.keeper.log_writer import LogWriter, OutputPipe
from refloat.agent.keeper.loop import READ, Loop, Timer

STARTING, RUNNING, ENDING, ENDED = "starting", "running", "ending", "ended"

START_FAILED = 128
"""The exit code of a container whose program could not start; as in containerd."""

OOM_KILLED, FENCED = "OOMKilled", "Fenced"

# The keeper repeats kills until no process is left. The pause doubles, because a process
# that hangs in the kernel can take minutes.
_SWEEP_SECONDS, _LONGEST_SWEEP_SECONDS = 0.002, 0.25

# Seconds from SIGTERM to SIGKILL after a preStop hook that used up the grace (behaviour D4.2).
_AFTER_HOOK_SECONDS = 2.0

# Kubernetes has no limit for a postStart hook; the keeper has this one.
_POST_START_SECONDS = 3600.0

_MAX_OUTPUT = 16 * 1024  # of a hook
_FREEZE_ROUNDS = 20


class ContainerTable:
    """The live containers of a keeper, and the work that they share."""

    def __init__(
        self, loop: Loop, cgroups: CgroupTree | None, view: str, *, can_protect: bool = False
    ) -> None:
        self.loop, self.cgroups, self.view = loop, cgroups, view
        self.can_protect = can_protect  # whether the root of a view can be read-only
        self.live: dict[str, ContainerAttempt] = {}  # by id, until the state is ENDED
        self.children: dict[int, Callable[[int], object]] = {}  # handlers of wait statuses
        self._to_kill: dict[str, ContainerAttempt] = {}
        self._ending: dict[str, ContainerAttempt] = {}
        self._next_sweep: Timer | None = None
        self._sweep_seconds = _SWEEP_SECONDS

    def list_processes(self) -> process_tree.ProcessTable | None:
        """All processes of the machine; None with cgroups, which list their own."""
        return process_tree.ProcessTable() if self.cgroups is None else None

    def sessions(self) -> set[int]:
        return {pid for each in self.live.values() for pid in each.leaders}

    def has_strays(self) -> bool:
        """Whether the keeper has adopted an orphan; True if the kernel does not list children."""
        children = process_tree.own_children()
        return children is None or bool(set(children) - self.children.keys())

    def kill_soon(self, container: "ContainerAttempt") -> None:
        """Kill a container together with others: one list of processes serves them all."""
        if not self._to_kill:
            self.loop.after(0.0, self._kill_all)
        self._to_kill[container.id] = container

    def _kill_all(self) -> None:
        containers, self._to_kill = self._to_kill.values(), {}
        stopped: set[int] = set()
        # A stopped process cannot fork, so after some rounds there are no new processes.
        for _ in range(_FREEZE_ROUNDS):
            processes = process_tree.ProcessTable()
            new = {pid for each in containers for pid in each.find(processes)} - stopped
            if not new:
                break
            signal_all(new, signal.SIGSTOP)
            stopped |= new
        signal_all([*(pid for each in containers for pid in each.first()), *stopped])

    def sweep(self, container: "ContainerAttempt") -> None:
        """Check again and again, first after 2 ms, whether a process of a container is left."""
        self._ending[container.id] = container
        self._sweep_seconds = _SWEEP_SECONDS
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        when = syscalls.now() + self._sweep_seconds
        if self._next_sweep is None or self._next_sweep.when > when:
            if self._next_sweep is not None:
                self._next_sweep.cancel()
            self._next_sweep = self.loop.at(when, self._sweep)

    def _sweep(self) -> None:
        self._next_sweep = None
        self._sweep_seconds = min(_LONGEST_SWEEP_SECONDS, 2 * self._sweep_seconds)
        self._sweep_soon()  # first, because the rest may raise
        processes = self.list_processes() if self.has_strays() else None
        for each in list(self._ending.values()):
            self.loop.guarded(self._settle, each, processes)
        if not self._ending and self._next_sweep is not None:
            self._next_sweep.cancel()
            self._next_sweep = None

    def _settle(
        self, each: "ContainerAttempt", processes: process_tree.ProcessTable | None
    ) -> None:
        if each.settle(processes):
            del self._ending[each.id]


class ContainerAttempt:
    """One attempt at a container."""

    def __init__(
        self,
        table: ContainerTable,
        spec: launch.Spec,
        on_change: Callable[["ContainerAttempt"], object],
    ) -> None:
        self.spec, self.state = spec, STARTING
        self.id: str = spec["id"]
        self.leaders: set[int] = set()
        self._table, self._on_change = table, on_change
        self._started_at: float | None = None
        self._finished_at: float | None = None
        self._exit_code: int | None = None
        self._reason = self._message = ""
        self._killed_for = ""
        self._kill_timer: Timer | None = None
        self._is_stopping = self._had_hook = self._runs_hook = False
        self._group: Cgroup | None = None
        if table.cgroups is not None:
            pids, memory = spec.get("pids"), self.memory_limit
            self._group = table.cgroups.add(self.id, pids=pids, memory=memory)
        else:
            # RLIMIT_NPROC counts all threads of the user, so the present ones are added.
            user = spec.get("user") or {"uid": os.getuid()}
            spec["processes"] = spec["pids"] + process_tree.threads_of(user["uid"])
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

    def _launch(self) -> None:
        table, spec = self._table, self.spec
        self._log = LogWriter(spec["log"], spec["log_bytes"], spec["log_files"])
        try:
            started = launch.start(spec, groups=_folders(self._group), view=table.view)
        except Exception:
            self._log.discard()
            raise
        self._pid = started.pid
        self.leaders.add(started.pid)
        table.live[self.id] = self
        table.children[started.pid] = self._exited
        names = ("stdout", "stderr")
        self._streams = [
            OutputPipe(table.loop, pipe, name, self._log)
            for pipe, name in zip(started.output, names, strict=True)
        ]
        self._failure = started.failure
        table.loop.watch(started.failure, READ, lambda _: self._on_exec())

    def _on_exec(self) -> None:
        """The exec closed the pipe of failures, or the child wrote the reason."""
        if self.state != STARTING:
            return
        try:
            text = os.read(self._failure, 4096)
        except BlockingIOError:
            return
        self._table.loop.forget(self._failure)
        os.close(self._failure)
        self.state = RUNNING
        if text:
            self._reason, self._message = "StartError", text.decode(errors="replace")
            return  # the child ends in a moment; then the agent gets the record
        self._started_at = time.time()
        if self._is_stopping:
            self._terminate()  # `stop` came before the child had a process group
        elif hook := self.spec.get("post_start"):
            # Stop a container whose postStart hook fails, like a kubelet.
            self.execute(
                hook,
                _POST_START_SECONDS,
                lambda code, _: code == 0 or self.stop(self.spec["grace"]),
            )
        self._on_change(self)

    def stop(self, grace: float) -> bool:
        """Send SIGTERM, and SIGKILL after the grace. Returns whether this is the first call."""
        if self.state in (ENDING, ENDED):
            return False
        when = syscalls.now() + grace
        if self._kill_timer is None or self._kill_timer.when > when:
            self._kill_at(when)
        if self._is_stopping:
            return False
        self._is_stopping = True
        self.prepare_stop(grace)
        if not self._runs_hook:
            self._terminate()
        return True

    def prepare_stop(self, grace: float) -> bool:
        """Run the preStop hook. Returns whether this is the first call."""
        hook = self.spec.get("hook")
        if hook is None or self.state != RUNNING or self._had_hook:
            return False

        def end(_code: int | None, _output: bytes) -> None:
            """Send SIGTERM. The hook counts against the grace, but 2 s always remain."""
            self._runs_hook = False
            if self.state != RUNNING or not self._is_stopping:
                return
            least = syscalls.now() + _AFTER_HOOK_SECONDS
            if self._kill_timer is not None and self._kill_timer.when < least:
                self._kill_at(least)
            self._terminate()

        self._had_hook = self._runs_hook = True
        self.execute(hook, grace, end)
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
        """Run a command in the container; `done` gets exit code (None: timed out) and output."""
        _Hook(self._table, self, argv, timeout, done).start(self._pid, self._group)

    def measure(
        self, limit: int | None = None, *, processes: process_tree.ProcessTable | None
    ) -> tuple[int, int]:
        """The number of processes, and the bytes of memory that they use.

        Without cgroups `processes` has all processes, listed once for several containers.
        """
        if self._group is not None:
            pids = self._group.members()
        else:
            pids = (processes or process_tree.ProcessTable()).members(self.id, self.leaders)
        return len(pids), process_tree.memory(pids, limit)

    def holds_too_much(self, *, processes: process_tree.ProcessTable | None) -> bool:
        """Whether the memory is over the limit, according to the kernel or a measurement."""
        if (limit := self.memory_limit) is None:
            return False
        if self._group is not None and self._group.bounds_memory:
            return self._group.had_oom_kill()
        return self.measure(limit, processes=processes)[1] > limit

    @property
    def memory_limit(self) -> int | None:
        """Bytes; None without a limit. A limit of 0 is no limit."""
        return int(self.spec.get("memory") or 0) or None

    def check_end(self) -> None:
        """The keeper reaped a child, perhaps the last process of this container."""
        if self.state == ENDING and not (self._group is None and self._table.has_strays()):
            self.settle(None)

    def _kill_at(self, when: float) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._kill_timer = self._table.loop.at(when, self.kill)

    def _terminate(self) -> None:
        stop_signal = signal.Signals[self.spec.get("stop_signal") or "SIGTERM"]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, stop_signal)

    def _exited(self, status: int) -> None:
        if self.state == STARTING:
            self._on_exec()
        self.state = ENDING
        self._finished_at = time.time()
        code = os.waitstatus_to_exitcode(status)
        self._exit_code = 128 - code if code < 0 else code
        if self._started_at is None and self._reason:
            self._exit_code = START_FAILED
        if not self._killed_for and self._group is not None and self._group.had_oom_kill():
            self._killed_for = OOM_KILLED
        if self._killed_for:
            self._reason = self._killed_for
        else:
            self._message = self._message if self._started_at is None else ""
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self.check_end()
        if self.state == ENDING:
            self._table.sweep(self)

    def settle(self, processes: process_tree.ProcessTable | None) -> bool:
        """Kill the rest of the container. Returns whether no process was left.

        `processes`: None if the keeper has no strays.
        """
        if self.state != ENDING:
            return True
        if self._group is not None:
            rest = self._group.members()
        else:
            rest = [] if processes is None else self.find(processes)
        if rest:
            self._kill_members()
            return False
        if self._group is not None and not self._group.remove():
            return False
        for stream in self._streams:
            stream.drain()
        self._log.close()
        self.state = ENDED
        del self._table.live[self.id]
        self._on_change(self)
        return True

    def find(self, processes: process_tree.ProcessTable) -> list[int]:
        """The processes of the container, and those that hide their container."""
        if self.state == ENDED:
            return []
        strays = processes.strays(self._table.live, self._table.sessions())
        return [*processes.members(self.id, self.leaders), *strays]

    def first(self) -> list[int]:
        """The first process until it is reaped; then the number may be in use again."""
        return [self._pid] if self.state in (STARTING, RUNNING) else []

    def _kill_members(self) -> None:
        if self._group is None:
            self._table.kill_soon(self)
            return
        self._group.stop_forks()
        signal_all([*self.first(), *self._group.members()])


class _Hook:
    """A command that runs in a container, besides the first process."""

    def __init__(
        self,
        table: ContainerTable,
        container: ContainerAttempt,
        argv: list[str],
        timeout: float,
        done: Callable[[int | None, bytes], object],
    ) -> None:
        self._table, self._container = table, container
        self._argv, self._done = argv, done
        self._timeout = timeout
        self._output = bytearray()

    def start(self, within: int, group: Cgroup | None) -> None:
        spec = {**self._container.spec, "argv": self._argv}
        started = launch.start(spec, groups=_folders(group), view=self._table.view, within=within)
        self._pid, self._pipes = started.pid, [started.failure, *started.output]
        self._container.leaders.add(started.pid)
        self._table.children[started.pid] = self._exited
        for pipe in self._pipes:
            self._table.loop.watch(pipe, READ, functools.partial(self._read, pipe))
        self._timer = self._table.loop.after(self._timeout, self._finish)

    def _read(self, pipe: int, _: int = 0) -> None:
        try:
            data = os.read(pipe, _MAX_OUTPUT)
        except BlockingIOError:
            return
        if data:
            self._output += data[: _MAX_OUTPUT - len(self._output)]
        else:
            self._table.loop.forget(pipe)

    def _exited(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self._finish(128 - code if code < 0 else code)

    def _finish(self, code: int | None = None) -> None:
        if code is None:  # the time is over
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
        self._timer.cancel()
        pipes, self._pipes = self._pipes, []
        for pipe in pipes:
            self._read(pipe)
            self._table.loop.forget(pipe)
            os.close(pipe)
        if pipes:
            self._done(code, bytes(self._output))


def _folders(group: Cgroup | None) -> list[str]:
    return [] if group is None else group.folders


def signal_all(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)

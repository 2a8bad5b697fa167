# SPDX-License-Identifier: Apache-2.0
"""What the pod worker asks of whatever runs containers.

A runtime starts, stops and remembers; it never restarts anything and knows no
phase. Nothing here waits for an end: `stop` only begins, and whoever listens
is told when something about a pod changed and looks again. So one worker
drives thousands of containers without a task for each, and one that was
restarted finds what is still there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from refloat.api.core import Pod
from refloat.base.errors import RefloatError


class StartError(RefloatError):
    """A container could not be started; the worker tries again later."""

    event = "Failed"

    retry_seconds: float | None = None
    """Until it is worth trying again, where the runtime knows better than the worker."""

    def __init__(self, message: str, *, reason: str = "CreateContainerError") -> None:
        super().__init__(message)
        self.reason = reason  # of the waiting state, in a kubelet's words; empty: as before

    @property
    def note(self) -> str:
        """What its event says."""
        return f"Error: {self}"


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt at one container, from its making to its end."""

    attempt: int = 0
    container_id: str = ""
    started_at: datetime | None = None
    """None while it is being made."""

    exit_code: int | None = None
    """None until it has ended."""

    finished_at: datetime | None = None
    reason: str = ""
    """Why it ended, where the exit code does not say: OOMKilled."""

    message: str = ""

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None


@dataclass(frozen=True, slots=True)
class Attempts:
    """What is known of a container: its newest attempt, and the one before."""

    current: Record
    previous: Record | None = None


Containers: TypeAlias = Mapping[str, Attempts]
"""By the container's name; those that were never started are missing."""


class Runtime(Protocol):
    """Runs the containers of one node. A pod is its uid."""

    def listen(self, changed: Callable[[str], object]) -> None:
        """Call back with the uid of a pod of which a container started or ended."""
        ...

    def pods(self) -> Sequence[str]:
        """All pods of which anything is kept."""
        ...

    def containers(self, uid: str) -> Containers:
        """What is kept of a pod's containers."""
        ...

    async def start(self, pod: Pod, container: str, attempt: int) -> None:
        """Start a container of which nothing runs; raises `StartError`."""
        ...

    def prepare_stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        """Begin its preStop hook, which has so many seconds; was this the first time?

        It is not asked to end: `stop` does that. Sidecars wait for their turn,
        but their hooks do not. One without a hook has nothing to do here.
        """
        ...

    def stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        """Ask it to end, and kill it after so many seconds; was this the first time?

        A preStop hook comes first, and out of the same seconds. Asked again,
        the earlier of both times holds. One that is still being made is given
        up and leaves no record, or ends like others if it is too late for that.
        """
        ...

    def remove(self, uid: str) -> None:
        """Forget a pod, of which nothing runs any more."""
        ...

    @property
    def boot_id(self) -> str:
        """Another one after each start of the machine."""
        ...

    def deadlines(self) -> Mapping[str, float]:
        """When pods end by themselves, whatever becomes of the agent, or have ended.

        By uid, on the clock's monotonic time. One that has passed cannot be
        moved, and its pod starts nothing any more.
        """
        ...

    async def arm(self, uid: str, at: float) -> None:
        """Give a pod a deadline; it is in force when this returns. Raises `StartError`."""
        ...

    def extend(self, at: Mapping[str, float]) -> None:
        """Move the deadlines of pods that have one. Nobody waits: lost, the old ones hold."""
        ...

    def disarm(self, uid: str) -> None:
        """Take back the deadline of a pod of which nothing runs."""
        ...

    def crash(self) -> None:
        """Lose everything at once, as a machine without power; nobody is told."""
        ...

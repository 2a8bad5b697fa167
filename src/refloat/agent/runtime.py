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

    def __init__(self, message: str, *, reason: str = "CreateContainerError") -> None:
        super().__init__(message)
        self.reason = reason  # of the waiting state, in a kubelet's words


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

    def stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        """Ask it to end, and kill it after so many seconds; was this the first time?

        Asked again, the earlier of both times holds. One that is still being
        made is given up and leaves no record.
        """
        ...

    def remove(self, uid: str) -> None:
        """Forget a pod, of which nothing runs any more."""
        ...

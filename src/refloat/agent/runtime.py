# SPDX-License-Identifier: Apache-2.0
"""The interface between the pod worker and a container runtime.

A runtime starts and stops containers and keeps their records. A runtime restarts no
container and has no phases. No call waits for an end: `stop` returns at once, and the
runtime calls the listener when a pod has changed. So one worker drives thousands of
containers without a task for each, and a restarted worker finds running containers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from refloat.api.core import Pod
from refloat.base.errors import RefloatError


class StartError(RefloatError):
    """A container could not start; the worker tries again later."""

    event = "Failed"

    retry_seconds: float | None = None
    """Seconds until the next try, if not the worker's own."""

    def __init__(self, message: str, *, reason: str = "CreateContainerError") -> None:
        super().__init__(message)
        self.reason = reason  # of the waiting state, as a kubelet's; empty: unchanged

    @property
    def note(self) -> str:
        """The note of the event."""
        return f"Error: {self}"


class EventOnlyError(StartError):
    """A start error that only an event shows, not the container's state."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="")

    @property
    def note(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One attempt of one container, from its creation to its end."""

    attempt: int = 0
    container_id: str = ""
    started_at: datetime | None = None
    """None while the container is being created."""

    exit_code: int | None = None
    """None until the container has ended."""

    finished_at: datetime | None = None
    reason: str = ""
    """Why the container ended, besides the exit code: OOMKilled."""

    message: str = ""

    @property
    def has_ended(self) -> bool:
        return self.exit_code is not None


@dataclass(frozen=True, slots=True)
class Attempts:
    """The newest attempt of a container and the one before."""

    current: ContainerRecord
    previous: ContainerRecord | None = None


Containers: TypeAlias = Mapping[str, Attempts]
"""By name; containers that never started are missing."""


class Runtime(Protocol):
    """Runs the containers of one node. A pod is identified by its uid."""

    def listen(self, changed: Callable[[str], object]) -> None:
        """Call `changed` with the uid of a pod when one of its containers started or ended."""
        ...

    def pods(self) -> Sequence[str]:
        """All pods with records or files."""
        ...

    def containers(self, uid: str) -> Containers:
        """The records of a pod's containers."""
        ...

    async def start(self, pod: Pod, container: str, attempt: int) -> None:
        """Start a container that does not run; raises `StartError`."""
        ...

    def prepare_stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        """Run the preStop hook for at most `grace_seconds`. Returns whether this is the first call.

        The container gets no signal. Sidecars stop one after another, but their hooks all run
        at once. Does nothing without a hook.
        """
        ...

    def stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        """Stop a container, and kill it after the grace. Returns whether this is the first call.

        A preStop hook runs first, within the same grace. After a second call the earlier of
        both kill times holds. A container that is still being created is dropped without a
        record, or ends like others if it is too late for that.
        """
        ...

    def remove(self, uid: str) -> None:
        """Remove the records and files of a pod without running containers."""
        ...

    @property
    def boot_id(self) -> str:
        """A new id after each boot of the machine."""
        ...

    def deadlines(self) -> Mapping[str, float]:
        """The self-fence deadlines by uid, on the clock's monotonic time.

        The runtime ends the pod at that time, with or without an agent. A deadline that has
        passed cannot be moved, and its pod starts nothing any more.
        """
        ...

    async def arm(self, uid: str, at: float) -> None:
        """Set the deadline of a pod, in force when this returns. Raises `StartError`."""
        ...

    def extend(self, at: Mapping[str, float]) -> None:
        """Move existing deadlines, without waiting. If the request is lost, the old ones hold."""
        ...

    def disarm(self, uid: str) -> None:
        """Remove the deadline of a pod without running containers."""
        ...

    def crash(self) -> None:
        """Lose everything at once, like a machine without power, without calling the listener."""
        ...

# SPDX-License-Identifier: Apache-2.0
"""The phase of a pod, from the states of its containers (behaviour D2).

The node decides the phase; Jobs and policies only read it. The node also decides the states of
containers and their restarts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from refloat.api.core import FAILED, PENDING, RUNNING, SUCCEEDED

ALWAYS, ON_FAILURE, NEVER = "Always", "OnFailure", "Never"

State: TypeAlias = Literal["waiting", "running", "terminated", ""]
"""The member of a container's state that is set; empty when none is."""


@dataclass(frozen=True, slots=True)
class RestartRule:
    """A rule that restarts a container for some exit codes (restartPolicyRules)."""

    operator: str
    values: frozenset[int]

    def matches(self, exit_code: int) -> bool:
        if self.operator == "In":
            return exit_code in self.values
        return self.operator == "NotIn" and exit_code not in self.values


@dataclass(frozen=True, slots=True)
class ContainerShape:
    """What the spec says of a container."""

    name: str
    restart_policy: str | None = None
    """Its own policy, before the pod's; Always on an init container makes it a sidecar."""

    rules: tuple[RestartRule, ...] = ()

    def restarts(self, exit_code: int, pod_policy: str) -> bool:
        """Whether the container is restarted after this exit code (D2.1)."""
        if self.restart_policy is not None and any(rule.matches(exit_code) for rule in self.rules):
            return True
        policy = self.restart_policy or pod_policy
        if policy == ON_FAILURE:
            return exit_code != 0
        return policy != NEVER


@dataclass(frozen=True, slots=True)
class ObservedContainer:
    """The state of a container."""

    state: State
    exit_code: int | None = None
    """The exit code of the current or last termination; None if there was none."""

    started: bool = False
    """Whether a running container has passed its startup probe."""

    restarting_all: bool = False
    """Whether the container ended because all containers of the pod restart."""


@dataclass(frozen=True, slots=True)
class PodShape:
    """What the spec says of a pod."""

    containers: Sequence[ContainerShape]
    init_containers: Sequence[ContainerShape] = ()
    restart_policy: str = NEVER

    def sidecars(self) -> Iterable[ContainerShape]:
        return (each for each in self.init_containers if each.restart_policy == ALWAYS)

    def initializers(self) -> Iterable[ContainerShape]:
        """Init containers that have to end."""
        return (each for each in self.init_containers if each.restart_policy != ALWAYS)


@dataclass(slots=True)
class _Tally:
    unknown: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    restartable: int = 0
    succeeded: int = 0
    unstarted_sidecars: int = 0


def compute(
    shape: PodShape,
    states: Mapping[str, ObservedContainer],
    *,
    terminating: bool = False,
    initialized: bool = False,
) -> str:
    """The phase of a pod with these containers.

    `states` has the known containers, `terminating` means that no container will be restarted, and
    `initialized` that the pod was initialized once: a sidecar that restarts does not make such a
    pod pending again.
    """
    if _initialization_failed(shape, states):
        return FAILED
    tally = _Tally()
    for container in shape.sidecars():
        _tally_sidecar(tally, states.get(container.name))
    for container in shape.containers:
        _tally_regular(tally, states.get(container.name), container, shape.restart_policy)
    initializing = any(not _has_ended(states.get(each.name)) for each in shape.initializers())
    pending = initializing or (tally.unstarted_sidecars and not initialized)
    if pending or tally.waiting or tally.unknown:
        return PENDING
    if tally.running:
        return RUNNING
    return _ended(tally, terminating=terminating)


def _ended(tally: _Tally, *, terminating: bool) -> str:
    """The phase of a pod without running containers."""
    if not tally.stopped:
        return PENDING
    if tally.restartable and not terminating:
        return RUNNING
    return SUCCEEDED if tally.succeeded == tally.stopped else FAILED


def advance(current: str, computed: str) -> str:
    """The phase to report: a terminal one is never left (D2.9)."""
    return current if current in (SUCCEEDED, FAILED) else computed


def is_over(shape: PodShape, states: Mapping[str, ObservedContainer]) -> bool:
    """Whether no regular container runs or will be restarted (D2.11).

    The node then stops what still runs, sidecars included; only after that `compute` returns the
    terminal phase.
    """
    if _initialization_failed(shape, states):
        return True
    tally = _Tally()
    for container in shape.containers:
        _tally_regular(tally, states.get(container.name), container, shape.restart_policy)
    return tally.stopped == len(shape.containers) and not tally.restartable


def _initialization_failed(shape: PodShape, states: Mapping[str, ObservedContainer]) -> bool:
    """Whether an init container failed for good (D2.2)."""
    for container in shape.initializers():
        status = states.get(container.name)
        if status is None or not _has_ended(status) or status.exit_code == 0:
            continue
        if not _restarts(container, status, shape.restart_policy):
            return True
    return False


def _has_ended(status: ObservedContainer | None) -> bool:
    """Whether the container has ended at least once; a waiting one counts with its last end."""
    if status is None:
        return False
    return status.state in ("terminated", "waiting") and status.exit_code is not None


def _tally_sidecar(tally: _Tally, status: ObservedContainer | None) -> None:
    """Sidecars that ended do not matter, whatever their exit code (D2.3, D2.12)."""
    if status is None:
        tally.unknown += 1
    elif status.state == "running":
        tally.running += 1
        tally.unstarted_sidecars += not status.started
    elif not _has_ended(status):
        tally.unstarted_sidecars += 1
        if status.state == "waiting":
            tally.waiting += 1
        else:
            tally.unknown += 1


def _tally_regular(
    tally: _Tally, status: ObservedContainer | None, container: ContainerShape, pod_policy: str
) -> None:
    if status is None or not status.state:
        tally.unknown += 1
    elif status.state == "running":
        tally.running += 1
    elif not _has_ended(status):
        tally.waiting += 1
    else:
        tally.stopped += 1
        tally.restartable += _restarts(container, status, pod_policy)
        # A waiting container will run again, so its last end is no success.
        tally.succeeded += status.state == "terminated" and status.exit_code == 0


def _restarts(container: ContainerShape, status: ObservedContainer, pod_policy: str) -> bool:
    return status.restarting_all or container.restarts(status.exit_code or 0, pod_policy)

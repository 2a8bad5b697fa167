# SPDX-License-Identifier: Apache-2.0
"""The names of all controllers, and the selection that a command runs."""

from dataclasses import dataclass

from refloat.base.errors import UsageError
from refloat.config import actors

ATTACH_DETACH = "persistentvolume-attach-detach-controller"
DISRUPTION = "disruption-controller"
FAILURE_RECOVERY = actors.FAILURE_RECOVERY
FORCE_EVICTION = actors.FORCE_EVICTION
GARBAGE = "garbage-collector-controller"
JOB = "job-controller"
NAMESPACE = "namespace-controller"
NODE_LIFECYCLE = "node-lifecycle-controller"
POD_GC = "pod-garbage-collector-controller"
SCHEDULER = "scheduler"
TAINT_EVICTION = "taint-eviction-controller"
VOLUME_BINDING = "persistentvolume-binder-controller"
TTL = "ttl-after-finished-controller"

# All of them run in the embedded cluster.
KNOWN: tuple[str, ...] = (
    DISRUPTION,
    FAILURE_RECOVERY,
    FORCE_EVICTION,
    GARBAGE,
    JOB,
    NAMESPACE,
    NODE_LIFECYCLE,
    ATTACH_DETACH,
    VOLUME_BINDING,
    POD_GC,
    SCHEDULER,
    TAINT_EVICTION,
    TTL,
)

# The manager runs only the controllers that Kubernetes lacks.
ON_KUBERNETES: tuple[str, ...] = (FAILURE_RECOVERY, FORCE_EVICTION, JOB)


@dataclass(frozen=True, slots=True)
class ControllerSelection:
    """The parts of an embedded cluster besides the API server."""

    controllers: tuple[str, ...] = ()
    simulated_nodes: int = 0
    fast: bool = False
    """Waits are about ten times shorter than in Kubernetes (`timings`)."""
    self_fence_seconds: int | None = None
    """The self-fence time of simulated nodes; None: as with `fast`."""

    def __bool__(self) -> bool:
        return bool(self.controllers or self.simulated_nodes)


def select(text: str, among: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Read `*`, `none`, or names; `-name` excludes a controller, also from `*`."""
    if among is None:
        among = KNOWN
    parts = [part for part in (piece.strip() for piece in text.split(",")) if part]
    for part in parts:
        if part not in ("*", "none") and part.removeprefix("-") not in among:
            names = ", ".join(("*", "none", *among))
            raise UsageError(f"--controllers: unknown controller {part!r}; known are: {names}")
    without = {part.removeprefix("-") for part in parts if part.startswith("-")}
    everything = "*" in parts or (bool(parts) and all(part.startswith("-") for part in parts))
    return tuple(name for name in among if name not in without and (everything or name in parts))

# SPDX-License-Identifier: Apache-2.0
"""The evidence that a node is down, which each forced action needs (KEP-6757, KEP-36).

A taint is only a statement: every user who may change nodes can write it, and a node that returned
has it for a moment. Evidence is the node's Ready condition together with its Lease, which only the
node renews. A node counts as down if it has a Ready condition that is not True, and a Lease that
has not changed for the node grace period by the observer's own clock. `zombie`, `out_of_service`
and `force_eviction` ask here; `runtime.lease_observer` measures the silence.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from refloat.api import durations, structs
from refloat.api.core import Node

GRACE_PERIOD = timedelta(seconds=50)
"""The node-monitor-grace-period of Kubernetes since 1.32 (behaviour C3.1): a node that is silent
for less still counts as Ready there."""


@dataclass(frozen=True, slots=True)
class LeaseSilence:
    """How long a node's Lease has been silent, by the observer's own clock."""

    seconds: float | None
    """Since the Lease was last seen to change, or since the observer began. None: this process
    does not watch leases (`refloat explain`)."""
    lasts: float = 0.0
    """The duration of the Lease in seconds."""
    exists: bool = True

    def left(self, grace: timedelta) -> float:
        """The missing seconds of silence; not positive if none are missing.

        The longer of the grace period and the Lease's own duration counts: a node
        renews its Lease only four times in that duration.
        """
        return max(grace.total_seconds(), self.lasts) - (self.seconds or 0.0)


UNWATCHED = LeaseSilence(None)


class Doubt(StrEnum):
    """Why a node does not count as down, however long its Lease is silent."""

    READY = "NodeReady"
    NO_CONDITION = "NodeConditionMissing"
    NO_LEASE = "NodeLeaseMissing"


WORDS = {
    Doubt.READY: "its Ready condition is True",
    Doubt.NO_CONDITION: "it has no Ready condition, so nothing has judged its health yet",
    Doubt.NO_LEASE: (
        "it has no Lease in the namespace kube-node-lease, so nothing shows that it is silent"
    ),
}


def doubt(node: Node, silence: LeaseSilence) -> Doubt | None:
    """Why the node does not count as down; None if only the time of silence can be missing."""
    ready = structs.find(node.status.conditions, "Ready")
    if ready is None:
        return Doubt.NO_CONDITION
    if ready.status == "True":
        return Doubt.READY
    return None if silence.exists else Doubt.NO_LEASE


def record(node: Node | None, silence: LeaseSilence) -> dict[str, object]:
    """The evidence as fields of a log record; None for a node that does not exist."""
    taints = () if node is None else node.spec.taints or ()
    ready = None if node is None else structs.find(node.status.conditions, "Ready")
    return {
        "taints": ",".join(f"{each.key}:{each.effect}" for each in taints),
        "ready": "" if ready is None else ready.status,
        "leaseSilentSeconds": round(silence.seconds or 0.0) if silence.exists else None,
    }


def awaited(grace: timedelta) -> str:
    """What is missing while the Lease has not been silent for long enough, in words."""
    return (
        f"the Lease of the node must stay unchanged for {durations.show(grace)},"
        " by the clock of the process that acts"
    )

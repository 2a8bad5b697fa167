# SPDX-License-Identifier: Apache-2.0
"""When too many nodes are unreachable for Refloat to force anything.

If much of a cluster is out of reach, the observer is probably cut off, not
the nodes. The budget that bounds the rate is in `controllers.failure_recovery`.
"""

# So few unreachable nodes never block anything, whatever part of the cluster they are, as in
# Kubernetes for a zone (behaviour C3.13).
FEW_NODES = 2

HELD = "FailureRecoveryHeld"
"""The reason of the event on a node whose pods have to wait; `explain` reads this event."""


def holds(unreachable: int, nodes: int, above_percent: int) -> bool:
    """Whether too many nodes are unreachable for anything to be forced."""
    return unreachable > FEW_NODES and unreachable * 100 > nodes * above_percent

# SPDX-License-Identifier: Apache-2.0
"""All situations, by the cluster on which they are created."""

from tests.e2e.situations import ends, evictions, lost_nodes, pending, running

ON_PROCESSES = (
    *pending.NOT_STARTED,
    *pending.PENDING,
    *running.RUNNING,
    *running.HELD,
    *ends.ENDS,
    *evictions.EVICTIONS,
)
ON_SIMULATED = lost_nodes.situations("node-0", "node-1")
SITUATIONS = (*ON_PROCESSES, *ON_SIMULATED)

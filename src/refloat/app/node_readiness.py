# SPDX-License-Identifier: Apache-2.0
"""Waits until the nodes of an embedded cluster are Ready, before `refloat up` announces that.

After a restart the store still says what was true before: the condition Ready alone proves
nothing. So a node counts only when its Lease was also renewed since the start.
"""

from collections.abc import Iterable
from datetime import datetime

from refloat.api import structs, times
from refloat.api.coordination import NODE_NAMESPACE
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client

# A node takes about 1 s on an idle machine. If it takes this long, something is wrong with it,
# and the user needs the cluster to see what.
PATIENCE_SECONDS = 60.0

_POLL_SECONDS = 0.05


async def wait_until_ready(
    client: Client, names: Iterable[str], clock: Clock, *, since: datetime
) -> list[str]:
    """Wait until all these nodes are Ready; the nodes that are not after `PATIENCE_SECONDS`."""
    missing = list(names)[::-1]
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while missing:
        if await _is_ready(client, missing[-1], since):
            missing.pop()
        elif clock.monotonic() < deadline:
            await clock.sleep(_POLL_SECONDS)
        else:
            return [name for name in reversed(missing) if not await _is_ready(client, name, since)]
    return []


async def _is_ready(client: Client, name: str, since: datetime) -> bool:
    try:
        node = await client.get(kinds.NODES, name)
        lease = await client.get(kinds.LEASES, name, namespace=NODE_NAMESPACE)
    except errors.NotFound:
        return False
    renewed = lease.spec.renew_time
    is_alive = renewed is not None and times.parse(renewed) >= since
    return is_alive and structs.is_true(node.status.conditions, "Ready")

# SPDX-License-Identifier: Apache-2.0
"""A write of a leader that the client repeats: each try needs leadership, not the first alone."""

from collections.abc import Awaitable, Callable

import pytest

from refloat.client.contract import DeleteOptions
from refloat.client.http import HttpClient
from refloat.runtime.errors import LeadershipLost
from refloat.runtime.guard import Guard
from tests.clocks import ManualClock
from tests.unit.client.conftest import PODS
from tests.unit.client.misbehaving import Misbehaving, obj, status

POD = {"metadata": {"name": "a", "resourceVersion": "1"}}
UID = DeleteOptions(uid="u")

WRITES: dict[str, Callable[[Guard], Awaitable[object]]] = {
    "create": lambda guard: guard.create(PODS, POD, namespace="n"),
    "patch": lambda guard: guard.patch(PODS, "a", POD, namespace="n"),
    "delete": lambda guard: guard.delete(PODS, "a", namespace="n", options=UID),
    "evict": lambda guard: guard.evict("a", namespace="n", options=UID),
    "bind": lambda guard: guard.bind("a", "node", namespace="n"),
    "finalize": lambda guard: guard.finalize({"metadata": {"name": "n"}}),
}


@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_is_not_repeated_after_leadership_was_lost(
    verb: str, server: Misbehaving, client: HttpClient, clock: ManualClock
) -> None:
    def check() -> None:
        if clock.sleeps:  # the wait before the second try
            raise LeadershipLost("another process leads")

    server.will(status(429, "TooManyRequests"), obj(POD))
    with pytest.raises(LeadershipLost):
        await WRITES[verb](Guard(client, check))
    assert len(server.seen) == 1


@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_is_repeated_while_its_process_leads(
    verb: str, server: Misbehaving, client: HttpClient
) -> None:
    server.will(status(429, "TooManyRequests"), obj(POD))
    await WRITES[verb](Guard(client, lambda: None))
    assert len(server.seen) == 2

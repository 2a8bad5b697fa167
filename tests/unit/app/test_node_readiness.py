# SPDX-License-Identifier: Apache-2.0
"""`refloat up` counts a node as Ready only after a sign of life since the start."""

import pytest

from refloat.api import times
from refloat.apiserver.identity import ADMIN
from refloat.app import node_readiness
from tests import builders
from tests.apiserver_fixture import NODES, ServerFixture
from tests.cases import cases


async def add_node(api: ServerFixture, name: str, *, ready: str, renewed: bool) -> None:
    """A node with this condition, whose Lease was or was not renewed since the start."""
    await api.create(builders.node(name))
    condition = {"type": "Ready", "status": ready}
    await api.set_status(NODES, name, conditions=[condition])
    lease = builders.lease(name, namespace="kube-node-lease")
    seconds = 1 if renewed else -1
    renew_time = times.format_micro(api.clock.now() + times.span(seconds))
    lease["spec"] = {"renewTime": renew_time}
    await api.create(lease, namespace="kube-node-lease")


@pytest.fixture
async def api() -> ServerFixture:
    api = ServerFixture(jumps=True)
    await api.create(builders.namespace("kube-node-lease"))
    return api


async def wait(api: ServerFixture, *names: str) -> list[str]:
    client = api.server.client(ADMIN)
    return await node_readiness.wait_until_ready(client, names, api.clock, since=api.clock.now())


async def test_does_not_wait_when_all_nodes_are_ready(api: ServerFixture) -> None:
    for name in ("n1", "n2"):
        await add_node(api, name, ready="True", renewed=True)
    assert await wait(api, "n1", "n2") == []
    assert api.clock.sleeps == []


@cases(
    "ready renewed",
    {
        "not Ready": ("False", True),
        "Ready in the store, and silent since the start": ("True", False),
    },
)
async def test_gives_up_after_a_bounded_time_and_names_the_node(
    api: ServerFixture, ready: str, *, renewed: bool
) -> None:
    await add_node(api, "n1", ready="True", renewed=True)
    await add_node(api, "n2", ready=ready, renewed=renewed)
    assert await wait(api, "n1", "n2", "absent") == ["n2", "absent"]
    assert api.clock.monotonic() == pytest.approx(node_readiness.PATIENCE_SECONDS, abs=0.1)

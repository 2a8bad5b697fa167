# SPDX-License-Identifier: Apache-2.0
"""The pods that a node starts when it returns, with force eviction (KEP-36)."""

import contextlib
from typing import Any

import msgspec
import pytest

from refloat.agent import start_checks
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.local import LocalClient
from refloat.sim.run import Sim
from tests.cases import cases
from tests.unit.agent.nodes import Nodes, Ways, on_nodes, pod
from tests.unit.policy.builders import text
from tests.virtual import virtual

WISH: Object = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}
ON = Ways(force_eviction=True)
FOREVER = {"main": {"seconds": None}}
TOLERANT = {"tolerations": [{"operator": "Exists"}]}


def runs(here: Nodes, name: str = "p") -> bool:
    """Whether anything of the pod runs on node n0."""
    uids = {each["metadata"]["uid"] for each in here.history if each["metadata"]["name"] == name}
    containers = [each for uid in uids for each in here.runtimes["n0"].containers(uid).values()]
    return any(not each.current.has_ended for each in containers)


async def taint(here: Nodes, *taints: Object) -> None:
    await here.client.patch(kinds.NODES, "n0", {"spec": {"taints": list(taints) or None}})


async def submit(here: Nodes, name: str = "p", **spec: Any) -> None:
    await here.create(pod(name, policy="OnFailure", script=FOREVER, spec=spec))


@on_nodes(ways=ON)
async def test_a_node_that_is_force_evicted_starts_only_what_tolerates_it(here: Nodes) -> None:
    await taint(here, WISH)
    await submit(here)
    await submit(here, "tolerant", **TOLERANT)
    await here.after(30)
    assert not runs(here)
    assert runs(here, "tolerant")
    assert (await here.status())["phase"] == "Pending"
    assert here.events[-1][:2] == ("Warning", "ForceEviction")
    await taint(here)
    await here.after(2)
    assert runs(here)


class _Outage(LocalClient):
    """An API server that a test can make unreachable."""

    is_away = False

    async def get(self, kind: Any, name: str, **more: Any) -> Any:
        self._check()
        return await super().get(kind, name, **more)

    async def patch(self, kind: Any, name: str, patch: Any, **more: Any) -> Any:
        self._check()
        return await super().patch(kind, name, patch, **more)

    def _check(self) -> None:
        if self.is_away:
            raise errors.Unreachable("away")


@pytest.mark.parametrize("restarts_agent", [False, True])
@on_nodes(ways=ON)
async def test_a_pod_that_was_admitted_restarts_in_place_without_an_api_server(
    here: Nodes, restarts_agent: bool
) -> None:
    """The check is made at admission (KEP-36), not before each container.

    Also by the next agent, if the pod ran at the start of that agent.
    """
    await here.crash_agent()
    here.client = outage = _Outage(here.api, field_manager="agent")
    await here.boot()
    script = {"main": {"seconds": 30, "exitCode": 1}}
    created = await here.create(pod(policy="Always", script=script))
    await here.after(5)
    assert runs(here)
    if restarts_agent:
        await here.restart()
    outage.is_away = True
    await here.after(100)
    attempts = here.runtimes["n0"].containers(created["metadata"]["uid"])["main"]
    assert attempts.current.attempt >= 2
    outage.is_away = False
    await here.after(20)
    (container,) = (await here.status())["containerStatuses"]
    assert container["restartCount"] >= 2


@on_nodes()
async def test_without_the_gate_the_taint_is_not_asked_for(here: Nodes) -> None:
    await taint(here, WISH)
    await submit(here)
    await here.after(1)
    assert runs(here)


@on_nodes(ways=ON, seeds=5)
async def test_a_machine_that_returns_restarts_nothing_that_is_evicted(here: Nodes) -> None:
    """Scenario 1, step 5: first the heartbeat, and then no pod that has to leave."""
    await submit(here)
    await submit(here, "tolerant", **TOLERANT)
    await here.after(1)
    assert runs(here)
    here.fleet.fail("n0", "crash")
    await taint(here, WISH)
    await here.after(60)
    here.fleet.heal("n0")
    await here.after(30)
    assert not runs(here)
    assert runs(here, "tolerant")
    ready = {each["type"]: each["status"] for each in (await here.node())["status"]["conditions"]}
    assert ready["Ready"] == "True"
    await taint(here)
    await here.after(2)
    assert runs(here)


@on_nodes(ways=ON, seeds=5)
async def test_machine_that_cannot_ask_starts_only_what_tolerates_any_request(here: Nodes) -> None:
    """Scenario 2: the machine was off, and the API server is unreachable at its return."""
    here.manifests["default", "static-n0"] = static()
    await submit(here)
    await submit(here, "tolerant", **TOLERANT)
    await here.after(3)
    here.fleet.fail("n0", "crash")
    await here.after(60)
    here.fleet.heal("n0")
    here.fleet.fail("n0", "partition")
    await here.after(30)
    assert not runs(here)
    assert runs(here, "tolerant")
    assert static_runs(here)
    here.fleet.heal("n0")
    await here.after(3)
    assert runs(here)


READY: Object = {
    "metadata": {"name": "n0"},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def _as_found(uid: str = "uid", **more: Any) -> Pod:
    phase = more.pop("phase", "Pending")
    meta = {"name": "p", "uid": uid, **more}
    return msgspec.convert({"metadata": meta, "status": {"phase": phase}}, Pod)


@cases(
    "answer may",
    {
        "it is there": (_as_found(), True),
        "another one has its name": (_as_found("other"), False),
        "it was made to fail": (_as_found(phase="Failed"), False),
        "it is being deleted": (_as_found(deletionTimestamp=text(1)), False),
        "it is gone": (errors.NotFound("gone", code=404), False),
        "nobody can say": (errors.Unreachable("away"), False),
    },
)
@virtual()
async def test_a_pod_is_read_anew_before_it_begins(sim: Sim, answer: Any, may: bool) -> None:
    """The watch may be late, and the taint gone since the pod was evicted."""

    async def node() -> Node:
        return msgspec.convert(READY, Node)

    async def fetch(_: Pod) -> Pod:
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Pod)
        return answer

    gate = start_checks.ForceEvictionGate(
        "n0",
        clock=sim.clock,
        fetch=node,
        fetch_pod=fetch,
        has_posted=lambda: True,
        is_static=lambda _: False,
    )
    with contextlib.nullcontext() if may else pytest.raises(start_checks.Evicted):
        await gate(_as_found())


def static() -> Object:
    static = pod(
        "static-n0", policy="Always", script=FOREVER, uid="static-uid", namespace="default"
    )
    return {**static, "status": {"phase": "Pending"}}


def static_runs(here: Nodes) -> bool:
    containers = here.runtimes["n0"].containers("static-uid").values()
    return any(not each.current.has_ended for each in containers)


@on_nodes(ways=ON)
async def test_nothing_starts_before_the_first_heartbeat(here: Nodes) -> None:
    await here.crash_agent()
    await submit(here)
    before = here.client
    here.client = _Deaf(here.api)
    await here.boot()
    await here.after(20)
    assert not runs(here)
    _Deaf.hears = True
    await here.after(20)
    assert runs(here)
    here.client = before


class _Deaf(LocalClient):
    """Lets no status of a node through, for a while."""

    hears = False

    def __init__(self, api: Any) -> None:
        super().__init__(api, field_manager="agent")
        type(self).hears = False

    async def patch(self, kind: Any, name: str, patch: Any, **more: Any) -> Any:
        if kind is kinds.NODES and not self.hears:
            raise errors.Unavailable("not now")
        return await super().patch(kind, name, patch, **more)


@on_nodes(ways=ON)
async def test_many_pods_share_a_look_at_the_node(here: Nodes) -> None:
    reads = 0

    class Counting(LocalClient):
        async def get(self, kind: Any, name: str, **more: Any) -> Any:
            nonlocal reads
            reads += kind is kinds.NODES
            return await super().get(kind, name, **more)

    await here.crash_agent()
    here.client = Counting(here.api, field_manager="agent")
    await here.boot()
    await here.after(2)
    before = reads
    for number in range(50):
        await submit(here, f"p{number}")
    await here.after(1)
    assert all(runs(here, f"p{number}") for number in range(50))
    assert reads - before <= 10  # as many as are looked at at once

# SPDX-License-Identifier: Apache-2.0
"""The plain binder: which pods get which node, and what is said of those that get none."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.apiserver.inprocess import InProcess
from refloat.client import errors, kinds
from refloat.client.local import LocalClient
from refloat.controllers.scheduler.binder import Binder
from refloat.runtime.controller import Controller
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Queue
from refloat.sim.run import Sim
from tests import builders
from tests.simulation import api_program
from tests.unit.agent.nodes import instruments
from tests.virtual import virtual

PODS = "/api/v1/namespaces/default/pods"
READY: Object = {"type": "Ready", "status": "True"}


class Here:
    def __init__(self, sim: Sim, api: InProcess) -> None:
        self.sim = sim
        self.api = api
        self.client = LocalClient(api, field_manager="test")

    async def node(self, name: str, *, pods: int = 110, ready: bool = True, **spec: Any) -> None:
        await self.client.create(kinds.NODES, {"metadata": {"name": name}, "spec": spec})
        condition = {**READY, "status": str(ready)}
        status = {"allocatable": {"pods": str(pods)}, "conditions": [condition]}
        await self.client.patch(kinds.NODES, name, {"status": status}, subresource="status")

    async def pod(self, name: str = "p", **spec: Any) -> None:
        await self.client.create(kinds.PODS, builders.pod(name, spec=spec), namespace="default")

    async def get(self, name: str = "p") -> Object:
        found: Object = msgspec.json.decode(await self.api.call("GET", f"{PODS}/{name}"))
        return found

    async def places(self) -> dict[str, str]:
        listed = msgspec.json.decode(await self.api.call("GET", PODS))["items"]
        return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in listed}

    async def settle(self) -> None:
        await self.sim.clock.sleep(1)


@asynccontextmanager
async def binding(sim: Sim) -> AsyncIterator[Here]:
    async with api_program.serving(sim) as api:
        client = LocalClient(api, field_manager="scheduler")
        pods = Informer(client, kinds.PODS, clock=sim.clock, rand=sim.rand)
        nodes = Informer(client, kinds.NODES, clock=sim.clock, rand=sim.rand)
        binder = Binder(client, pods, nodes, clock=sim.clock, rand=sim.rand)
        controller = Controller("scheduler", binder, clock=sim.clock, instruments=instruments())
        binder.feed(controller.queue)
        for each in (nodes, pods):
            each.start()
            await each.wait_synced()
        controller.start()
        try:
            yield Here(sim, api)
        finally:
            await controller.stop()
            await pods.close()
            await nodes.close()


@virtual(seeds=10)
async def test_pods_are_spread_in_turn(sim: Sim) -> None:
    async with binding(sim) as here:
        for name in ("a", "b", "c"):
            await here.node(name)
        for number in range(9):
            await here.pod(f"p{number}")
        await here.settle()
        assert Counter((await here.places()).values()) == {"a": 3, "b": 3, "c": 3}


def test_chance_says_which_node_begins() -> None:
    first: list[str] = []

    @virtual(seeds=12)
    async def look(sim: Sim) -> None:
        async with binding(sim) as here:
            for name in ("a", "b", "c"):
                await here.node(name)
            await here.pod()
            await here.settle()
            first.extend((await here.places()).values())

    look()
    assert set(first) == {"a", "b", "c"}


@virtual()
async def test_a_bound_pod_says_that_it_is_scheduled(sim: Sim) -> None:
    async with binding(sim) as here:
        await here.node("a")
        await here.pod()
        await here.settle()
        (condition,) = (await here.get())["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


TAINT = {"key": "example.com/mine", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("node", "want"),
    [
        pytest.param(None, "no nodes available to schedule pods", id="no node"),
        pytest.param(
            {"unschedulable": True},
            "0/1 nodes are available: 1 node(s) were unschedulable.",
            id="cordoned",
        ),
        pytest.param(
            {"taints": [TAINT]},
            "0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            id="tainted",
        ),
        pytest.param({"pods": 0}, "0/1 nodes are available: 1 Too many pods.", id="full"),
        pytest.param(
            {"ready": False},
            "0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            id="not ready, and tainted for it",
        ),
    ],
)
def test_a_pod_without_a_node_says_why(node: dict[str, Any] | None, want: str) -> None:
    @virtual()
    async def check(sim: Sim) -> None:
        async with binding(sim) as here:
            if node is not None:
                await here.node("a", **node)
            await here.pod()
            await here.settle()
            found = await here.get()
            (condition,) = found["status"]["conditions"]
            assert "nodeName" not in found["spec"]
            assert condition["status"] == "False"
            assert (condition["reason"], condition["message"]) == ("Unschedulable", want)
            assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"

    check()


@virtual()
async def test_a_taint_that_only_prefers_keeps_nobody_away(sim: Sim) -> None:
    async with binding(sim) as here:
        await here.node("a", taints=[{**TAINT, "effect": "PreferNoSchedule"}])
        await here.pod()
        await here.settle()
        assert await here.places() == {"p": "a"}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"schedulingGates": [{"name": "example.com/wait"}]}, id="gated"),
        pytest.param({"schedulerName": "mine"}, id="of another scheduler"),
    ],
)
def test_pods_of_others_are_left_alone(spec: dict[str, Any]) -> None:
    @virtual()
    async def check(sim: Sim) -> None:
        async with binding(sim) as here:
            await here.node("a")
            await here.pod(**spec)
            before = await here.get()
            await here.settle()
            assert await here.get() == before

    check()


@virtual()
async def test_a_gate_that_opens_wakes_its_pod(sim: Sim) -> None:
    async with binding(sim) as here:
        await here.node("a")
        await here.pod(schedulingGates=[{"name": "example.com/wait"}])
        await here.settle()
        patch = {"spec": {"schedulingGates": None}}
        await here.client.patch(kinds.PODS, "p", patch, namespace="default")
        await here.settle()
        assert await here.places() == {"p": "a"}


@virtual(seeds=10)
async def test_a_new_node_takes_those_who_waited_as_many_as_it_can(sim: Sim) -> None:
    async with binding(sim) as here:
        for number in range(5):
            await here.pod(f"p{number}")
        await here.settle()
        await here.node("a", pods=3)
        await here.settle()
        assert Counter((await here.places()).values()) == {"a": 3, "": 2}


@virtual(seeds=10)
async def test_a_place_that_becomes_free_is_taken(sim: Sim) -> None:
    async with binding(sim) as here:
        await here.node("a", pods=1)
        for name in ("p", "q", "r"):
            await here.pod(name)
            await here.settle()
        assert await here.places() == {"p": "a", "q": "", "r": ""}
        done = {"status": {"phase": "Succeeded"}}
        await here.client.patch(kinds.PODS, "p", done, namespace="default", subresource="status")
        await here.settle()
        assert await here.places() == {"p": "a", "q": "a", "r": ""}
        await here.api.call("DELETE", f"{PODS}/q?gracePeriodSeconds=0")
        await here.settle()
        assert await here.places() == {"p": "a", "r": "a"}


@virtual(seeds=20)
async def test_a_node_is_never_overfilled(sim: Sim) -> None:
    async with binding(sim) as here:
        await here.node("a", pods=2)
        await here.node("b", pods=3)
        for number in range(9):
            await here.pod(f"p{number}")
        await here.settle()
        assert Counter((await here.places()).values()) == {"a": 2, "b": 3, "": 4}


class _Lossy(LocalClient):
    """Loses the answer to every bind: what was asked has happened."""

    async def bind(self, name: str, node: str, *, namespace: str, uid: str = "") -> None:
        await super().bind(name, node, namespace=namespace, uid=uid)
        raise errors.Timeout("no answer")


@virtual()
async def test_a_lost_answer_keeps_its_place_until_the_watch_tells(sim: Sim) -> None:
    """Else another pod is given the place of one that was bound after all."""
    async with api_program.serving(sim) as api:
        here, client = Here(sim, api), _Lossy(api, field_manager="scheduler")
        await here.node("a", pods=1)
        for name in ("p", "q"):
            await here.pod(name)
        pods = Informer(client, kinds.PODS, clock=sim.clock, rand=sim.rand)
        nodes = Informer(client, kinds.NODES, clock=sim.clock, rand=sim.rand)
        binder = Binder(client, pods, nodes, clock=sim.clock, rand=sim.rand)
        binder.feed(Queue("test", clock=sim.clock))
        for each in (nodes, pods):
            each.start()
            await each.wait_synced()
            await each.close()  # from here on the caches are stale
        with pytest.raises(errors.Timeout):
            await binder.reconcile("default/p")
        await binder.reconcile("default/q")
        await binder.reconcile("default/p")  # asked again: bound already, and that is well
        assert await here.places() == {"p": "a", "q": ""}

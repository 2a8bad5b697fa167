# SPDX-License-Identifier: Apache-2.0
"""The Lease of a node lists the pods that the node ends by itself, after their deadlines."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from refloat.agent.self_fence import DEFAULT_SECONDS, KILL_GRACE_SECONDS, SelfFence
from refloat.agent.simulated import SimulatedRuntime
from refloat.api import self_fence
from refloat.api.coordination import Lease
from refloat.api.core import Pod
from refloat.api.self_fence import Promise
from refloat.client import kinds
from refloat.client.contract import Kind
from refloat.client.local import LocalClient
from refloat.sim.run import Sim
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes
from tests.unit.agent.test_self_fence import asking, promised
from tests.virtual import virtual


async def listed(here: nodes.Nodes) -> Mapping[str, Promise]:
    lease = await here.client.get(kinds.LEASES, "n0", namespace="kube-node-lease")
    return self_fence.read_listed(lease)


async def uid_of(here: nodes.Nodes, name: str = "p") -> str:
    pod = await here.client.get(kinds.PODS, name, namespace="default")
    return pod.metadata.uid


PROMISE = Promise(DEFAULT_SECONDS, KILL_GRACE_SECONDS)


@on_nodes(seeds=5)
async def test_a_pod_is_listed_while_anything_of_it_runs(here: Nodes) -> None:
    deaf = {"main": {"seconds": None, "ignoreTerm": True}}
    await here.create(asking(script=deaf, spec={"terminationGracePeriodSeconds": 30}))
    await here.create(nodes.pod("other", script={"main": {"seconds": None}}))
    await here.after(1)
    uid = await uid_of(here)
    assert await listed(here) == {uid: PROMISE}
    await here.delete()
    await here.after(25)
    assert await listed(here) == {uid: PROMISE}
    await here.after(20)
    assert list(here.runtimes["n0"].running()) != []  # the other one
    assert await listed(here) == {}


class Ordered(LocalClient):
    """Checks what was there before each step."""

    here: nodes.Nodes
    steps: list[str]

    async def patch(self, kind: Kind[Any], name: str, patch: Any, **more: Any) -> Any:
        if kind is kinds.LEASES and self_fence.LISTED in str(patch):
            assert self.here.runtimes["n0"].deadlines(), "listed before its deadline was in force"
            assert promised(await self.here.status()) is None, "shown before it was listed"
            self.steps.append("listed")
        if kind is kinds.PODS and self_fence.CONDITION in str(patch):
            assert await listed(self.here), "shown before it was listed"
            self.steps.append("shown")
        return await super().patch(kind, name, patch, **more)


@on_nodes(seeds=10)
async def test_first_the_deadline_is_in_force_then_the_lease_lists_it_then_the_pod_shows_it(
    here: Nodes,
) -> None:
    await here.crash_agent()
    ordered = Ordered(here.api, field_manager="agent")
    ordered.here, ordered.steps = here, []
    here.client = ordered
    await here.boot()
    await here.create(asking())
    await here.after(2)
    assert ordered.steps == ["listed", "shown"]


@on_nodes(seeds=5)
async def test_promises_of_the_agent_before_stay_listed(here: Nodes) -> None:
    await here.create(asking())
    await here.create(asking("gone"))
    await here.after(1)
    uid, other = await uid_of(here), await uid_of(here, "gone")
    assert await listed(here) == {uid: PROMISE, other: PROMISE}
    await here.crash_agent()
    here.runtimes["n0"].crash()  # the machine was off, and lost its deadlines
    await here.delete("gone", gracePeriodSeconds=0)
    await here.after(30)
    assert await listed(here) == {uid: PROMISE, other: PROMISE}
    await here.boot()
    listings = [await listed(here)]
    for _ in range(200):
        await here.after(0.1)
        listings.append(await listed(here))
    assert all(each.get(uid) in (PROMISE, None) for each in listings)
    assert other not in listings[-1]


def fence_of(sim: Sim, runtime: SimulatedRuntime, calls: list[str]) -> SelfFence:
    return SelfFence(
        LocalClient(None, field_manager="agent"),  # type: ignore[arg-type]
        runtime,
        clock=sim.clock,
        seconds=100,
        wake=calls.append,
        announce=lambda: calls.append("announce"),
    )


@virtual()
async def test_promise_is_neither_listed_nor_shown_before_the_deadline_has_moved(sim: Sim) -> None:
    """An agent before this one set a deadline that is later than what this one promises."""

    class Stuck(SimulatedRuntime):
        def extend(self, at: Mapping[str, float]) -> None:
            """The keeper does not have the deadline yet."""

    runtime = Stuck(sim.clock)
    await runtime.arm("uid", 600.0)
    fence = fence_of(sim, runtime, [])
    fence.adopt(msgspec.convert({"metadata": {"uid": "uid"}}, Pod))
    fence.renewed(0.0, {})
    assert fence.promises() == {}
    assert fence.condition("uid") is None
    SimulatedRuntime.extend(runtime, {"uid": 100.0})
    assert fence.promises() == {"uid": Promise(100, KILL_GRACE_SECONDS)}
    assert fence.condition("uid") is None  # not listed yet
    fence.renewed(0.0, fence.promises())
    assert fence.condition("uid") is not None


@virtual()
async def test_a_pod_that_lost_its_deadline_is_asked_about_before_it_starts_again(sim: Sim) -> None:
    """Even after the removal of the annotation and of the condition."""
    runtime = SimulatedRuntime(sim.clock)
    fence = fence_of(sim, runtime, [])
    pod = msgspec.convert({"metadata": {"uid": "uid"}}, Pod)
    assert not fence.is_due(pod)
    fence.recall({"uid": Promise(50, 10)})
    fence.adopt(pod)
    assert fence.is_due(pod)
    assert fence.promises() == {"uid": Promise(50, 10)}


@pytest.mark.parametrize("count", [0, 1, self_fence.MAX_LISTED, self_fence.MAX_LISTED + 1])
def test_a_lease_lists_no_more_than_its_annotations_can_have(count: int) -> None:
    promises = {f"{number:036}": Promise(380, 10) for number in range(count)}
    listing = self_fence.write_listed(promises)
    assert len(listing) < 128 * 1024
    lease = msgspec.convert({"metadata": {"annotations": {self_fence.LISTED: listing}}}, Lease)
    assert len(self_fence.read_listed(lease)) == min(count, self_fence.MAX_LISTED)


@on_nodes(seeds=3)
async def test_a_restarted_container_shows_the_attempt_before_that_only_the_api_remembers(
    here: Nodes,
) -> None:
    """The machine was off, so the runtime has only the new attempt."""
    script = {"main": [{"seconds": 3, "exitCode": 7}, {"seconds": None}]}
    await here.create(nodes.pod(script=script, policy="OnFailure"))
    await here.after(3.05)
    for _ in range(100):
        (one,) = (await here.status())["containerStatuses"]
        if one["restartCount"]:
            break
        await here.after(0.1)
    assert one["lastState"]["terminated"]["exitCode"] == 7
    here.fleet.fail("n0", "crash")
    await here.after(60)
    here.fleet.heal("n0")
    await here.after(40)
    (one,) = (await here.status())["containerStatuses"]
    assert one["restartCount"] == 2
    assert one["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"

# SPDX-License-Identifier: Apache-2.0
"""A node whose calls fail, or whose answers are lost: every pod still ends, once."""

from typing import Any

import pytest

from refloat.agent.container_inputs import MountError
from refloat.agent.simulated import SimulatedRuntime
from refloat.api.core import Pod
from refloat.base.rand import Rand
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions, Kind
from refloat.client.local import LocalClient
from refloat.sim.run import Sim
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes
from tests.virtual import virtual


class _Faulty(LocalClient):
    """Half of the writes fail, at random: before or after their effect."""

    after = False
    rand = Rand(0)

    async def _faulty(self, call: Any) -> Any:
        fails = self.rand.below(2) == 0
        if fails and not self.after:
            call.close()
            raise errors.Unavailable("away")
        answer = await call
        if fails:
            raise errors.Timeout("no answer")
        return answer

    async def patch(self, kind: Kind[Any], name: str, patch: Any, **more: Any) -> Any:
        return await self._faulty(super().patch(kind, name, patch, **more))

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        *,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> None:
        await self._faulty(super().delete(kind, name, namespace=namespace, options=options))


@pytest.mark.parametrize("after", [False, True], ids=["it did not happen", "the answer was lost"])
@virtual(seeds=10)
async def test_failed_writes_are_made_again(
    sim: Sim, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "LocalClient", _Faulty)
    monkeypatch.setattr(_Faulty, "after", after)
    monkeypatch.setattr(_Faulty, "rand", sim.rand)
    async with nodes.running(sim) as here:
        for number in range(4):
            script = {"main": {"seconds": 3, "exitCode": number % 2}}
            await here.create(nodes.pod(f"p{number}", script=script))
        await here.create(nodes.pod("d", script={"main": {"seconds": None}}))
        await here.after(1)
        await here.delete("d")
        await here.after(60)
        assert await here.names() == ["p0", "p1", "p2", "p3"]
        for number in range(4):
            want = "Failed" if number % 2 else "Succeeded"
            assert here.phases(f"p{number}")[-1] == want
        assert here.phases("d")[-1] == "Failed"
        assert len(here.runtimes["n0"].pods()) == 4


@on_nodes(seeds=30)
async def test_an_agent_that_is_restarted_all_the_time_starts_nothing_twice(here: Nodes) -> None:
    for number in range(6):
        script = {"main": {"seconds": 2 + number}}
        await here.create(nodes.pod(f"p{number}", script=script))
    for _ in range(20):
        await here.after(here.sim.rand.random())
        await here.restart()
    await here.after(5)
    for number in range(6):
        status = await here.status(f"p{number}")
        assert status["phase"] == "Succeeded"
        assert status["containerStatuses"][0]["restartCount"] == 0


@on_nodes(seeds=20)
async def test_a_quiet_pod_costs_no_writes(here: Nodes) -> None:
    """One write at the start and one at the end, and none in between."""
    await here.create(nodes.pod(script={"main": {"seconds": 1000}}))
    await here.after(2000)
    assert [each["event"] for each in here.history] == ["ADDED", "MODIFIED", "MODIFIED"]


@on_nodes(seeds=5)
async def test_a_finalizer_keeps_the_ended_pod_and_the_node_asks_once(here: Nodes) -> None:
    """As on every pod of a Job; behaviour D4.7."""
    await here.create(nodes.pod(script={"main": {"seconds": None}}, finalizers=["a.b/c"]))
    await here.after(1)
    await here.delete()
    await here.after(1)
    obj = await here.call("GET", f"{nodes.PODS}/p")
    assert obj["status"]["phase"] == "Failed"
    assert obj["metadata"]["deletionGracePeriodSeconds"] == 0
    count = len(here.history)
    await here.after(600)
    assert len(here.history) == count
    patch = {"metadata": {"finalizers": None}}
    await here.client.patch(kinds.PODS, "p", patch, namespace="default")
    await here.after(1)
    assert await here.names() == []
    assert here.runtimes["n0"].pods() == []


@on_nodes(seeds=5)
async def test_pods_of_other_nodes_and_of_none_are_left_alone(here: Nodes) -> None:
    for name, node in (("p", "elsewhere"), ("q", "")):
        await here.create(nodes.pod(name, node=node))
    await here.after(30)
    assert [each["event"] for each in here.history] == ["ADDED", "ADDED"]


class _Unmounted(SimulatedRuntime):
    """A runtime whose volumes are missing until the test creates them."""

    mounted = False

    async def start(self, pod: Pod, container: str, attempt: int) -> None:
        if not self.mounted:
            raise MountError("v", 'configmap "c" not found')
        await super().start(pod, container, attempt)


@on_nodes()
async def test_a_missing_volume_is_an_event_until_it_is_there(here: Nodes) -> None:
    """behaviour D5.3: the state is that of a container that was never started."""
    await here.crash_agent()
    here.runtimes["n0"] = runtime = _Unmounted(here.sim.clock)
    await here.boot()
    await here.create(nodes.pod())
    await here.after(1)
    status = await here.status()
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    note = 'MountVolume.SetUp failed for volume "v" : configmap "c" not found'
    assert here.events == [("Warning", "FailedMount", note)]
    runtime.mounted = True
    await here.after(60)
    assert here.phases()[-1] == "Succeeded"

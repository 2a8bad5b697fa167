# SPDX-License-Identifier: Apache-2.0
"""Force eviction where Kubernetes' own controllers do the work, as `refloat manager` has it.

Taint eviction and the collector of pods are the embedded cluster's, which do
what Kubernetes' do; `make test-kubernetes` asks the real ones.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.app import inside
from refloat.app.equipment import Equipment
from refloat.base.gates import Gates
from refloat.client import fence, kinds
from refloat.client.requests import Request
from refloat.controllers.force_eviction.controller import ForceEviction
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.policy.force_eviction import PROGRESS, Settings
from refloat.policy.switches import ALL_ON
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim, run
from tests import builders
from tests.simulation import controller_world
from tests.simulation.controller_world import FAULTS, World, condition
from tests.simulation.job_world import nothing
from tests.virtual import virtual

WISH: Object = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}
OUT = "node.kubernetes.io/out-of-service"
THEIRS: Object = {"key": OUT, "value": "", "effect": "NoExecute"}


class Made:
    """The controller of a world, as it was last started."""

    force_eviction: ForceEviction

    def __call__(self, shared: Equipment) -> Sequence[Worker]:
        client = shared.client("force-eviction-controller")
        self.force_eviction = ForceEviction(
            client,
            shared.nodes,
            None,
            clock=shared.clock,
            sink=shared.recorder(client, "force-eviction"),
            instruments=shared.instruments,
            metrics=ForceEvictionMetrics(shared.registry),
            settings=Settings(hands_over=True),
        )
        return [self.force_eviction.controller]


@contextlib.asynccontextmanager
async def world(sim: Sim, made: Made | None = None) -> AsyncIterator[World]:
    """A node that is down, with a pod, a volume, and those controllers that Kubernetes has."""
    async with controller_world.world(sim, made or Made(), Gates()) as w:
        await w.node("n")
        lease = {**builders.lease("n"), "spec": {"leaseDurationSeconds": 40}}
        await w.client.create(kinds.LEASES, lease, namespace="kube-node-lease")
        await status(w, conditions=[{"type": "Ready", "status": "Unknown"}])
        await w.client.create(kinds.VOLUME_ATTACHMENTS, builders.volume_attachment("a"))
        await w.pod("p", node="n")
        others = controller_world.World(sim, w.api, kubernetes, Gates())
        await others.start()
        try:
            yield w
        finally:
            await others.stop()


def kubernetes(shared: Equipment) -> Sequence[Worker]:
    names = ("pod-garbage-collector-controller", "taint-eviction-controller")
    return [worker for name in names for worker in inside.MAKERS[name](shared)]


async def status(w: World, **fields: object) -> None:
    await w.client.patch(kinds.NODES, "n", {"status": fields}, subresource="status")


async def node(w: World) -> Node:
    return await w.client.get(kinds.NODES, "n")


async def taints(w: World) -> list[str]:
    found = (await node(w)).spec.taints or ()
    return [each.key for each in found if each.key in (WISH["key"], OUT)]


async def wish(w: World, *more: Object) -> None:
    await w.client.patch(kinds.NODES, "n", {"spec": {"taints": [WISH, *more]}})


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


@virtual(seeds=3)
async def test_others_are_told_and_do_the_work(sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
    """behaviour C9, C1.4: no volume is touched, and both taints go at the end.

    Each pod that goes is told of, counted and recorded, though others delete it.
    """
    caplog.set_level(logging.INFO)
    caplog.clear()
    async with world(sim) as w:
        attached = [{"name": "v", "devicePath": ""}]
        await status(w, volumesInUse=["v"], volumesAttached=attached)
        await w.pod("held", node="n", finalizers=["example.com/held"])
        await w.start()
        await wish(w)
        await sim.clock.sleep(49)
        assert await taints(w) == [WISH["key"]]
        await sim.clock.sleep(2)
        assert await taints(w) == [WISH["key"], OUT]
        await sim.clock.sleep(20)
        assert await w.found("p") is None
        held = await w.found("held")
        assert held is not None
        assert held.status.phase == "Failed"
        found = condition(held, "DisruptionTarget")
        assert found is not None
        assert found["reason"] == "DeletionByTaintManager"
        seen = await node(w)
        assert seen.status.volumes_in_use == ("v",)
        assert await taints(w) == [WISH["key"], OUT]  # the volume is awaited
        await status(w, volumesAttached=None)  # by the attach/detach controller
        await sim.clock.sleep(6)
        assert await taints(w) == []
        seen = await node(w)
        assert PROGRESS not in (seen.metadata.annotations or {})
        await w.client.get(kinds.VOLUME_ATTACHMENTS, "a")
        assert w.told.reasons() == [
            "ForceEvictionStarted",
            *(2 * ["ForceEviction"]),
            "ForceEvictionFinished",
        ]
        assert w.sample("refloat_force_eviction_pods_total") == 2
        assert w.sample("refloat_force_eviction_pods_left") == 0
        records = [each for each in map(fields, caplog.records) if "pod" in each]
        assert sorted((each["pod"], each["action"]) for each in records) == [
            ("default/held", "handedOver"),
            ("default/p", "handedOver"),
        ]
        assert {(each["ready"], each["leaseSilentSeconds"] >= 50) for each in records} == {
            ("Unknown", True)
        }


@virtual()
async def test_a_ready_node_is_refused(sim: Sim) -> None:
    async with world(sim) as w:
        await status(w, conditions=[{"type": "Ready", "status": "True"}])
        await w.start()
        await wish(w)
        await sim.clock.sleep(1)
        assert await taints(w) == []
        assert w.told.reasons() == ["ForceEvictionRefused"]


@virtual()
async def test_a_lease_is_watched_from_the_wish_on(sim: Sim) -> None:
    """Twice: what was seen for the first wish says nothing about the second."""
    async with world(sim) as w:
        await w.start()
        for number in range(2):
            spec = {"renewTime": f"2026-01-01T00:00:0{number}.000000Z"}
            await w.client.patch(kinds.LEASES, "n", {"spec": spec}, namespace="kube-node-lease")
            await w.pod(f"p{number}", node="n")
            await wish(w)
            await sim.clock.sleep(49)
            assert await taints(w) == [WISH["key"]]
            await sim.clock.sleep(60)
            assert await taints(w) == []
            assert await w.found(f"p{number}") is None


@virtual()
async def test_somebody_elses_taint_stays(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await wish(w, THEIRS)
        await sim.clock.sleep(90)
        assert await w.found("p") is None
        assert await taints(w) == [OUT]


@virtual()
async def test_a_taint_that_somebody_put_in_its_place_stays(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await wish(w)
        await sim.clock.sleep(51)
        assert await taints(w) == [WISH["key"], OUT]
        await wish(w, {**THEIRS, "value": "nodeshutdown"})
        await sim.clock.sleep(60)
        assert await w.found("p") is None
        assert await taints(w) == [OUT]


@virtual()
async def test_a_pod_that_others_leave_alone_is_not_waited_for(sim: Sim) -> None:
    async with world(sim) as w:
        tolerant = [{"key": OUT, "operator": "Exists"}]
        await w.pod("stays", node="n", spec={"tolerations": tolerant})
        await w.start()
        await wish(w)
        await sim.clock.sleep(90)
        assert await w.found("p") is None
        assert await w.found("stays") is not None
        assert await taints(w) == []


FOR_A_WHILE: Object = {
    "key": OUT,
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 100,
}
MY_OWN: Object = {**THEIRS, "value": "refloat-force-eviction"}


@pytest.mark.parametrize("ready", ["Unknown", "True"])
@pytest.mark.parametrize("whose", [[THEIRS], []], ids=["somebody else's", "its own"])
def test_a_taint_that_is_taken_off_in_the_middle_holds_nothing_up(
    whose: list[Object], ready: str
) -> None:
    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            await w.pod("stays", node="n", spec={"tolerations": [{"operator": "Exists"}]})
            await status(w, volumesAttached=[{"name": "v", "devicePath": ""}])
            await w.start()
            await wish(w, *whose)
            await sim.clock.sleep(70)
            assert await w.found("p") is None
            await status(w, conditions=[{"type": "Ready", "status": ready}])
            await wish(w)  # without the other
            await sim.clock.sleep(1)
            assert await taints(w) == [WISH["key"], *([] if ready == "True" else [OUT])]
            await status(w, volumesAttached=None)
            await sim.clock.sleep(6)
            assert await w.found("stays") is not None
            assert await taints(w) == []
            assert PROGRESS not in ((await node(w)).metadata.annotations or {})
            assert w.told.reasons()[-1] == "ForceEvictionFinished"

    run(program, seed=0)


@virtual()
async def test_a_taint_that_is_taken_off_before_all_is_gone_is_set_again(sim: Sim) -> None:
    """It is its own this time, and what tolerates it for a while goes too."""
    async with world(sim) as w:
        await w.pod("later", node="n", spec={"tolerations": [FOR_A_WHILE]})
        await w.start()
        await wish(w, THEIRS)
        await sim.clock.sleep(60)
        await wish(w)
        await sim.clock.sleep(1)
        found = [(each.key, each.value) for each in (await node(w)).spec.taints or ()]
        assert (OUT, MY_OWN["value"]) in found
        await sim.clock.sleep(200)
        assert await w.found("later") is None
        assert await taints(w) == []


@virtual()
async def test_a_pod_that_nobody_deletes_any_more_is_left_on_a_ready_node(sim: Sim) -> None:
    """Its countdown ended with the taint."""
    async with world(sim) as w:
        await w.pod("later", node="n", spec={"tolerations": [FOR_A_WHILE]})
        await w.start()
        await wish(w, THEIRS)
        await sim.clock.sleep(70)
        assert await w.found("p") is None
        await status(w, conditions=[{"type": "Ready", "status": "True"}])
        await wish(w)
        await sim.clock.sleep(200)
        assert await w.found("later") is not None
        assert await taints(w) == []


@virtual()
async def test_a_wish_that_is_taken_back_takes_the_taint_with_it(sim: Sim) -> None:
    async with world(sim) as w:
        await status(w, volumesAttached=[{"name": "v", "devicePath": ""}])
        await w.start()
        await wish(w)
        await sim.clock.sleep(52)
        assert await taints(w) == [WISH["key"], OUT]
        await w.client.patch(kinds.NODES, "n", {"spec": {"taints": [MY_OWN]}})
        await sim.clock.sleep(1)
        assert await taints(w) == []
        assert w.told.reasons()[-1] == "ForceEvictionWithdrawn"


@virtual()
async def test_a_node_that_returns_is_finished_with(sim: Sim) -> None:
    """Its kubelet ends the pods that are deleted, and then the taints go."""
    async with world(sim) as w:
        await w.start()
        await wish(w)
        await sim.clock.sleep(51)
        await status(w, conditions=[{"type": "Ready", "status": "True"}])
        await sim.clock.sleep(60)
        assert await taints(w) == [WISH["key"], OUT]
        await w.client.delete(
            kinds.PODS, "p", namespace="default", options=controller_world.AT_ONCE
        )
        await sim.clock.sleep(6)
        assert await taints(w) == []


@virtual()
async def test_a_gate_that_changes_while_it_runs_is_heeded(sim: Sim) -> None:
    made = Made()
    async with world(sim, made) as w:
        await w.start()
        made.force_eviction.take_up(is_on=False, switches=ALL_ON)
        await wish(w)
        await sim.clock.sleep(300)
        assert await taints(w) == [WISH["key"]]
        made.force_eviction.take_up(is_on=True, switches=ALL_ON)
        await sim.clock.sleep(51)
        assert await taints(w) == [WISH["key"], OUT]
        made.force_eviction.take_up(is_on=False, switches=ALL_ON)
        await sim.clock.sleep(300)
        assert await taints(w) == [WISH["key"], OUT]
        made.force_eviction.take_up(is_on=True, switches=ALL_ON)
        await sim.clock.sleep(51)
        assert await taints(w) == []


@pytest.mark.parametrize("path", ["/leases/", "/nodes/"])
def test_a_gate_that_is_switched_off_during_the_look_is_heeded(path: str) -> None:
    made = Made()

    async def program(sim: Sim) -> None:
        async with world(sim, made) as w:

            async def slowly(request: Request) -> None:
                if path in request.path and sim.clock.monotonic() >= began + 40:
                    w.mortal.before_read = nothing
                    made.force_eviction.take_up(is_on=False, switches=ALL_ON)
                    await sim.clock.sleep(5)

            await w.start(before_read=slowly)
            began = sim.clock.monotonic()
            await wish(w)
            await sim.clock.sleep(300)
            assert w.mortal.before_read is nothing
            assert await taints(w) == [WISH["key"]]
            assert w.mortal.writes == 0
            made.force_eviction.take_up(is_on=True, switches=ALL_ON)
            await sim.clock.sleep(90)
            assert await taints(w) == []

    run(program, seed=0)


@virtual()
async def test_a_gate_that_is_switched_off_while_a_write_waits_is_heeded(sim: Sim) -> None:
    """For the limit of the client, which asks before it sends."""
    made = Made()
    async with world(sim, made) as w:

        async def waits(_: Request) -> None:
            made.force_eviction.take_up(is_on=False, switches=ALL_ON)
            await sim.clock.sleep(5)
            fence.check()

        await w.start(before=waits)
        await wish(w)
        await sim.clock.sleep(300)
        assert w.mortal.writes == 1
        assert await taints(w) == [WISH["key"]]
        assert w.told.reasons() == []


@virtual()
async def test_what_was_seen_of_a_lease_is_forgotten_with_the_gate(sim: Sim) -> None:
    """The node was back, and went down again, while nobody looked."""
    made = Made()
    async with world(sim, made) as w:
        await w.start()
        await wish(w)
        await sim.clock.sleep(10)
        made.force_eviction.take_up(is_on=False, switches=ALL_ON)
        await sim.clock.sleep(10)
        spec = {"renewTime": "2026-01-01T00:00:00.000000Z"}
        await w.client.patch(kinds.LEASES, "n", {"spec": spec}, namespace="kube-node-lease")
        made.force_eviction.take_up(is_on=True, switches=ALL_ON)
        await sim.clock.sleep(90)
        assert w.told.reasons() == [
            "ForceEvictionStarted",
            "ForceEviction",
            "ForceEvictionFinished",
        ]


@virtual()
async def test_volumes_are_waited_for_from_when_the_last_pod_is_gone(sim: Sim) -> None:
    async with world(sim) as w:
        await status(w, volumesAttached=[{"name": "v", "devicePath": ""}])
        await w.start()
        await wish(w)
        await sim.clock.sleep(300)
        assert await w.found("p") is None
        await w.pod("late", node="n")
        await sim.clock.sleep(200)
        assert await w.found("late") is None
        assert await taints(w) == [WISH["key"], OUT]
        await sim.clock.sleep(200)
        assert await taints(w) == []


@pytest.mark.parametrize("number", range(1, 4))  # begin and end, and one beyond
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_at_a_write_the_end_is_the_same(fault: str, number: int) -> None:
    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            await wish(w)
            await FAULTS[fault](w, number, 100)
            await sim.clock.sleep(120)
            assert await w.found("p") is None
            assert await taints(w) == []
            assert PROGRESS not in ((await node(w)).metadata.annotations or {})

    run(program, seed=number)

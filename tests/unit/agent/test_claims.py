# SPDX-License-Identifier: Apache-2.0
"""Volumes behind claims on a node: in use, attached, or waited for."""

from typing import Any

from refloat.api.meta import Object
from refloat.client import kinds
from refloat.sim.run import Sim
from tests import builders
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, pod
from tests.unit.agent.test_starting import runs
from tests.virtual import virtual

NAME = "kubernetes.io/csi/volumes.refloat.dev^data"
CLAIMING: Object = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}
FOREVER = {"main": {"seconds": None}}


async def prepare(here: Nodes, *, phase: str = "Bound", **volume: Any) -> None:
    await here.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("v", **volume))
    claim = builders.claim("c", volume="v")
    await here.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
    await bind(here, phase)


async def bind(here: Nodes, phase: str = "Bound") -> None:
    await here.client.patch(
        kinds.PERSISTENT_VOLUME_CLAIMS,
        "c",
        {"status": {"phase": phase}},
        namespace="default",
        subresource="status",
    )


async def attach(here: Nodes, *names: str) -> None:
    listed = [{"name": each, "devicePath": ""} for each in names]
    status = {"volumesAttached": listed or None}
    await here.client.patch(kinds.NODES, "n0", {"status": status}, subresource="status")


async def in_use(here: Nodes) -> list[str]:
    used: list[str] = (await here.node())["status"].get("volumesInUse") or []
    return used


@virtual(seeds=3)
async def test_a_pod_waits_for_its_volume_and_says_that_it_wants_it(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await prepare(here)
        await here.create(pod(script=FOREVER, spec=CLAIMING))
        await here.after(20)
        assert not runs(here)
        assert await in_use(here) == [NAME]
        assert here.told[-1] == (
            "Warning",
            "FailedMount",
            'AttachVolume.Attach failed for volume "data" : it is not attached to node n0',
        )
        await attach(here, NAME)
        await here.after(2)
        assert runs(here)


@virtual(seeds=3)
async def test_a_volume_is_in_use_until_its_pod_has_ended(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await prepare(here)
        await attach(here, NAME)
        await here.create(pod(script={"main": {"seconds": 30}}, spec=CLAIMING))
        await here.after(5)
        assert await in_use(here) == [NAME]
        await here.after(30)
        assert (await here.status())["phase"] == "Succeeded"
        assert await in_use(here) == []


@virtual(seeds=3)
async def test_a_deleted_pod_lets_go_of_its_volume_when_it_has_ended(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await prepare(here)
        await attach(here, NAME)
        slow = {"main": {"seconds": None, "stopSeconds": 10}}
        await here.create(pod(script=slow, spec=CLAIMING))
        await here.after(5)
        await here.delete()
        await here.after(5)
        assert await in_use(here) == [NAME]
        await here.after(6)
        assert await here.names() == []
        assert await in_use(here) == []


@virtual(seeds=3)
async def test_an_agent_that_is_restarted_knows_what_is_in_use(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await prepare(here)
        await attach(here, NAME)
        await here.create(pod(script=FOREVER, spec=CLAIMING))
        await here.after(5)
        await here.restart()
        await here.after(20)
        assert await in_use(here) == [NAME]
        assert runs(here)


@virtual(seeds=3)
async def test_a_machine_that_was_off_has_nothing_in_use(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await prepare(here)
        await attach(here, NAME)
        await here.create(pod(script=FOREVER, spec=CLAIMING))
        await here.after(5)
        here.fleet.fail("n0", "crash")
        await here.after(5)
        await attach(here)
        here.fleet.heal("n0")
        await here.after(20)
        assert (await here.status())["phase"] == "Failed"
        assert await in_use(here) == []


@virtual()
async def test_a_claim_is_waited_for_until_it_is_bound(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await here.create(pod(script=FOREVER, spec=CLAIMING))
        await here.after(3)
        assert here.told[-1][2] == 'persistentvolumeclaim "c" not found'
        await prepare(here, phase="Pending")
        await here.after(3)
        assert here.told[-1][2] == 'persistentvolumeclaim "c" is not bound yet'
        await bind(here)
        await attach(here, NAME)
        await here.after(3)
        assert runs(here)


@virtual()
async def test_a_volume_of_the_machine_needs_no_attachment(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await prepare(here, source={"hostPath": {"path": "/srv"}})
        await here.create(pod(script=FOREVER, spec=CLAIMING))
        await here.after(3)
        assert runs(here)
        assert await in_use(here) == []

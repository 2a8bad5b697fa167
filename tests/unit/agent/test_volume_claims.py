# SPDX-License-Identifier: Apache-2.0
"""Volumes behind claims on a node: in use, attached, or waited for."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from refloat.agent.volume_claims import REPORT_ATTEMPTS, NotMounted, VolumeClaims
from refloat.api.meta import Object
from refloat.client import kinds
from refloat.client.contract import Client
from tests import builders
from tests.cases import cases
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes, pod
from tests.unit.agent.test_start_checks import runs

NAME = "kubernetes.io/csi/volumes.refloat.dev^data"
CLAIMING: Object = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]}
FOREVER = {"main": {"seconds": None}}
SLOW = {"main": {"seconds": None, "stopSeconds": 10}}
DEAF = {"main": {"seconds": None, "ignoreTerm": True, "killSeconds": 20}}


async def prepare(here: Nodes, *, phase: str = "Bound", **volume: Any) -> None:
    await here.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("v", **volume))
    claim = builders.claim("c", volume="v")
    await here.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
    await bind(here, phase)


async def bind(here: Nodes, phase: str = "Bound", *, name: str = "c") -> None:
    await here.client.patch(
        kinds.PERSISTENT_VOLUME_CLAIMS,
        name,
        {"status": {"phase": phase}},
        namespace="default",
        subresource="status",
    )


async def attach(here: Nodes, *names: str) -> None:
    attached = [{"name": each, "devicePath": ""} for each in names]
    status = {"volumesAttached": attached or None}
    await here.client.patch(kinds.NODES, "n0", {"status": status}, subresource="status")


async def start_attached(here: Nodes, script: Object) -> None:
    """A pod that has run for five seconds, with its volume attached."""
    await prepare(here)
    await attach(here, NAME)
    await here.create(pod(script=script, spec=CLAIMING))
    await here.after(5)


async def in_use(here: Nodes) -> list[str]:
    used: list[str] = (await here.node())["status"].get("volumesInUse") or []
    return used


@on_nodes(seeds=3)
async def test_a_pod_waits_for_its_volume_and_says_that_it_wants_it(here: Nodes) -> None:
    await prepare(here)
    await here.create(pod(script=FOREVER, spec=CLAIMING))
    await here.after(20)
    assert not runs(here)
    assert await in_use(here) == [NAME]
    assert here.events[-1] == (
        "Warning",
        "FailedMount",
        'AttachVolume.Attach failed for volume "data" : it is not attached to node n0',
    )
    await attach(here, NAME)
    await here.after(2)
    assert runs(here)


@on_nodes(seeds=3)
async def test_a_volume_is_in_use_until_its_pod_has_ended(here: Nodes) -> None:
    await start_attached(here, {"main": {"seconds": 30}})
    assert await in_use(here) == [NAME]
    await here.after(30)
    assert (await here.status())["phase"] == "Succeeded"
    assert await in_use(here) == []


@on_nodes(seeds=3)
async def test_a_deleted_pod_lets_go_of_its_volume_when_it_has_ended(here: Nodes) -> None:
    await start_attached(here, SLOW)
    await here.delete()
    await here.after(5)
    assert await in_use(here) == [NAME]
    await here.after(6)
    assert await here.names() == []
    assert await in_use(here) == []


@on_nodes(seeds=3)
async def test_an_agent_that_is_restarted_knows_what_is_in_use(here: Nodes) -> None:
    await start_attached(here, FOREVER)
    await here.restart()
    await here.after(20)
    assert await in_use(here) == [NAME]
    assert runs(here)


@on_nodes(seeds=3)
async def test_what_was_deleted_while_no_agent_was_there_is_in_use_until_it_has_ended(
    here: Nodes,
) -> None:
    """The pod has two seconds to end (behaviour D4.8), and its volume is mounted until then."""
    await start_attached(here, SLOW)
    await here.crash_agent()
    await here.delete(gracePeriodSeconds=0)
    await here.boot()
    await here.after(1.9)
    assert runs(here)
    assert await in_use(here) == [NAME]
    await here.after(0.2)
    assert not runs(here)
    assert await in_use(here) == []


@on_nodes(seeds=3)
async def test_what_is_deleted_by_force_is_in_use_until_it_has_ended(here: Nodes) -> None:
    await start_attached(here, DEAF)
    await here.delete(gracePeriodSeconds=0)
    await here.after(20)
    assert await in_use(here) == [NAME]
    await here.after(2.1)
    assert not runs(here)
    assert await in_use(here) == []


@cases(
    "kind name namespace",
    {
        "the claim was deleted": (kinds.PERSISTENT_VOLUME_CLAIMS, "c", "default"),
        "the volume was deleted": (kinds.PERSISTENT_VOLUMES, "v", ""),
    },
)
@on_nodes(seeds=3)
async def test_what_a_pod_has_mounted_stays_in_use_though_nobody_can_name_it(
    here: Nodes, kind: Any, name: str, namespace: str
) -> None:
    await start_attached(here, SLOW)
    await here.crash_agent()
    await here.client.delete(kind, name, namespace=namespace)
    await here.boot()
    await here.after(30)
    assert runs(here)
    assert await in_use(here) == [NAME]
    await here.delete()
    await here.after(9.9)
    assert await in_use(here) == [NAME]
    await here.after(0.2)
    assert await in_use(here) == []


OTHER = "kubernetes.io/csi/volumes.refloat.dev^other"


async def add_other(here: Nodes) -> Object:
    """A pod with another volume, which is attached."""
    volume = builders.volume("w", source=builders.folder("other"))
    await here.client.create(kinds.PERSISTENT_VOLUMES, volume)
    claim = builders.claim("d", volume="w")
    await here.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
    await bind(here, name="d")
    await attach(here, NAME, OTHER)
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]
    return await here.create(pod("q", script=FOREVER, spec={"volumes": volumes}))


@on_nodes(seeds=3)
async def test_who_says_what_it_uses_takes_nothing_back_of_what_is_not_known(here: Nodes) -> None:
    await start_attached(here, DEAF)
    await here.crash_agent()
    await here.delete(gracePeriodSeconds=0)
    await here.boot()
    await add_other(here)
    await here.after(15)
    assert (await here.status("q"))["phase"] == "Running"
    assert await in_use(here) == [NAME, OTHER]
    await here.after(15)
    assert await in_use(here) == [OTHER]


class Raced:
    """A client for which another writer is faster before each of the first `times` patches."""

    def __init__(self, client: Client, race: Callable[[], Awaitable[object]], times: int) -> None:
        self._client, self._race, self._times = client, race, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def patch(self, *args: Any, **more: Any) -> Any:
        if self._times:
            self._times -= 1
            await self._race()
        return await self._client.patch(*args, **more)


def claims_of(here: Nodes, *, races: int) -> VolumeClaims:
    """A node's, while others write to the node; who knows not all that is mounted."""
    names = [NAME]

    async def race() -> None:
        names.append(f"{NAME}-{len(names)}")
        await here.client.patch(
            kinds.NODES, "n0", {"status": {"volumesInUse": names}}, subresource="status"
        )

    return VolumeClaims(
        cast("Client", Raced(here.client, race, races)),
        "n0",
        active=list,
        is_active=lambda uid: True,
        holds=lambda uid: False,
        has_strays=lambda: True,
        announce=lambda: None,
    )


@on_nodes()
async def test_what_others_said_meanwhile_is_not_taken_back(here: Nodes) -> None:
    await prepare(here)
    await add_other(here)
    await here.after(2)
    await here.crash_agent()
    await here.client.patch(
        kinds.NODES, "n0", {"status": {"volumesInUse": None}}, subresource="status"
    )
    claiming = await here.client.get(kinds.PODS, "q", namespace="default")
    await claims_of(here, races=2).mount(claiming)
    assert await in_use(here) == [NAME, f"{NAME}-1", f"{NAME}-2", OTHER]
    await here.boot()


@on_nodes()
async def test_a_node_that_others_write_to_all_the_time_mounts_nothing(here: Nodes) -> None:
    await prepare(here)
    await add_other(here)
    await here.after(2)
    await here.crash_agent()
    await here.client.patch(
        kinds.NODES, "n0", {"status": {"volumesInUse": None}}, subresource="status"
    )
    claiming = await here.client.get(kinds.PODS, "q", namespace="default")
    with pytest.raises(NotMounted, match="node n0 was changed by others at the same time"):
        await claims_of(here, races=REPORT_ATTEMPTS).mount(claiming)
    await here.boot()


@on_nodes(seeds=3)
async def test_claim_that_became_another_takes_nothing_back_of_what_is_mounted(here: Nodes) -> None:
    two = {"containers": [nodes.container("main"), nodes.container("b")], **CLAIMING}
    script = {"main": {"seconds": None}, "b": {"seconds": 5, "exitCode": 1}}
    await prepare(here)
    await attach(here, NAME, OTHER)
    await here.create(pod(script=script, spec=two, policy="OnFailure"))
    await here.after(3)
    await here.client.delete(kinds.PERSISTENT_VOLUME_CLAIMS, "c", namespace="default")
    volume = builders.volume("w", source=builders.folder("other"))
    await here.client.create(kinds.PERSISTENT_VOLUMES, volume)
    claim = builders.claim("c", volume="w")
    await here.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
    await bind(here)
    await here.after(30)
    assert (await here.status())["containerStatuses"][1]["restartCount"] > 0
    assert await in_use(here) == [NAME, OTHER]


@on_nodes(seeds=3)
async def test_a_machine_that_was_off_has_nothing_in_use(here: Nodes) -> None:
    await start_attached(here, FOREVER)
    here.fleet.fail("n0", "crash")
    await here.after(5)
    await attach(here)
    here.fleet.heal("n0")
    await here.after(20)
    assert (await here.status())["phase"] == "Failed"
    assert await in_use(here) == []


@on_nodes()
async def test_a_claim_is_waited_for_until_it_is_bound(here: Nodes) -> None:
    await here.create(pod(script=FOREVER, spec=CLAIMING))
    await here.after(3)
    assert here.events[-1][2] == 'persistentvolumeclaim "c" not found'
    await prepare(here, phase="Pending")
    await here.after(3)
    assert here.events[-1][2] == 'persistentvolumeclaim "c" is not bound yet'
    await bind(here)
    await attach(here, NAME)
    await here.after(3)
    assert runs(here)


@on_nodes()
async def test_a_volume_of_the_machine_needs_no_attachment(here: Nodes) -> None:
    await prepare(here, source={"hostPath": {"path": "/srv"}})
    await here.create(pod(script=FOREVER, spec=CLAIMING))
    await here.after(3)
    assert runs(here)
    assert await in_use(here) == []

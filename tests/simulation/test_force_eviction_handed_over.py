# SPDX-License-Identifier: Apache-2.0
"""Force eviction where Kubernetes' own controllers do the work, as in `refloat manager`.

Taint eviction and the collector of pods are the embedded cluster's, which do
what Kubernetes' do; `make test-kubernetes` asks the real ones.
"""

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from refloat.api.meta import Object
from refloat.app import controller_table
from refloat.base.gates import TAINT_FORCE_EVICTION, Gates
from refloat.client import fence, kinds
from refloat.client.requests import Request
from refloat.controllers import force_eviction
from refloat.policy.recovery.force_eviction import PROGRESS, ForceEvictionSettings
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.manager import Worker
from refloat.sim.controller_process import ControllerProcess
from refloat.sim.event_log import EventLog
from refloat.sim.faulty_client import nothing
from refloat.sim.run import Sim
from tests import builders
from tests.simulation import controller_cluster
from tests.simulation.controller_cluster import FAULTS, ControllerCluster, condition, running
from tests.simulation.test_force_eviction import EVICTION_TAINT, node
from tests.virtual import virtual

ON = Gates({TAINT_FORCE_EVICTION: True})
OUT = "node.kubernetes.io/out-of-service"
THEIRS: Object = {"key": OUT, "value": "", "effect": "NoExecute"}


@contextlib.asynccontextmanager
async def new_cluster(sim: Sim) -> AsyncIterator[ControllerCluster]:
    """A node that is down, with a pod, a volume, and those controllers that Kubernetes has."""
    settings = [ForceEvictionSettings(hands_over=True)]
    async with ControllerCluster(sim, force_eviction.build, settings=settings) as cluster:
        cluster.gates = ON
        await cluster.node("n")
        lease = {**builders.lease("n"), "spec": {"leaseDurationSeconds": 40}}
        await cluster.client.create(kinds.LEASES, lease, namespace="kube-node-lease")
        await status(cluster, conditions=[{"type": "Ready", "status": "Unknown"}])
        await cluster.client.create(kinds.VOLUME_ATTACHMENTS, builders.volume_attachment("a"))
        await cluster.pod("p", node="n")
        others = ControllerProcess(sim, cluster.server, kubernetes, sink=EventLog())
        await others.start()
        try:
            yield cluster
        finally:
            await others.stop()


def kubernetes(env: ControllerEnv) -> Sequence[Worker]:
    names = ("pod-garbage-collector-controller", "taint-eviction-controller")
    return controller_table.build(env, names)


async def status(cluster: ControllerCluster, **fields: object) -> None:
    await cluster.client.patch(kinds.NODES, "n", {"status": fields}, subresource="status")


async def taints(cluster: ControllerCluster) -> list[str]:
    node_taints = (await node(cluster)).spec.taints or ()
    return [each.key for each in node_taints if each.key in (EVICTION_TAINT["key"], OUT)]


async def request_eviction(cluster: ControllerCluster, *more: Object) -> None:
    await cluster.client.patch(kinds.NODES, "n", {"spec": {"taints": [EVICTION_TAINT, *more]}})


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


@virtual(seeds=3)
async def test_others_are_told_and_do_the_work(sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
    """behaviour C9, C1.4: no volume is touched, and both taints go at the end.

    Each pod that goes has an event, a count and an audit record, though others delete it.
    """
    caplog.set_level(logging.INFO)
    caplog.clear()
    async with new_cluster(sim) as cluster:
        attached = [{"name": "v", "devicePath": ""}]
        await status(cluster, volumesInUse=["v"], volumesAttached=attached)
        await cluster.pod("held", node="n", finalizers=["example.com/held"])
        await cluster.start()
        await request_eviction(cluster)
        await sim.clock.sleep(49)
        assert await taints(cluster) == [EVICTION_TAINT["key"]]
        await sim.clock.sleep(2)
        assert await taints(cluster) == [EVICTION_TAINT["key"], OUT]
        await sim.clock.sleep(20)
        assert await cluster.find_pod("p") is None
        pod = await cluster.get_pod("held")
        assert pod.status.phase == "Failed"
        target = condition(pod, "DisruptionTarget")
        assert target is not None
        assert target["reason"] == "DeletionByTaintManager"
        current = await node(cluster)
        assert current.status.volumes_in_use == ("v",)
        assert await taints(cluster) == [EVICTION_TAINT["key"], OUT]  # the volume is awaited
        await status(cluster, volumesAttached=None)  # by the attach/detach controller
        await sim.clock.sleep(6)
        assert await taints(cluster) == []
        current = await node(cluster)
        assert PROGRESS not in (current.metadata.annotations or {})
        await cluster.client.get(kinds.VOLUME_ATTACHMENTS, "a")
        assert cluster.event_log.reasons() == [
            "ForceEvictionStarted",
            *(2 * ["ForceEviction"]),
            "ForceEvictionFinished",
        ]
        assert cluster.sample("refloat_force_eviction_pods_total") == 2
        assert cluster.sample("refloat_force_eviction_pods_left") == 0
        records = [each for each in map(fields, caplog.records) if "pod" in each]
        assert sorted((each["pod"], each["action"]) for each in records) == [
            ("default/held", "handedOver"),
            ("default/p", "handedOver"),
        ]
        assert {(each["ready"], each["leaseSilentSeconds"] >= 50) for each in records} == {
            ("Unknown", True)
        }


@virtual(new_cluster)
async def test_a_ready_node_is_refused(cluster: ControllerCluster) -> None:
    await status(cluster, conditions=[{"type": "Ready", "status": "True"}])
    await cluster.start()
    await request_eviction(cluster)
    await cluster.sleep(1)
    assert await taints(cluster) == []
    assert cluster.event_log.reasons() == ["ForceEvictionRefused"]


@virtual(running, new_cluster)
async def test_a_lease_is_watched_from_the_wish_on(cluster: ControllerCluster) -> None:
    """Twice: what the first request observed does not count for the second."""
    for number in range(2):
        spec = {"renewTime": f"2026-01-01T00:00:0{number}.000000Z"}
        await cluster.client.patch(kinds.LEASES, "n", {"spec": spec}, namespace="kube-node-lease")
        await cluster.pod(f"p{number}", node="n")
        await request_eviction(cluster)
        await cluster.sleep(49)
        assert await taints(cluster) == [EVICTION_TAINT["key"]]
        await cluster.sleep(60)
        assert await taints(cluster) == []
        assert await cluster.find_pod(f"p{number}") is None


@virtual(running, new_cluster)
async def test_somebody_elses_taint_stays(cluster: ControllerCluster) -> None:
    await request_eviction(cluster, THEIRS)
    await cluster.sleep(90)
    assert await cluster.find_pod("p") is None
    assert await taints(cluster) == [OUT]


@virtual(running, new_cluster)
async def test_a_taint_that_somebody_put_in_its_place_stays(cluster: ControllerCluster) -> None:
    await request_eviction(cluster)
    await cluster.sleep(51)
    assert await taints(cluster) == [EVICTION_TAINT["key"], OUT]
    await request_eviction(cluster, {**THEIRS, "value": "nodeshutdown"})
    await cluster.sleep(60)
    assert await cluster.find_pod("p") is None
    assert await taints(cluster) == [OUT]


@virtual(new_cluster)
async def test_a_pod_that_others_leave_alone_is_not_waited_for(cluster: ControllerCluster) -> None:
    tolerant = [{"key": OUT, "operator": "Exists"}]
    await cluster.pod("stays", node="n", spec={"tolerations": tolerant})
    await cluster.start()
    await request_eviction(cluster)
    await cluster.sleep(90)
    assert await cluster.find_pod("p") is None
    assert await cluster.find_pod("stays") is not None
    assert await taints(cluster) == []


FOR_A_WHILE: Object = {
    "key": OUT,
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 100,
}
MY_OWN: Object = {**THEIRS, "value": "refloat-force-eviction"}


@pytest.mark.parametrize("ready", ["Unknown", "True"])
@pytest.mark.parametrize("whose", [[THEIRS], []], ids=["somebody else's", "its own"])
@virtual(new_cluster)
async def test_a_taint_that_is_taken_off_in_the_middle_holds_nothing_up(
    cluster: ControllerCluster, whose: list[Object], ready: str
) -> None:
    await cluster.pod("stays", node="n", spec={"tolerations": [{"operator": "Exists"}]})
    await status(cluster, volumesAttached=[{"name": "v", "devicePath": ""}])
    await cluster.start()
    await request_eviction(cluster, *whose)
    await cluster.sleep(70)
    assert await cluster.find_pod("p") is None
    await status(cluster, conditions=[{"type": "Ready", "status": ready}])
    await request_eviction(cluster)  # without the other
    await cluster.sleep(1)
    assert await taints(cluster) == [EVICTION_TAINT["key"], *([] if ready == "True" else [OUT])]
    await status(cluster, volumesAttached=None)
    await cluster.sleep(6)
    assert await cluster.find_pod("stays") is not None
    assert await taints(cluster) == []
    assert PROGRESS not in ((await node(cluster)).metadata.annotations or {})
    assert cluster.event_log.reasons()[-1] == "ForceEvictionFinished"


@virtual(new_cluster)
async def test_taint_taken_off_before_all_is_gone_is_set_again(cluster: ControllerCluster) -> None:
    """The taint is Refloat's own this time, and pods that tolerate it for a while go too."""
    await cluster.pod("later", node="n", spec={"tolerations": [FOR_A_WHILE]})
    await cluster.start()
    await request_eviction(cluster, THEIRS)
    await cluster.sleep(60)
    await request_eviction(cluster)
    await cluster.sleep(1)
    node_taints = [(each.key, each.value) for each in (await node(cluster)).spec.taints or ()]
    assert (OUT, MY_OWN["value"]) in node_taints
    await cluster.sleep(200)
    assert await cluster.find_pod("later") is None
    assert await taints(cluster) == []


@virtual(new_cluster)
async def test_pod_that_nobody_deletes_stays_on_a_ready_node(cluster: ControllerCluster) -> None:
    """The countdown ended with the taint."""
    await cluster.pod("later", node="n", spec={"tolerations": [FOR_A_WHILE]})
    await cluster.start()
    await request_eviction(cluster, THEIRS)
    await cluster.sleep(70)
    assert await cluster.find_pod("p") is None
    await status(cluster, conditions=[{"type": "Ready", "status": "True"}])
    await request_eviction(cluster)
    await cluster.sleep(200)
    assert await cluster.find_pod("later") is not None
    assert await taints(cluster) == []


@virtual(new_cluster)
async def test_wish_that_is_taken_back_takes_the_taint_with_it(cluster: ControllerCluster) -> None:
    await status(cluster, volumesAttached=[{"name": "v", "devicePath": ""}])
    await cluster.start()
    await request_eviction(cluster)
    await cluster.sleep(52)
    assert await taints(cluster) == [EVICTION_TAINT["key"], OUT]
    await cluster.client.patch(kinds.NODES, "n", {"spec": {"taints": [MY_OWN]}})
    await cluster.sleep(1)
    assert await taints(cluster) == []
    assert cluster.event_log.reasons()[-1] == "ForceEvictionWithdrawn"


@virtual(running, new_cluster)
async def test_a_node_that_returns_is_finished_with(cluster: ControllerCluster) -> None:
    """Its kubelet ends the pods that are deleted, and then the taints go."""
    await request_eviction(cluster)
    await cluster.sleep(51)
    await status(cluster, conditions=[{"type": "Ready", "status": "True"}])
    await cluster.sleep(60)
    assert await taints(cluster) == [EVICTION_TAINT["key"], OUT]
    await cluster.client.delete(
        kinds.PODS, "p", namespace="default", options=controller_cluster.AT_ONCE
    )
    await cluster.sleep(6)
    assert await taints(cluster) == []


@virtual(running, new_cluster)
async def test_a_gate_that_changes_while_it_runs_is_heeded(cluster: ControllerCluster) -> None:
    cluster.process.env.update(gates=Gates())
    await request_eviction(cluster)
    await cluster.sleep(300)
    assert await taints(cluster) == [EVICTION_TAINT["key"]]
    cluster.process.env.update(gates=ON)
    await cluster.sleep(51)
    assert await taints(cluster) == [EVICTION_TAINT["key"], OUT]
    cluster.process.env.update(gates=Gates())
    await cluster.sleep(300)
    assert await taints(cluster) == [EVICTION_TAINT["key"], OUT]
    cluster.process.env.update(gates=ON)
    await cluster.sleep(51)
    assert await taints(cluster) == []


@pytest.mark.parametrize("path", ["/leases/", "/nodes/"])
@virtual(new_cluster)
async def test_a_gate_that_is_switched_off_during_the_look_is_heeded(
    cluster: ControllerCluster, path: str
) -> None:

    async def slowly(request: Request) -> None:
        if path in request.path and cluster.sim.clock.monotonic() >= began + 40:
            cluster.faulty.before_read = nothing
            cluster.process.env.update(gates=Gates())
            await cluster.sleep(5)

    await cluster.start(before_read=slowly)
    began = cluster.sim.clock.monotonic()
    await request_eviction(cluster)
    await cluster.sleep(300)
    assert cluster.faulty.before_read is nothing
    assert await taints(cluster) == [EVICTION_TAINT["key"]]
    assert cluster.faulty.writes == 0
    cluster.process.env.update(gates=ON)
    await cluster.sleep(90)
    assert await taints(cluster) == []


@virtual(new_cluster)
async def test_gate_switched_off_while_a_write_waits_is_heeded(cluster: ControllerCluster) -> None:
    """For the limit of the client, which checks before each request."""

    async def waits(_: Request) -> None:
        cluster.process.env.update(gates=Gates())
        await cluster.sleep(5)
        fence.check()

    await cluster.start(before=waits)
    await request_eviction(cluster)
    await cluster.sleep(300)
    assert cluster.faulty.writes == 1
    assert await taints(cluster) == [EVICTION_TAINT["key"]]
    assert cluster.event_log.reasons() == []


@virtual(running, new_cluster)
async def test_what_was_seen_of_a_lease_is_forgotten_with_gate(cluster: ControllerCluster) -> None:
    """The node was back, and went down again, while no controller ran."""
    await request_eviction(cluster)
    await cluster.sleep(10)
    cluster.process.env.update(gates=Gates())
    await cluster.sleep(10)
    spec = {"renewTime": "2026-01-01T00:00:00.000000Z"}
    await cluster.client.patch(kinds.LEASES, "n", {"spec": spec}, namespace="kube-node-lease")
    cluster.process.env.update(gates=ON)
    await cluster.sleep(90)
    assert cluster.event_log.reasons() == [
        "ForceEvictionStarted",
        "ForceEviction",
        "ForceEvictionFinished",
    ]


@virtual(new_cluster)
async def test_volumes_have_time_from_when_the_last_pod_is_gone(cluster: ControllerCluster) -> None:
    await status(cluster, volumesAttached=[{"name": "v", "devicePath": ""}])
    await cluster.start()
    await request_eviction(cluster)
    await cluster.sleep(300)
    assert await cluster.find_pod("p") is None
    await cluster.pod("late", node="n")
    await cluster.sleep(200)
    assert await cluster.find_pod("late") is None
    assert await taints(cluster) == [EVICTION_TAINT["key"], OUT]
    await cluster.sleep(200)
    assert await taints(cluster) == []


@pytest.mark.parametrize("number", range(1, 4))  # begin and end, and one beyond
@pytest.mark.parametrize("fault", FAULTS)
@virtual(new_cluster, seed_from="number")
async def test_whatever_happens_at_a_write_the_end_is_the_same(
    cluster: ControllerCluster, fault: str, number: int
) -> None:
    await request_eviction(cluster)
    await FAULTS[fault](cluster, number, 100)
    await cluster.sleep(120)
    assert await cluster.find_pod("p") is None
    assert await taints(cluster) == []
    assert PROGRESS not in ((await node(cluster)).metadata.annotations or {})

# SPDX-License-Identifier: Apache-2.0
"""What force eviction says of itself: events, records, counts, missing rights, wrong requests."""

import logging
from typing import Any

import pytest

from refloat.client import errors, fence, kinds
from refloat.client.requests import Request
from refloat.policy.recovery.force_eviction import PROGRESS
from refloat.sim.faulty_client import nothing
from refloat.sim.run import Sim
from tests.simulation.controller_cluster import AT_ONCE, NAMESPACE, ControllerCluster, running
from tests.simulation.test_force_eviction import (
    EVICTION_TAINT,
    HELD,
    event_reasons,
    new_cluster,
    node,
    post,
    renew,
    request_eviction,
    taints,
)
from tests.virtual import virtual

GRACE = 50
PODS_TOTAL = "refloat_force_eviction_pods_total"


def records(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Of pods: the key and the action."""
    all_of_them: list[dict[str, Any]] = [getattr(each, "fields", {}) for each in caplog.records]
    return [(each["pod"], each["action"]) for each in all_of_them if "pod" in each]


def notes(cluster: ControllerCluster, reason: str) -> list[str]:
    return [note for _, why, note in cluster.event_log.events if why == reason]


# -- evidence


@virtual(new_cluster, seeds=3)
async def test_a_node_whose_volumes_are_cleared_is_watched_anew_by_the_next_process(
    cluster: ControllerCluster,
) -> None:
    """The process that cleared them died; the next has not seen the lease silent."""
    await request_eviction(cluster)
    await cluster.start(dies_at=1, dies_after=True)
    await cluster.sleep(GRACE + 10)
    await cluster.stop()
    assert (await node(cluster)).metadata.annotations == {PROGRESS: '{"step":"VolumesCleared"}'}
    await cluster.start()
    await cluster.sleep(GRACE - 1)
    assert await cluster.find_pod("p") is not None
    assert event_reasons(cluster) == []
    await cluster.sleep(2)
    assert await cluster.find_pod("p") is None


@virtual(new_cluster, seeds=3)
async def test_a_node_that_renews_its_lease_when_its_volumes_are_cleared_keeps_its_pods(
    cluster: ControllerCluster,
) -> None:

    async def returns(request: Request) -> None:
        if "/nodes/n/status" in request.path:
            cluster.faulty.before = nothing
            await renew(cluster)

    await request_eviction(cluster)
    await cluster.start(before=returns)
    await cluster.sleep(600)
    assert await cluster.find_pod("p") is not None
    assert event_reasons(cluster) == ["Warning ForceEvictionRefused"]


@virtual(new_cluster)
async def test_a_node_without_a_lease_is_refused(cluster: ControllerCluster) -> None:
    await cluster.client.delete(kinds.LEASES, "n", namespace="kube-node-lease")
    await cluster.start()
    await request_eviction(cluster)
    await cluster.sleep(600)
    assert await cluster.find_pod("p") is not None
    (note,) = notes(cluster, "ForceEvictionRefused")
    assert "it has no Lease in the namespace kube-node-lease" in note


@virtual(new_cluster)
async def test_write_that_client_keeps_for_long_needs_new_reads(cluster: ControllerCluster) -> None:
    """The node renews its lease meanwhile, and has not posted its status yet."""

    async def is_kept(_: Request) -> None:
        cluster.faulty.before = nothing
        await cluster.sleep(4)
        await renew(cluster)
        fence.check()  # as the transport does before each request

    await cluster.start(before=is_kept)
    await request_eviction(cluster)
    await cluster.sleep(600)
    assert await cluster.find_pod("p") is not None
    assert event_reasons(cluster) == ["Warning ForceEvictionRefused"]


# -- records


@virtual(seeds=3)
async def test_each_pod_that_is_evicted_has_an_event_a_count_and_a_record(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    async with new_cluster(sim) as cluster:
        await cluster.pod("held", node="n", finalizers=HELD)
        await cluster.start()
        await request_eviction(cluster)
        await sim.clock.sleep(GRACE + 1)
        assert sorted(records(caplog)) == [("default/held", "evicted"), ("default/p", "evicted")]
        assert len(notes(cluster, "ForceEviction")) == 2
        assert cluster.sample(PODS_TOTAL) == 2
        (record,) = [
            each.fields  # type: ignore[attr-defined]
            for each in caplog.records
            if getattr(each, "fields", {}).get("pod") == "default/p"
        ]
        assert record["node"] == "n"
        assert record["rule"] == "refloat.dev/force-eviction=true:NoSchedule"
        assert (record["ready"], record["leaseSilentSeconds"]) == ("Unknown", GRACE)


@virtual(seeds=3)
async def test_a_pod_that_is_gone_before_the_write_is_not_counted(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    async with new_cluster(sim) as cluster:

        async def goes(request: Request) -> None:
            if "/pods/p/status" in request.path:
                cluster.faulty.before = nothing
                await cluster.client.delete(kinds.PODS, "p", namespace=NAMESPACE, options=AT_ONCE)

        await cluster.start(before=goes)
        await request_eviction(cluster)
        await sim.clock.sleep(GRACE + 10)
        assert await taints(cluster) == []
        assert notes(cluster, "ForceEviction") == []
        assert cluster.sample(PODS_TOTAL) == 0
        assert records(caplog) == []


# The writes: volumes, begin, status and deletion of the pod, the attachment, the end.
@pytest.mark.parametrize("number", range(1, 7))
@virtual(new_cluster, seed_from="number")
async def test_answer_that_is_lost_is_told_of_once(cluster: ControllerCluster, number: int) -> None:
    await cluster.start(loses=(number,))
    await request_eviction(cluster)
    await cluster.sleep(2 * GRACE + 30)  # a lost answer may be a lost contact
    assert await cluster.find_pod("p") is None
    assert event_reasons(cluster) == ["Normal ForceEvictionStarted", "Normal ForceEvictionFinished"]
    assert len(notes(cluster, "ForceEviction")) == 1
    assert cluster.sample(PODS_TOTAL) == 1
    assert cluster.sample("refloat_force_eviction_nodes_total", result="finished") == 1


# -- mistakes of the installation, and of the person who asks


@pytest.mark.parametrize(
    ("value", "effect", "shown"),
    [
        ("", "NoSchedule", "refloat.dev/force-eviction:NoSchedule"),
        ("True", "NoSchedule", "refloat.dev/force-eviction=True:NoSchedule"),
        ("true", "NoExecute", "refloat.dev/force-eviction=true:NoExecute"),
    ],
)
@virtual()
async def test_a_mistyped_request_gets_one_event_with_the_right_command(
    sim: Sim, value: str, effect: str, shown: str
) -> None:
    async with running(sim, new_cluster) as cluster:
        await request_eviction(cluster, {**EVICTION_TAINT, "value": value, "effect": effect})
        await sim.clock.sleep(1)
        await post(cluster, "False")  # the node changes, the taint does not
        await sim.clock.sleep(600)
        [(kind, reason, note)] = cluster.event_log.events
        assert (kind, reason) == ("Warning", "ForceEvictionMistyped")
        assert note.startswith(f"The taint {shown} asks for nothing")
        assert note.endswith(
            "kubectl taint node n refloat.dev/force-eviction-"
            " && kubectl taint node n refloat.dev/force-eviction=true:NoSchedule"
        )
        assert await cluster.find_pod("p") is not None
        await request_eviction(cluster)
        await sim.clock.sleep(GRACE + 1)
        assert await cluster.find_pod("p") is None


@virtual(new_cluster)
async def test_missing_right_shows_in_readyz_a_gauge_and_an_event(
    cluster: ControllerCluster,
) -> None:
    gauge = "refloat_force_eviction_missing_rights"

    def forbidden(request: Request, _: int) -> errors.ClientError | None:
        is_delete = request.method == "DELETE" and "/pods/" in request.path
        return errors.Forbidden("no", code=403) if is_delete else None

    await cluster.start(refuses=forbidden)
    await request_eviction(cluster)
    await cluster.sleep(2 * GRACE)
    missing = cluster.process.env.readiness["rights/force-eviction-controller"]()
    assert missing == "force-eviction-controller may not delete pods"
    assert cluster.sample(gauge, right="delete pods") == 1
    assert len(notes(cluster, "MissingRights")) == 1
    assert cluster.sample("refloat_force_eviction_pods_left") == 1
    cluster.faulty.refuses = lambda *_: None
    await cluster.sleep(60)
    assert await cluster.find_pod("p") is None
    assert cluster.process.env.readiness["rights/force-eviction-controller"]() is None
    assert cluster.sample(gauge, right="delete pods") == 0
    assert cluster.sample("refloat_force_eviction_pods_left") == 0

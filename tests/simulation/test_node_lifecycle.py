# SPDX-License-Identifier: Apache-2.0
"""Node lifecycle, to the second: from silence to taints, and back (behaviour C3)."""

import contextlib
from collections.abc import AsyncIterator

from refloat.app.controller_names import NODE_LIFECYCLE, TAINT_EVICTION
from refloat.client import kinds
from refloat.sim.run import Sim
from tests.simulation.controller_cluster import running
from tests.simulation.node_cluster import NodeCluster
from tests.virtual import virtual

NOT_READY = "not-ready:NoSchedule"
NO_SCHEDULE = "unreachable:NoSchedule"
NO_EXECUTE = "unreachable:NoExecute"


@contextlib.asynccontextmanager
async def silent_node(sim: Sim) -> AsyncIterator[NodeCluster]:
    """A node `n` that does not renew its Lease, and a node `other` that does."""
    async with NodeCluster(sim) as cluster:
        await cluster.nodes(["n", "other"])
        cluster.keep_beating("other")
        yield cluster


@virtual(running, silent_node)
async def test_silent_node_is_unknown_at_first_pass_after_its_grace(cluster: NodeCluster) -> None:
    """Behaviour C3.1, C3.4: the last sign of life at 7 s, lost at 57 s, seen at 60 s."""
    await cluster.until(7)
    await cluster.renew("n")
    await cluster.until(59.9)
    assert await cluster.ready("n") == "True"
    await cluster.until(60)
    conditions = (await cluster.raw("nodes", "n"))["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in conditions] == [
        ("Ready", "Unknown"),
        ("MemoryPressure", "Unknown"),
        ("DiskPressure", "Unknown"),
        ("PIDPressure", "Unknown"),
    ]
    assert {(each["reason"], each["message"]) for each in conditions} == {
        ("NodeStatusUnknown", "Kubelet stopped posting node status.")
    }
    assert all(each["lastTransitionTime"] > each["lastHeartbeatTime"] for each in conditions)
    assert await cluster.taints("n") == [NO_SCHEDULE, NO_EXECUTE]
    assert await cluster.ready("other") == "True"
    assert await cluster.taints("other") == []


@virtual(NodeCluster)
async def test_node_that_never_posted_is_unknown_after_startup_grace(cluster: NodeCluster) -> None:
    """Behaviour C3.1, C3.4: 60 s from its creation, though the node has no Lease."""
    await cluster.node("other")
    cluster.keep_beating("other")
    await cluster.start()
    await cluster.until(3)
    await cluster.node("n", posts=False, leases=False)
    network = {"conditions": [{"type": "NetworkUnavailable", "status": "False"}]}
    await cluster.client.patch(kinds.NODES, "n", {"status": network}, subresource="status")
    await cluster.until(64.9)
    assert await cluster.ready("n") == ""
    await cluster.until(65)
    node = await cluster.raw("nodes", "n")
    for each in node["status"]["conditions"][1:]:
        assert each["status"] == "Unknown"
        assert each["reason"] == "NodeStatusNeverUpdated"
        assert each["message"] == "Kubelet never posted node status."
        assert each["lastHeartbeatTime"] == node["metadata"]["creationTimestamp"]
    assert [each["type"] for each in node["status"]["conditions"]] == [
        "NetworkUnavailable",
        "Ready",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
    ]
    assert "NodeNotReady" not in str(cluster.event_log.about("Node/n"))


@virtual(NodeCluster)
async def test_each_signal_alone_keeps_a_node_alive(cluster: NodeCluster) -> None:
    """Behaviour C3.2: a lease, or a status that beats."""
    await cluster.node("leases")
    await cluster.node("posts", leases=False)
    await cluster.node("never-posts", posts=False)
    await cluster.start()
    cluster.keep_beating("leases", "never-posts")
    for _ in range(20):
        await cluster.sleep(10)
        await cluster.post("posts")
    assert [await cluster.ready(each) for each in ("leases", "posts", "never-posts")] == [
        "True",
        "True",
        "",
    ]


@virtual(silent_node)
async def test_what_the_clock_of_a_node_says_does_not_matter(cluster: NodeCluster) -> None:
    """Behaviour C3.2: years behind, only the change of its Lease counts."""
    await cluster.renew("n", "1999-12-31T23:00:00.000000Z")
    await cluster.start()
    for minute in range(3):
        await cluster.until(40 * (minute + 1))
        await cluster.renew("n", f"1999-12-31T23:0{minute + 1}:00.000000Z")
    await cluster.until(174.8)
    assert await cluster.ready("n") == "True"
    await cluster.until(175)
    assert await cluster.ready("n") == "Unknown"


@virtual(running, silent_node)
async def test_a_lease_that_goes_back_is_one_sign_of_life(cluster: NodeCluster) -> None:
    await cluster.until(30)
    await cluster.renew("n", "1999-12-31T23:00:00.000000Z")
    await cluster.until(79.9)
    assert await cluster.ready("n") == "True"
    await cluster.until(85.1)
    assert await cluster.ready("n") == "Unknown"


@virtual(running, silent_node)
async def test_a_node_whose_clock_is_set_back_stays_ready(cluster: NodeCluster) -> None:
    """By an hour, and it renews its Lease as before."""
    await cluster.renew("n", "2026-01-01T01:00:00.000000Z")
    for minute in range(5):
        await cluster.until(40 * (minute + 1))
        await cluster.renew("n", f"2026-01-01T00:0{minute}:00.000000Z")
        assert await cluster.ready("n") == "True"
    assert await cluster.taints("n") == []


@virtual(silent_node)
async def test_a_node_that_falls_silent_is_told_of_with_its_pods(cluster: NodeCluster) -> None:
    """Behaviour C3.6."""
    await cluster.pod("p", node="n")
    await cluster.pod("elsewhere", node="other")
    before = await cluster.status("p", conditions=[{"type": "Ready", "reason": "kept"}])
    await cluster.start()
    await cluster.until(50)
    ready = (await cluster.get_pod("p")).status.conditions[0]  # type: ignore[index]
    assert (ready.status, ready.reason) == ("False", "kept")
    assert before.status.conditions is not None
    assert ready.last_transition_time != before.status.conditions[0].last_transition_time
    assert (await cluster.get_pod("p")).status.reason == ""
    assert cluster.event_log.about("Pod/p") == [("Warning NodeNotReady", "Node is not ready")]
    assert cluster.event_log.about("Node/n") == [
        ("Normal RegisteredNode", "Node n event: Registered Node n in Controller"),
        ("Normal NodeNotReady", "Node n status is now: NodeNotReady"),
    ]
    assert cluster.event_log.about("Pod/elsewhere") == []
    elsewhere = (await cluster.get_pod("elsewhere")).status.conditions[0]  # type: ignore[index]
    assert elsewhere.status == "True"


@virtual(NodeCluster)
async def test_node_that_says_it_is_not_ready_is_only_tainted(cluster: NodeCluster) -> None:
    """Behaviour C3.7, C3.8: its kubelet takes care of its pods."""
    await cluster.nodes(["n", "other"])
    cluster.keep_beating("n", "other")
    await cluster.pod("p", node="n")
    await cluster.start()
    await cluster.until(7)
    await cluster.post("n", Ready="False")
    await cluster.until(7.1)
    assert await cluster.taints("n") == [NOT_READY]
    await cluster.until(10)
    assert await cluster.taints("n") == [NOT_READY, "not-ready:NoExecute"]
    assert cluster.event_log.about("Pod/p") == []
    assert len(cluster.event_log.about("Node/n")) == 1


@virtual(silent_node)
async def test_not_ready_becomes_unreachable_without_a_queue(cluster: NodeCluster) -> None:
    """Behaviour C3.8, C3.11."""
    await cluster.post("n", Ready="False")
    await cluster.start()
    await cluster.until(0.1)
    assert await cluster.taints("n") == [NOT_READY, "not-ready:NoExecute"]
    await cluster.until(50)
    assert sorted(await cluster.taints("n")) == [NO_EXECUTE, NO_SCHEDULE]


@virtual(running, silent_node)
async def test_a_node_that_is_back_is_clean_at_the_next_pass(cluster: NodeCluster) -> None:
    """Behaviour C3.7, C3.9."""
    await cluster.until(51)
    assert await cluster.taints("n") == [NO_SCHEDULE, NO_EXECUTE]
    await cluster.post("n")
    await cluster.until(51.2)
    assert await cluster.taints("n") == [NO_EXECUTE]
    await cluster.until(54.9)
    assert await cluster.taints("n") == [NO_EXECUTE]
    await cluster.until(55)
    assert await cluster.taints("n") == []


@virtual(running, silent_node)
async def test_a_lease_alone_does_not_make_a_lost_node_ready(cluster: NodeCluster) -> None:
    await cluster.until(51)
    cluster.keep_beating("n")
    await cluster.until(120)
    assert await cluster.ready("n") == "Unknown"
    assert await cluster.taints("n") == [NO_SCHEDULE, NO_EXECUTE]


@virtual(running, silent_node)
async def test_somebody_who_calls_a_silent_node_ready_is_corrected(cluster: NodeCluster) -> None:
    await cluster.until(51)
    lie = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.client.patch(kinds.NODES, "n", lie, patch_type="strategic", subresource="status")
    await cluster.until(55)
    assert await cluster.ready("n") == "Unknown"


@virtual(running, silent_node)
async def test_after_a_restart_taints_go_and_come_again(cluster: NodeCluster) -> None:
    """Behaviour C3.10: first off, then queued in the same pass."""
    await cluster.until(60)
    first = (await cluster.get_node("n")).spec.taints
    await cluster.start()
    await cluster.until(0.1)
    second = (await cluster.get_node("n")).spec.taints
    assert await cluster.taints("n") == [NO_SCHEDULE, NO_EXECUTE]
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
    assert first[1].time_added < second[1].time_added  # type: ignore[operator]


@virtual(silent_node)
async def test_a_node_that_died_with_the_controller_has_its_grace_from_the_restart(
    cluster: NodeCluster,
) -> None:
    await cluster.sleep(40)
    await cluster.start()
    await cluster.until(49.9)
    assert await cluster.ready("n") == "True"
    await cluster.until(50)
    assert await cluster.ready("n") == "Unknown"


@virtual(silent_node)
async def test_pods_not_marked_before_a_restart_are_marked_after_it(cluster: NodeCluster) -> None:
    await cluster.pod("p", node="n")
    await cluster.post("n", Ready="Unknown")
    await cluster.start()
    await cluster.until(0.1)
    assert (await cluster.get_pod()).status.conditions[0].status == "False"  # type: ignore[index]


@virtual(NodeCluster, NODE_LIFECYCLE, beside=(TAINT_EVICTION,))
async def test_a_pod_that_is_bound_to_a_lost_node_is_not_ready(cluster: NodeCluster) -> None:
    """Behaviour C3.6."""
    await cluster.nodes(["n", "other"])
    cluster.keep_beating("other")
    await cluster.start()
    await cluster.until(51)
    await cluster.pod("late", node="")
    await cluster.client.bind("late", "n", namespace="default")
    await cluster.until(51.2)
    assert (await cluster.get_pod("late")).status.conditions[0].status == "False"  # type: ignore[index]
    assert cluster.event_log.about("Pod/late") == [("Warning NodeNotReady", "Node is not ready")]


@virtual(NodeCluster, NODE_LIFECYCLE)
async def test_without_taint_eviction_the_pods_of_a_lost_node_say_so(cluster: NodeCluster) -> None:
    """KEP-3329, "Disconnected node when taint-manager is disabled"."""
    await cluster.nodes(["n", "sick", "other"])
    cluster.keep_beating("other", "sick")
    await cluster.pod("p", node="n")
    await cluster.pod("done", node="n")
    await cluster.status("done", phase="Succeeded")
    await cluster.pod("kept", node="sick")
    await cluster.start()
    await cluster.until(7)
    await cluster.post("sick", Ready="False")
    await cluster.until(1000)
    pod = await cluster.get_pod("p")
    assert pod.status.phase == "Running"
    assert pod.status.reason == "NodeLost"
    assert pod.status.message == "Node n which was running pod p is unresponsive"
    assert not pod.is_terminating
    assert (await cluster.get_pod("done")).status.reason == ""
    assert (await cluster.get_pod("kept")).status.reason == ""


@virtual(NodeCluster, NODE_LIFECYCLE)
async def test_without_taint_eviction_the_pods_of_a_node_that_is_back_say_no_more_that_it_is_lost(
    cluster: NodeCluster,
) -> None:
    await cluster.nodes(["n", "other"])
    cluster.keep_beating("other")
    await cluster.pod("p", node="n")
    await cluster.start()
    await cluster.until(51)
    assert (await cluster.get_pod("p")).status.reason == "NodeLost"
    await cluster.start()
    await cluster.until(1)
    assert (await cluster.get_pod("p")).status.reason == "NodeLost"
    await cluster.post("n")
    await cluster.until(5)
    pod = await cluster.get_pod("p")
    assert (pod.status.reason, pod.status.message) == ("", "")


@virtual(running, silent_node)
async def test_a_node_that_is_removed_is_told_of_and_forgotten(cluster: NodeCluster) -> None:
    """Behaviour C3.16."""
    await cluster.until(1)
    await cluster.client.delete(kinds.NODES, "n")
    await cluster.until(4.9)
    assert len(cluster.event_log.about("Node/n")) == 1
    await cluster.until(5)
    assert cluster.event_log.about("Node/n")[1:] == [
        ("Normal RemovingNode", "Node n event: Removing Node n from Controller")
    ]
    await cluster.node("n", leases=False)
    await cluster.until(54)
    assert await cluster.ready("n") == "True"
    assert len(cluster.event_log.about("Node/n")) == 3


@virtual(NodeCluster)
async def test_nodes_that_beat_cost_no_look_and_no_write(cluster: NodeCluster) -> None:
    names = [f"n{number}" for number in range(50)]
    await cluster.nodes(names)
    cluster.keep_beating(*names)
    await cluster.start()
    await cluster.until(20)
    looks = "node_collector_update_node_health_duration_seconds_count"
    before = cluster.metrics.get_sample_value(looks), cluster.faulty.writes
    assert before[1] == len(names)  # the taint of each new node
    await cluster.until(320)
    after = cluster.metrics.get_sample_value(looks), cluster.faulty.writes
    assert after == before


@virtual(NodeCluster)
async def test_a_tenth_of_the_nodes_is_lost_and_no_heartbeat_of_the_others_missed(
    cluster: NodeCluster,
) -> None:
    names = [f"n{number}" for number in range(100)]
    await cluster.nodes(names)
    for number in range(10):
        await cluster.pod(f"p{number}", node=f"n{number}")
    cluster.keep_beating(*names)
    await cluster.start()
    await cluster.until(30)
    cluster.silence(*names[:10])
    await cluster.until(100)
    statuses = [await cluster.ready(each) for each in names]
    assert statuses == ["Unknown"] * 10 + ["True"] * 90
    # The taint of each new node; of lost ones the status, a taint and a pod; and three have
    # had their turn to be tainted NoExecute.
    assert cluster.faulty.writes == 100 + 10 * 3 + 3


@virtual(NodeCluster, seeds=5)
async def test_a_stop_of_the_controllers_is_no_silence_of_the_nodes(cluster: NodeCluster) -> None:
    """The pod would leave at once: no toleration, not even for a second."""
    await cluster.nodes(["n", "other"])
    cluster.keep_beating("n", "other")
    await cluster.pod("p", node="n", tolerations=[])
    await cluster.start()
    await cluster.until(30 + 10 * cluster.sim.rand.random())
    cluster.stop_controllers(300)
    await cluster.sleep(60)
    assert [await cluster.ready(each) for each in ("n", "other")] == ["True", "True"]
    assert await cluster.taints("n") == []
    assert (
        cluster.event_log.about("Node/n") == cluster.event_log.about("Node/n")[:1]
    )  # the node was registered
    assert not (await cluster.get_pod()).is_terminating


@virtual(running, silent_node)
async def test_a_node_that_died_during_a_stop_of_the_controllers_is_lost_after_its_grace(
    cluster: NodeCluster,
) -> None:
    await cluster.until(12)
    cluster.stop_controllers(300)
    await cluster.until(15)  # the next pass
    await cluster.until(64.9)
    assert await cluster.ready("n") == "True"
    await cluster.until(65)
    assert await cluster.ready("n") == "Unknown"

# SPDX-License-Identifier: Apache-2.0
"""Node lifecycle, to the second: from silence to taints, and back (behaviour C3)."""

from refloat.client import kinds
from refloat.controllers.node_lifecycle.settings import Settings
from refloat.sim.run import Sim
from tests.simulation.node_world import Choice, world
from tests.virtual import virtual

NOT_READY = "not-ready:NoSchedule"
NO_SCHEDULE = "unreachable:NoSchedule"
NO_EXECUTE = "unreachable:NoExecute"


@virtual()
async def test_a_silent_node_is_unknown_at_the_first_pass_after_its_grace(sim: Sim) -> None:
    """Behaviour C3.1, C3.4: the last sign of life at 7 s, lost at 57 s, seen at 60 s."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(7)
        await here.renew("n")
        await here.until(59.9)
        assert await here.ready("n") == "True"
        await here.until(60)
        found = (await here.raw_node("n"))["status"]["conditions"]
        assert [(each["type"], each["status"]) for each in found] == [
            ("Ready", "Unknown"),
            ("MemoryPressure", "Unknown"),
            ("DiskPressure", "Unknown"),
            ("PIDPressure", "Unknown"),
        ]
        assert {(each["reason"], each["message"]) for each in found} == {
            ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        }
        assert all(each["lastTransitionTime"] > each["lastHeartbeatTime"] for each in found)
        assert await here.taints("n") == [NO_SCHEDULE, NO_EXECUTE]
        assert await here.ready("other") == "True"
        assert await here.taints("other") == []


@virtual()
async def test_a_node_that_never_posted_is_unknown_after_the_startup_grace(sim: Sim) -> None:
    """Behaviour C3.1, C3.4: 60 s from its creation, though it has no lease."""
    async with world(sim) as here:
        await here.node("other")
        here.keep_beating("other")
        await here.start()
        await here.until(3)
        await here.node("n", posts=False, leases=False)
        network = {"conditions": [{"type": "NetworkUnavailable", "status": "False"}]}
        await here.client.patch(kinds.NODES, "n", {"status": network}, subresource="status")
        await here.until(64.9)
        assert await here.ready("n") == ""
        await here.until(65)
        node = await here.raw_node("n")
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
        assert "NodeNotReady" not in str(here.told.about("Node/n"))


@virtual()
async def test_each_signal_alone_keeps_a_node_alive(sim: Sim) -> None:
    """Behaviour C3.2: a lease, or a status that beats."""
    async with world(sim) as here:
        await here.node("leases")
        await here.node("posts", leases=False)
        await here.node("never-posts", posts=False)
        await here.start()
        here.keep_beating("leases", "never-posts")
        for _ in range(20):
            await here.sleep(10)
            await here.post("posts")
        assert [await here.ready(each) for each in ("leases", "posts", "never-posts")] == [
            "True",
            "True",
            "",
        ]


@virtual()
async def test_what_the_clock_of_a_node_says_does_not_matter(sim: Sim) -> None:
    """Behaviour C3.2: years behind, it counts when its lease was seen to change."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.renew("n", "1999-12-31T23:00:00.000000Z")
        await here.start()
        for minute in range(3):
            await here.until(40 * (minute + 1))
            await here.renew("n", f"1999-12-31T23:0{minute + 1}:00.000000Z")
        await here.until(174.8)
        assert await here.ready("n") == "True"
        await here.until(175)
        assert await here.ready("n") == "Unknown"


@virtual()
async def test_a_lease_that_goes_back_is_no_sign_of_life(sim: Sim) -> None:
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(30)
        await here.renew("n", "1999-12-31T23:00:00.000000Z")
        await here.until(50.1)
        assert await here.ready("n") == "Unknown"


@virtual()
async def test_a_node_that_falls_silent_is_told_of_with_its_pods(sim: Sim) -> None:
    """Behaviour C3.6."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.pod("p", node="n")
        await here.pod("elsewhere", node="other")
        before = await here.pod_status("p", {"conditions": [{"type": "Ready", "reason": "kept"}]})
        await here.start()
        await here.until(50)
        ready = (await here.get_pod("p")).status.conditions[0]  # type: ignore[index]
        assert (ready.status, ready.reason) == ("False", "kept")
        assert before.status.conditions is not None
        assert ready.last_transition_time != before.status.conditions[0].last_transition_time
        assert (await here.get_pod("p")).status.reason == ""
        assert here.told.about("Pod/p") == [("Warning NodeNotReady", "Node is not ready")]
        assert here.told.about("Node/n") == [
            ("Normal RegisteredNode", "Node n event: Registered Node n in Controller"),
            ("Normal NodeNotReady", "Node n status is now: NodeNotReady"),
        ]
        assert here.told.about("Pod/elsewhere") == []
        elsewhere = (await here.get_pod("elsewhere")).status.conditions[0]  # type: ignore[index]
        assert elsewhere.status == "True"


@virtual()
async def test_a_node_that_says_it_is_not_ready_is_tainted_but_not_told_of(sim: Sim) -> None:
    """Behaviour C3.7, C3.8: its kubelet takes care of its pods."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("n", "other")
        await here.pod("p", node="n")
        await here.start()
        await here.until(7)
        await here.post("n", Ready="False")
        await here.until(7.1)
        assert await here.taints("n") == [NOT_READY]
        await here.until(10)
        assert await here.taints("n") == [NOT_READY, "not-ready:NoExecute"]
        assert here.told.about("Pod/p") == []
        assert len(here.told.about("Node/n")) == 1


@virtual()
async def test_not_ready_becomes_unreachable_without_a_queue(sim: Sim) -> None:
    """Behaviour C3.8, C3.11."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.post("n", Ready="False")
        await here.start()
        await here.until(0.1)
        assert await here.taints("n") == [NOT_READY, "not-ready:NoExecute"]
        await here.until(50)
        assert sorted(await here.taints("n")) == [NO_EXECUTE, NO_SCHEDULE]


@virtual()
async def test_a_node_that_is_back_is_clean_at_the_next_pass(sim: Sim) -> None:
    """Behaviour C3.7, C3.9."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(51)
        assert await here.taints("n") == [NO_SCHEDULE, NO_EXECUTE]
        await here.post("n")
        await here.until(51.2)
        assert await here.taints("n") == [NO_EXECUTE]
        await here.until(54.9)
        assert await here.taints("n") == [NO_EXECUTE]
        await here.until(55)
        assert await here.taints("n") == []


@virtual()
async def test_a_lease_alone_does_not_make_a_lost_node_ready(sim: Sim) -> None:
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(51)
        here.keep_beating("n")
        await here.until(120)
        assert await here.ready("n") == "Unknown"
        assert await here.taints("n") == [NO_SCHEDULE, NO_EXECUTE]


@virtual()
async def test_somebody_who_calls_a_silent_node_ready_is_corrected(sim: Sim) -> None:
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(51)
        lie = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await here.client.patch(kinds.NODES, "n", lie, patch_type="strategic", subresource="status")
        await here.until(55)
        assert await here.ready("n") == "Unknown"


@virtual()
async def test_after_a_restart_taints_go_and_come_again(sim: Sim) -> None:
    """Behaviour C3.10: first off, then queued in the same pass."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(60)
        first = (await here.get_node("n")).spec.taints
        await here.start()
        await here.until(0.1)
        second = (await here.get_node("n")).spec.taints
        assert await here.taints("n") == [NO_SCHEDULE, NO_EXECUTE]
        assert first is not None
        assert second is not None
        assert first[0] == second[0]
        assert first[1].time_added < second[1].time_added  # type: ignore[operator]


@virtual()
async def test_a_node_that_died_with_the_controller_has_its_grace_from_the_restart(
    sim: Sim,
) -> None:
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.sleep(40)
        await here.start()
        await here.until(49.9)
        assert await here.ready("n") == "True"
        await here.until(50)
        assert await here.ready("n") == "Unknown"


@virtual()
async def test_pods_that_did_not_hear_of_it_before_a_restart_hear_after_it(sim: Sim) -> None:
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.pod("p", node="n")
        await here.post("n", Ready="Unknown")
        await here.start()
        await here.until(0.1)
        assert (await here.get_pod()).status.conditions[0].status == "False"  # type: ignore[index]


@virtual()
async def test_a_pod_that_is_bound_to_a_lost_node_is_not_ready(sim: Sim) -> None:
    """Behaviour C3.6."""
    async with world(sim, Choice(eviction=False)) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(51)
        await here.pod("late", node="")
        await here.client.bind("late", "n", namespace="default")
        await here.until(51.2)
        assert (await here.get_pod("late")).status.conditions[0].status == "False"  # type: ignore[index]
        assert here.told.about("Pod/late") == [("Warning NodeNotReady", "Node is not ready")]


@virtual()
async def test_without_taint_eviction_the_pods_of_a_lost_node_say_so(sim: Sim) -> None:
    """KEP-3329, "Disconnected node when taint-manager is disabled"."""
    choice = Choice(eviction=False, settings=Settings(taint_eviction=False))
    async with world(sim, choice) as here:
        await here.nodes(["n", "sick", "other"])
        here.keep_beating("other", "sick")
        await here.pod("p", node="n")
        await here.pod("done", node="n")
        await here.pod_status("done", {"phase": "Succeeded"})
        await here.pod("kept", node="sick")
        await here.start()
        await here.until(7)
        await here.post("sick", Ready="False")
        await here.until(1000)
        pod = await here.get_pod("p")
        assert pod.status.phase == "Running"
        assert pod.status.reason == "NodeLost"
        assert pod.status.message == "Node n which was running pod p is unresponsive"
        assert not pod.is_terminating
        assert (await here.get_pod("done")).status.reason == ""
        assert (await here.get_pod("kept")).status.reason == ""


@virtual()
async def test_without_taint_eviction_the_pods_of_a_node_that_is_back_say_no_more_that_it_is_lost(
    sim: Sim,
) -> None:
    choice = Choice(eviction=False, settings=Settings(taint_eviction=False))
    async with world(sim, choice) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.pod("p", node="n")
        await here.start()
        await here.until(51)
        assert (await here.get_pod("p")).status.reason == "NodeLost"
        await here.start()
        await here.until(1)
        assert (await here.get_pod("p")).status.reason == "NodeLost"
        await here.post("n")
        await here.until(5)
        pod = await here.get_pod("p")
        assert (pod.status.reason, pod.status.message) == ("", "")


@virtual()
async def test_a_node_that_is_removed_is_told_of_and_forgotten(sim: Sim) -> None:
    """Behaviour C3.16."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(1)
        await here.client.delete(kinds.NODES, "n")
        await here.until(4.9)
        assert len(here.told.about("Node/n")) == 1
        await here.until(5)
        assert here.told.about("Node/n")[1:] == [
            ("Normal RemovingNode", "Node n event: Removing Node n from Controller")
        ]
        await here.node("n", leases=False)
        await here.until(54)
        assert await here.ready("n") == "True"
        assert len(here.told.about("Node/n")) == 3


@virtual()
async def test_nodes_that_beat_cost_no_look_and_no_write(sim: Sim) -> None:
    async with world(sim) as here:
        names = [f"n{number}" for number in range(50)]
        await here.nodes(names)
        here.keep_beating(*names)
        await here.start()
        await here.until(20)
        looks = "node_collector_update_node_health_duration_seconds_count"
        before = here.process.registry.get_sample_value(looks), here.process.client.writes
        assert before[1] == len(names)  # the taint of each new node
        await here.until(320)
        after = here.process.registry.get_sample_value(looks), here.process.client.writes
        assert after == before


@virtual()
async def test_a_tenth_of_the_nodes_is_lost_and_no_heartbeat_of_the_others_missed(
    sim: Sim,
) -> None:
    async with world(sim) as here:
        names = [f"n{number}" for number in range(100)]
        await here.nodes(names)
        for number in range(10):
            await here.pod(f"p{number}", node=f"n{number}")
        here.keep_beating(*names)
        await here.start()
        await here.until(30)
        here.silence(*names[:10])
        await here.until(100)
        found = [await here.ready(each) for each in names]
        assert found == ["Unknown"] * 10 + ["True"] * 90
        # The taint of each new node; of lost ones the status, a taint and a pod; and three have
        # had their turn to be tainted NoExecute.
        assert here.process.client.writes == 100 + 10 * 3 + 3


@virtual(seeds=5)
async def test_a_stop_of_the_controllers_is_no_silence_of_the_nodes(sim: Sim) -> None:
    """The pod would leave at once: it does not tolerate the taint for any time."""
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("n", "other")
        await here.pod("p", node="n", tolerations=[])
        await here.start()
        await here.until(30 + 10 * sim.rand.random())
        here.stop_controllers(300)
        await here.sleep(60)
        assert [await here.ready(each) for each in ("n", "other")] == ["True", "True"]
        assert await here.taints("n") == []
        assert here.told.about("Node/n") == here.told.about("Node/n")[:1]  # it was registered
        assert not (await here.get_pod()).is_terminating


@virtual()
async def test_a_node_that_died_during_a_stop_of_the_controllers_is_lost_after_its_grace(
    sim: Sim,
) -> None:
    async with world(sim) as here:
        await here.nodes(["n", "other"])
        here.keep_beating("other")
        await here.start()
        await here.until(12)
        here.stop_controllers(300)
        await here.until(15)  # the pass that notices it
        await here.until(64.9)
        assert await here.ready("n") == "True"
        await here.until(65)
        assert await here.ready("n") == "Unknown"

# SPDX-License-Identifier: Apache-2.0
"""How much is forced at once: the hold above many lost nodes, whole nodes, fences."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from refloat.api import selectors, self_fence
from refloat.api.meta import Object
from refloat.client.requests import Request
from refloat.policy.recovery import out_of_service, zombie
from refloat.policy.recovery.failure_recovery import (
    AnnotationRule,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
    TerminatePod,
)
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation.controller_cluster import FAULTS
from tests.simulation.recovery_cluster import (
    FREED_AFTER,
    LOST,
    SAFE,
    RecoveryCluster,
    healthy_node,
    lost_node,
    lost_pod,
    zombies,
)
from tests.virtual import virtual

KEY = "node.kubernetes.io/out-of-service"
OURS = {"key": KEY, "value": out_of_service.OURS, "effect": "NoExecute"}
THEIRS = {"key": KEY, "value": "nodeshutdown", "effect": "NoExecute"}


# -- the hold


@virtual(RecoveryCluster, seeds=3)
async def test_nothing_is_forced_while_most_nodes_are_unreachable(cluster: RecoveryCluster) -> None:
    for number in range(5):
        await cluster.node(f"n{number}", lost=number < 3)
    await cluster.start()
    for number in range(3):
        await cluster.zombie(f"p{number}", node=f"n{number}")
    await cluster.until(1000)
    assert [await cluster.phase(f"p{number}") for number in range(3)] == ["Running"] * 3
    assert cluster.sample("refloat_failure_recovery_held", cause="UnreachableNodes") == 3
    notes = cluster.event_log.notes("FailureRecoveryHeld")
    assert len(notes) == 3
    assert notes[0].endswith(
        "3 of 5 nodes are unreachable, more than holdAboveUnreachableNodes 55%"
    )
    await cluster.recover("n0")
    await cluster.until(1000.2)
    assert [await cluster.phase(f"p{n}") for n in range(3)] == ["Running", "Failed", "Failed"]


@virtual(RecoveryCluster)
async def test_it_goes_on_when_nodes_are_added(cluster: RecoveryCluster) -> None:
    for number in range(3):
        await cluster.node(f"n{number}")
    await cluster.start()
    await cluster.zombie(node="n0")
    await cluster.until(500)
    assert await cluster.phase() == "Running"
    for number in range(3, 6):
        await cluster.node(f"n{number}", lost=False)
    await cluster.until(500.2)
    assert await cluster.freed_at() == 500


@virtual(RecoveryCluster)
async def test_two_nodes_are_too_few_to_hold_anything(cluster: RecoveryCluster) -> None:
    await cluster.node("n")
    await cluster.node("m")
    await cluster.start()
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 1)
    assert await cluster.phase() == "Failed"


# -- whole nodes


def tainting(**how: Any) -> FailureRecoveryPolicy:
    rule = TaintNodeOutOfService("rules[0].taintNodeOutOfService", timedelta(minutes=10), **how)
    return FailureRecoveryPolicy(taint=(rule,))


@virtual(lost_pod, tainting(), seeds=3)
async def test_a_node_is_declared_out_of_service_and_back(cluster: RecoveryCluster) -> None:
    await cluster.until(599)
    assert OURS not in await cluster.taints()
    await cluster.until(601)
    assert OURS in await cluster.taints()
    (note,) = cluster.event_log.notes("FailureRecoveryTaintedNode")
    assert note == (
        f"Node tainted {KEY}: unreachable for 10m0s"
        " (triggered by `rules[0].taintNodeOutOfService rule`)"
    )
    await cluster.restart()
    await cluster.until(2000)
    assert await cluster.taints() != []
    await cluster.recover()
    await cluster.until(2000.2)
    assert await cluster.taints() == []
    assert len(cluster.event_log.notes("FailureRecoveryUntaintedNode")) == 1
    assert cluster.decided("untainted", "NodeReady", "node") == 1


@pytest.mark.parametrize("fault", FAULTS)
@virtual(RecoveryCluster, tainting())
async def test_a_fault_at_the_taint_changes_nothing_of_the_end(
    cluster: RecoveryCluster, fault: str
) -> None:
    await cluster.node()
    await cluster.running()
    cluster.began = cluster.sim.clock.monotonic()
    await FAULTS[fault](cluster, 1, 700.0)
    await cluster.until(800)
    assert (await cluster.taints()).count(OURS) == 1


@pytest.mark.parametrize("fault", FAULTS)
@virtual(RecoveryCluster, tainting())
async def test_a_fault_at_its_removal_changes_nothing_of_the_end(
    cluster: RecoveryCluster, fault: str
) -> None:
    await cluster.node(lost=False)
    await cluster.taint("n", OURS, {"key": "dedicated", "effect": "NoSchedule"})
    await FAULTS[fault](cluster, 1, 10.0)
    await cluster.sleep(10)
    assert [each["key"] for each in await cluster.taints()] == ["dedicated"]


@virtual(RecoveryCluster, tainting())
async def test_the_taint_of_somebody_else_stays(cluster: RecoveryCluster) -> None:
    await cluster.node()
    await cluster.taint("n", *LOST, THEIRS)
    await cluster.running()
    await cluster.start()
    await cluster.until(700)
    await cluster.recover()
    await cluster.until(800)
    assert await cluster.taints() == [THEIRS]
    assert cluster.faulty.writes == 0


@cases(
    "how want",
    {
        "another pod did not opt in": ({"annotations": {}}, False),
        "but it is over": ({"annotations": {}, "phase": "Succeeded"}, True),
        "but it is a DaemonSet's": (
            {
                "annotations": {},
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "DaemonSet",
                        "name": "d",
                        "uid": "u",
                        "controller": True,
                    }
                ],
            },
            True,
        ),
    },
)
@virtual(RecoveryCluster, tainting())
async def test_every_pod_of_the_node_must_have_opted_in(
    cluster: RecoveryCluster, how: Object, want: bool
) -> None:
    await cluster.node()
    await cluster.running()
    await cluster.running("other", **how)
    await cluster.start()
    await cluster.until(700)
    assert (OURS in await cluster.taints()) is want
    if not want:
        assert cluster.decided("ignored", "PodNotOptedIn", "node") == 1
        await cluster.annotate("other", SAFE)
        await cluster.until(702)
        assert OURS in await cluster.taints()


@virtual(RecoveryCluster, tainting(nodes=selectors.parse_labels("pool=spot"), all_pods=True))
async def test_all_pods_of_selected_nodes(cluster: RecoveryCluster) -> None:
    await cluster.node(labels={"pool": "spot"})
    await cluster.node("m")
    await cluster.running("p", annotations={})
    await cluster.running("q", node="m")
    await cluster.start()
    await cluster.until(700)
    assert OURS in await cluster.taints("n")
    assert OURS not in await cluster.taints("m")


@virtual(lost_pod, tainting())
async def test_a_node_that_is_back_in_time_is_not_tainted(cluster: RecoveryCluster) -> None:
    await cluster.until(590)
    await cluster.recover()
    await cluster.until(2000)
    assert await cluster.taints() == []
    assert cluster.faulty.writes == 0


@virtual(lost_pod, tainting())
async def test_a_node_whose_lease_moves_is_not_tainted(cluster: RecoveryCluster) -> None:
    await cluster.until(590)
    await cluster.renew()
    await cluster.until(625)
    assert OURS not in await cluster.taints()
    await cluster.until(641)
    assert OURS in await cluster.taints()


@virtual(lost_pod, FailureRecoveryPolicy(mode="Report", taint=tainting().taint))
async def test_a_report_does_not_taint(cluster: RecoveryCluster) -> None:
    await cluster.until(5000)
    assert cluster.faulty.writes == 0
    assert cluster.event_log.notes("FailureRecoveryTaintedNode") == []
    (note,) = cluster.event_log.notes("WouldTaintNodeOutOfService")
    assert note == (
        f"Node would be tainted {KEY} now, but failureRecoveryPolicy.mode is Report:"
        " unreachable for 10m0s (triggered by `rules[0].taintNodeOutOfService rule`)"
    )
    assert cluster.decided("reported", "Rule", "node") == 1


@virtual(lost_pod, tainting())
async def test_a_taint_of_ours_goes_in_mode_report_too(cluster: RecoveryCluster) -> None:
    """Removing a taint forces nothing; without that the taint would stay on a healthy node."""
    await cluster.until(601)
    assert OURS in await cluster.taints()
    cluster.switch(FailureRecoveryPolicy(mode="Report", taint=tainting().taint))
    await cluster.recover()
    await cluster.until(602)
    assert await cluster.taints() == []
    assert len(cluster.event_log.notes("FailureRecoveryUntaintedNode")) == 1
    assert cluster.decided("untainted", "NodeReady", "node") == 1


@virtual(lost_pod, tainting())
async def test_a_taint_of_ours_stays_while_the_gate_is_off(cluster: RecoveryCluster) -> None:
    await cluster.until(601)
    cluster.switch(on=False)
    await cluster.recover()
    await cluster.until(1000)
    assert await cluster.taints() == [OURS]


@virtual(RecoveryCluster, tainting())
async def test_whoever_does_not_see_all_pods_of_a_node_does_not_taint_it(
    cluster: RecoveryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """`refloat manager --namespace`"""
    await cluster.node()
    await cluster.zombie()
    await cluster.start()
    cluster.switch(whole=False)
    await cluster.until(1000)
    assert OURS not in await cluster.taints()
    assert await cluster.phase() == "Failed"
    assert "no node is tainted out-of-service" in caplog.text


@virtual(RecoveryCluster, tainting())
async def test_many_lost_nodes_hold_the_taint_too(cluster: RecoveryCluster) -> None:
    for number in range(4):
        await cluster.node(f"n{number}", lost=number < 3)
        await cluster.running(f"p{number}", node=f"n{number}")
    await cluster.start()
    await cluster.until(1000)
    assert cluster.faulty.writes == 0
    await cluster.recover("n0")
    await cluster.until(1000.2)
    assert OURS in await cluster.taints("n1")
    assert OURS in await cluster.taints("n2")


# -- self-fencing

FENCE = 380
DEAD_AFTER = (FENCE + 20) * 1.01


def fencing(**how: Any) -> FailureRecoveryPolicy:
    rule = TerminatePod(
        "rules[0].terminatePod",
        selectors.parse_labels("safe=true"),
        timedelta(minutes=1),
        require_self_fence=True,
    )
    return FailureRecoveryPolicy(terminate=(rule,), **how)


SAFE_LABEL = {"safe": "true"}


@virtual(healthy_node, fencing(), seeds=3)
async def test_an_armed_pod_is_freed_when_it_must_be_dead(cluster: RecoveryCluster) -> None:
    """Counted from the last change of the lease that was seen."""
    await cluster.running(fence=FENCE, labels=SAFE_LABEL)
    await cluster.until(100)
    await cluster.renew()
    await cluster.until(150)
    await cluster.lose()
    await cluster.delete("p")
    await cluster.until(100 + DEAD_AFTER - 1)
    assert await cluster.phase() == "Running"
    await cluster.until(100 + DEAD_AFTER + 1)
    assert await cluster.phase() == "Failed"


@virtual(lost_node, fencing())
async def test_after_a_restart_the_silence_counts_from_zero(cluster: RecoveryCluster) -> None:
    await cluster.zombie(fence=FENCE, labels=SAFE_LABEL)
    await cluster.until(300)
    await cluster.restart()
    await cluster.until(300 + DEAD_AFTER - 1)
    assert await cluster.phase() == "Running"
    await cluster.until(300 + DEAD_AFTER + 1)
    assert await cluster.phase() == "Failed"


@pytest.mark.parametrize("when", ["2000-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z"])
@virtual(healthy_node, fencing())
async def test_what_the_lease_says_of_the_time_does_not_count(
    cluster: RecoveryCluster, when: str
) -> None:
    await cluster.running(fence=FENCE, labels=SAFE_LABEL)
    await cluster.until(100)
    await cluster.renew(when=when)
    await cluster.lose()
    await cluster.delete("p")
    await cluster.until(100 + DEAD_AFTER - 1)
    assert await cluster.phase() == "Running"
    await cluster.until(100 + DEAD_AFTER + 1)
    assert await cluster.phase() == "Failed"


@virtual(lost_node, fencing(annotated=AnnotationRule()))
async def test_without_the_promise_it_is_never_freed(cluster: RecoveryCluster) -> None:
    await cluster.zombie(labels=SAFE_LABEL)
    await cluster.until(5000)
    assert await cluster.phase() == "Running"
    assert cluster.decided("ignored", "SelfFenceNotArmed") == 1


@virtual(lost_node, fencing())
async def test_condition_that_node_did_not_write_is_no_promise(cluster: RecoveryCluster) -> None:
    """pods/status can be written by others; the node's Lease lists another pod."""
    await cluster.running("other", fence=FENCE)
    await cluster.zombie(labels=SAFE_LABEL)
    message = self_fence.write(self_fence.Promise(1, 1, "b0"))
    condition = {"type": self_fence.CONDITION, "status": "True", "message": message}
    await cluster.status("p", conditions=[condition])
    await cluster.until(5000)
    assert await cluster.phase() == "Running"
    assert cluster.decided("ignored", "SelfFenceNotArmed") == 1


@virtual(lost_node, fencing())
async def test_pod_listed_after_it_was_judged_is_judged_again(cluster: RecoveryCluster) -> None:
    """The node returned for one renewal, and was never called reachable again."""
    await cluster.zombie(labels=SAFE_LABEL)
    await cluster.until(1000)
    assert cluster.decided("ignored", "SelfFenceNotArmed") == 1
    await cluster.promise("p", FENCE)
    await cluster.until(1000 + DEAD_AFTER + 1)
    assert await cluster.phase() == "Failed"


# -- many


@virtual(RecoveryCluster)
async def test_thousand_zombies_cost_one_write_each_and_few_looks(cluster: RecoveryCluster) -> None:
    count = 1000
    reads: Counter[str] = Counter()

    async def counted(request: Request) -> None:
        reads[request.path.split("?")[0]] += 1

    await cluster.node()
    names = await zombies(cluster, count)
    await cluster.start(before_read=counted)
    await cluster.until(FREED_AFTER + 10)
    assert {await cluster.phase(name) for name in names} == {"Failed"}
    assert cluster.faulty.writes == count
    assert reads.total() <= 10
    assert len(cluster.event_log.notes(zombie.REASON)) == count


@virtual(RecoveryCluster)
async def test_look_at_a_node_is_not_for_pods_due_a_second_later(cluster: RecoveryCluster) -> None:
    looks: list[float] = []

    async def counted(request: Request) -> None:
        if "/nodes/" in request.path:
            looks.append(round(cluster.seconds, 1))

    await cluster.node()
    await cluster.start(before_read=counted)
    await cluster.zombie("p0")
    await cluster.sleep(1)
    await cluster.zombie("p1")
    await cluster.until(FREED_AFTER + 5)
    assert looks == [FREED_AFTER, FREED_AFTER + 1]


@virtual(seeds=5)
async def test_pods_that_are_due_at_once_share_a_look_that_takes_long(sim: Sim) -> None:
    reads: Counter[str] = Counter()

    async def slow(request: Request) -> None:
        reads[request.path] += 1
        await sim.clock.sleep(3)

    async with RecoveryCluster(sim) as cluster:
        await cluster.node()
        names = await zombies(cluster, 10)
        await cluster.start(before_read=slow)
        await cluster.until(FREED_AFTER + 10)
        assert {await cluster.phase(name) for name in names} == {"Failed"}
        assert set(reads.values()) == {1}

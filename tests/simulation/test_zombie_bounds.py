# SPDX-License-Identifier: Apache-2.0
"""How much is forced at once: the hold above many lost nodes, whole nodes, fences."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from refloat.api import selectors, self_fence
from refloat.api.meta import Object
from refloat.client.requests import Request
from refloat.policy import out_of_service, zombie
from refloat.policy.failure_recovery import (
    Annotated,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
    TerminatePod,
)
from refloat.sim.run import Sim, run
from tests.simulation.controller_world import FAULTS
from tests.simulation.recovery_world import FREED_AFTER, LOST, SAFE, stage, zombies
from tests.virtual import virtual

KEY = "node.kubernetes.io/out-of-service"
OURS = {"key": KEY, "value": out_of_service.OURS, "effect": "NoExecute"}
THEIRS = {"key": KEY, "value": "nodeshutdown", "effect": "NoExecute"}


# -- the hold


@virtual(seeds=3)
async def test_nothing_is_forced_while_most_nodes_are_unreachable(sim: Sim) -> None:
    async with stage(sim) as s:
        for number in range(5):
            await s.node(f"n{number}", lost=number < 3)
        await s.start()
        for number in range(3):
            await s.zombie(f"p{number}", node=f"n{number}")
        await s.until(1000)
        assert [await s.phase(f"p{number}") for number in range(3)] == ["Running"] * 3
        assert s.world.sample("refloat_failure_recovery_held", cause="UnreachableNodes") == 3
        told = s.told("FailureRecoveryHeld")
        assert len(told) == 3
        assert told[0].endswith(
            "3 of 5 nodes are unreachable, more than holdAboveUnreachableNodes 55%"
        )
        await s.find("n0")
        await s.until(1000.2)
        assert [await s.phase(f"p{n}") for n in range(3)] == ["Running", "Failed", "Failed"]


@virtual()
async def test_it_goes_on_when_nodes_are_added(sim: Sim) -> None:
    async with stage(sim) as s:
        for number in range(3):
            await s.node(f"n{number}")
        await s.start()
        await s.zombie(node="n0")
        await s.until(500)
        assert await s.phase() == "Running"
        for number in range(3, 6):
            await s.node(f"n{number}", lost=False)
        await s.until(500.2)
        assert await s.freed_at() == 500


@virtual()
async def test_two_nodes_are_too_few_to_hold_anything(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node("n")
        await s.node("m")
        await s.start()
        await s.zombie()
        await s.until(FREED_AFTER + 1)
        assert await s.phase() == "Failed"


# -- whole nodes


def tainting(**how: Any) -> FailureRecoveryPolicy:
    rule = TaintNodeOutOfService("rules[0].taintNodeOutOfService", timedelta(minutes=10), **how)
    return FailureRecoveryPolicy(taint=(rule,))


@virtual(seeds=3)
async def test_a_node_is_declared_out_of_service_and_back(sim: Sim) -> None:
    async with stage(sim, tainting()) as s:
        await s.node()
        await s.running()
        await s.start()
        await s.until(599)
        assert OURS not in await s.taints()
        await s.until(601)
        assert OURS in await s.taints()
        (told,) = s.told("FailureRecoveryTaintedNode")
        assert told == (
            f"Node tainted {KEY}: unreachable for 10m0s"
            " (triggered by `rules[0].taintNodeOutOfService rule`)"
        )
        await s.restart()
        await s.until(2000)
        assert await s.taints() != []
        await s.find()
        await s.until(2000.2)
        assert await s.taints() == []
        assert len(s.told("FailureRecoveryUntaintedNode")) == 1
        assert s.decided("untainted", "NodeReady", "node") == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_the_taint_changes_nothing_of_the_end(fault: str) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim, tainting()) as s:
            await s.node()
            await s.running()
            s.began = sim.clock.monotonic()
            await FAULTS[fault](s.world, 1, 700.0)
            await s.until(800)
            assert (await s.taints()).count(OURS) == 1

    run(program, seed=0)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_its_removal_changes_nothing_of_the_end(fault: str) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim, tainting()) as s:
            await s.node(lost=False)
            await s.taint("n", OURS, {"key": "dedicated", "effect": "NoSchedule"})
            await FAULTS[fault](s.world, 1, 10.0)
            await sim.clock.sleep(10)
            assert [each["key"] for each in await s.taints()] == ["dedicated"]

    run(program, seed=0)


@virtual()
async def test_the_taint_of_somebody_else_stays(sim: Sim) -> None:
    async with stage(sim, tainting()) as s:
        await s.node()
        await s.taint("n", *LOST, THEIRS)
        await s.running()
        await s.start()
        await s.until(700)
        await s.find()
        await s.until(800)
        assert await s.taints() == [THEIRS]
        assert s.world.mortal.writes == 0


@pytest.mark.parametrize(
    ("how", "want"),
    [
        pytest.param({"annotations": {}}, False, id="another pod did not opt in"),
        pytest.param({"annotations": {}, "phase": "Succeeded"}, True, id="but it is over"),
        pytest.param(
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
            id="but it is a DaemonSet's",
        ),
    ],
)
def test_every_pod_of_the_node_must_have_opted_in(how: Object, want: bool) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim, tainting()) as s:
            await s.node()
            await s.running()
            await s.running("other", **how)
            await s.start()
            await s.until(700)
            assert (OURS in await s.taints()) is want
            if not want:
                assert s.decided("ignored", "PodNotOptedIn", "node") == 1
                await s.annotate("other", SAFE)
                await s.until(702)
                assert OURS in await s.taints()

    run(program, seed=0)


@virtual()
async def test_all_pods_of_selected_nodes(sim: Sim) -> None:
    policy = tainting(nodes=selectors.parse_labels("pool=spot"), all_pods=True)
    async with stage(sim, policy) as s:
        await s.node(labels={"pool": "spot"})
        await s.node("m")
        await s.running("p", annotations={})
        await s.running("q", node="m")
        await s.start()
        await s.until(700)
        assert OURS in await s.taints("n")
        assert OURS not in await s.taints("m")


@virtual()
async def test_a_node_that_is_back_in_time_is_not_tainted(sim: Sim) -> None:
    async with stage(sim, tainting()) as s:
        await s.node()
        await s.running()
        await s.start()
        await s.until(590)
        await s.find()
        await s.until(2000)
        assert await s.taints() == []
        assert s.world.mortal.writes == 0


@virtual()
async def test_a_node_whose_lease_moves_is_not_tainted(sim: Sim) -> None:
    async with stage(sim, tainting()) as s:
        await s.node()
        await s.running()
        await s.start()
        await s.until(590)
        await s.renew()
        await s.until(625)
        assert OURS not in await s.taints()
        await s.until(641)
        assert OURS in await s.taints()


@virtual()
async def test_a_report_does_not_taint(sim: Sim) -> None:
    policy = FailureRecoveryPolicy(mode="Report", taint=tainting().taint)
    async with stage(sim, policy) as s:
        await s.node()
        await s.running()
        await s.start()
        await s.until(5000)
        assert s.world.mortal.writes == 0
        assert s.told("FailureRecoveryTaintedNode") == []
        (told,) = s.told("WouldTaintNodeOutOfService")
        assert told == (
            f"Node would be tainted {KEY} now, but failureRecoveryPolicy.mode is Report:"
            " unreachable for 10m0s (triggered by `rules[0].taintNodeOutOfService rule`)"
        )
        assert s.decided("reported", "Rule", "node") == 1


@virtual()
async def test_a_taint_of_ours_goes_in_mode_report_too(sim: Sim) -> None:
    """It forces nothing, and else it would stay on a node that is well."""
    async with stage(sim, tainting()) as s:
        await s.node()
        await s.running()
        await s.start()
        await s.until(601)
        assert OURS in await s.taints()
        s.switch(FailureRecoveryPolicy(mode="Report", taint=tainting().taint))
        await s.find()
        await s.until(602)
        assert await s.taints() == []
        assert len(s.told("FailureRecoveryUntaintedNode")) == 1
        assert s.decided("untainted", "NodeReady", "node") == 1


@virtual()
async def test_a_taint_of_ours_stays_while_the_gate_is_off(sim: Sim) -> None:
    async with stage(sim, tainting()) as s:
        await s.node()
        await s.running()
        await s.start()
        await s.until(601)
        s.switch(on=False)
        await s.find()
        await s.until(1000)
        assert await s.taints() == [OURS]


@virtual()
async def test_whoever_does_not_see_all_pods_of_a_node_does_not_taint_it(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    """`refloat manager --namespace`"""
    async with stage(sim, tainting()) as s:
        await s.node()
        await s.zombie()
        await s.start()
        s.switch(whole=False)
        await s.until(1000)
        assert OURS not in await s.taints()
        assert await s.phase() == "Failed"
        assert "no node is declared out of service" in caplog.text


@virtual()
async def test_many_lost_nodes_hold_the_taint_too(sim: Sim) -> None:
    async with stage(sim, tainting()) as s:
        for number in range(4):
            await s.node(f"n{number}", lost=number < 3)
            await s.running(f"p{number}", node=f"n{number}")
        await s.start()
        await s.until(1000)
        assert s.world.mortal.writes == 0
        await s.find("n0")
        await s.until(1000.2)
        assert OURS in await s.taints("n1")
        assert OURS in await s.taints("n2")


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


@virtual(seeds=3)
async def test_an_armed_pod_is_freed_when_it_must_be_dead(sim: Sim) -> None:
    """Counted from the last change of the lease that was seen."""
    async with stage(sim, fencing()) as s:
        await s.node(lost=False)
        await s.start()
        await s.running(fence=FENCE, labels=SAFE_LABEL)
        await s.until(100)
        await s.renew()
        await s.until(150)
        await s.lose()
        await s.world.delete("p")
        await s.until(100 + DEAD_AFTER - 1)
        assert await s.phase() == "Running"
        await s.until(100 + DEAD_AFTER + 1)
        assert await s.phase() == "Failed"


@virtual()
async def test_after_a_restart_the_silence_counts_from_zero(sim: Sim) -> None:
    async with stage(sim, fencing()) as s:
        await s.node()
        await s.start()
        await s.zombie(fence=FENCE, labels=SAFE_LABEL)
        await s.until(300)
        await s.restart()
        await s.until(300 + DEAD_AFTER - 1)
        assert await s.phase() == "Running"
        await s.until(300 + DEAD_AFTER + 1)
        assert await s.phase() == "Failed"


@pytest.mark.parametrize("when", ["2000-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z"])
def test_what_the_lease_says_of_the_time_does_not_count(when: str) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim, fencing()) as s:
            await s.node(lost=False)
            await s.start()
            await s.running(fence=FENCE, labels=SAFE_LABEL)
            await s.until(100)
            await s.renew(when=when)
            await s.lose()
            await s.world.delete("p")
            await s.until(100 + DEAD_AFTER - 1)
            assert await s.phase() == "Running"
            await s.until(100 + DEAD_AFTER + 1)
            assert await s.phase() == "Failed"

    run(program, seed=0)


@virtual()
async def test_without_the_promise_it_is_never_freed(sim: Sim) -> None:
    policy = fencing(annotated=Annotated())
    async with stage(sim, policy) as s:
        await s.node()
        await s.start()
        await s.zombie(labels=SAFE_LABEL)
        await s.until(5000)
        assert await s.phase() == "Running"
        assert s.decided("ignored", "SelfFenceNotArmed") == 1


@virtual()
async def test_a_condition_that_the_node_did_not_write_is_no_promise(sim: Sim) -> None:
    """pods/status can be written by others; the node's Lease lists another pod."""
    async with stage(sim, fencing()) as s:
        await s.node()
        await s.start()
        await s.running("other", fence=FENCE)
        await s.zombie(labels=SAFE_LABEL)
        message = self_fence.write(self_fence.Promise(1, 1, "b0"))
        condition = {"type": self_fence.CONDITION, "status": "True", "message": message}
        await s.world.status("p", conditions=[condition])
        await s.until(5000)
        assert await s.phase() == "Running"
        assert s.decided("ignored", "SelfFenceNotArmed") == 1


@virtual()
async def test_a_pod_that_is_listed_after_it_was_judged_is_judged_again(sim: Sim) -> None:
    """The node returned for one renewal, and was never called reachable again."""
    async with stage(sim, fencing()) as s:
        await s.node()
        await s.start()
        await s.zombie(labels=SAFE_LABEL)
        await s.until(1000)
        assert s.decided("ignored", "SelfFenceNotArmed") == 1
        await s.promise("p", FENCE)
        await s.until(1000 + DEAD_AFTER + 1)
        assert await s.phase() == "Failed"


# -- many


@virtual()
async def test_a_thousand_zombies_cost_one_write_each_and_few_looks(sim: Sim) -> None:
    count = 1000
    reads: Counter[str] = Counter()

    async def counted(request: Request) -> None:
        reads[request.path.split("?")[0]] += 1

    async with stage(sim) as s:
        await s.node()
        names = await zombies(s, count)
        await s.start(before_read=counted)
        await s.until(FREED_AFTER + 10)
        assert {await s.phase(name) for name in names} == {"Failed"}
        assert s.world.mortal.writes == count
        assert reads.total() <= 10
        assert len(s.told(zombie.REASON)) == count


@virtual()
async def test_a_look_at_a_node_does_not_serve_pods_that_are_due_a_second_later(sim: Sim) -> None:
    looks: list[float] = []

    async with stage(sim) as s:

        async def counted(request: Request) -> None:
            if "/nodes/" in request.path:
                looks.append(round(s.seconds, 1))

        await s.node()
        await s.start(before_read=counted)
        await s.zombie("p0")
        await sim.clock.sleep(1)
        await s.zombie("p1")
        await s.until(FREED_AFTER + 5)
        assert looks == [FREED_AFTER, FREED_AFTER + 1]


@virtual(seeds=5)
async def test_pods_that_are_due_at_once_share_a_look_that_takes_long(sim: Sim) -> None:
    reads: Counter[str] = Counter()

    async def slow(request: Request) -> None:
        reads[request.path] += 1
        await sim.clock.sleep(3)

    async with stage(sim) as s:
        await s.node()
        names = await zombies(s, 10)
        await s.start(before_read=slow)
        await s.until(FREED_AFTER + 10)
        assert {await s.phase(name) for name in names} == {"Failed"}
        assert set(reads.values()) == {1}

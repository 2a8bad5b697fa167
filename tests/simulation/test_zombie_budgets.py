# SPDX-License-Identifier: Apache-2.0
"""The budget: never more at once than it allows, and nobody in its line is forgotten."""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from refloat.api import times
from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.controllers.failure_recovery.controller import FailureRecovery
from refloat.policy import zombie
from refloat.policy.failure_recovery import Annotated, Budget, FailureRecoveryPolicy
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.recovery_world import (
    FREED_AFTER,
    GRACE_SECONDS,
    NODE_GRACE,
    SAFE,
    Stage,
    stage,
    zombies,
)
from tests.virtual import virtual

THREE_A_MINUTE = FailureRecoveryPolicy(budget=Budget(3, timedelta(minutes=1)))


@virtual(seeds=5)
async def test_a_budget_is_kept_exactly(sim: Sim) -> None:
    async with stage(sim, THREE_A_MINUTE) as s:
        await s.node()
        await s.start()
        names = await zombies(s, 8)
        await s.until(FREED_AFTER)
        held = "refloat_failure_recovery_held"
        assert s.world.sample(held, cause="Budget") == 5
        await s.until(FREED_AFTER + 200)
        freed = Counter([await s.freed_at(name) for name in names])
        assert freed == {90: 3, 150: 3, 210: 2}
        assert s.world.sample(held, cause="Budget") == 0
        (told,) = s.told("FailureRecoveryHeld")
        assert told.startswith("Pods that hang on this node are not freed for now: ")
        assert told.endswith("the budget of 3 pods in 1m0s is used up")
        assert s.decided("held", "Budget") == 5
        assert s.decided("terminated", "Annotation") == 8


@virtual(seeds=3)
async def test_many_pods_of_one_namespace_do_not_use_up_the_budget_of_another(sim: Sim) -> None:
    """A user can bind pods to a lost node, and delete them."""
    async with stage(sim, THREE_A_MINUTE) as s:
        await s.node()
        await s.start()
        client = s.world.client
        await client.create(kinds.NAMESPACES, {"metadata": {"name": "quiet"}})
        await zombies(s, 20)
        pod = builders.pod("p", node="n", grace=GRACE_SECONDS, annotations=SAFE, namespace="quiet")
        await client.create(kinds.PODS, pod, namespace="quiet")
        running = {"status": {"phase": "Running"}}
        await client.patch(kinds.PODS, "p", running, namespace="quiet", subresource="status")
        await client.delete(kinds.PODS, "p", namespace="quiet")
        await s.until(FREED_AFTER + 65)
        found = await client.get(kinds.PODS, "p", namespace="quiet")
        assert found.status.phase == "Failed"


@virtual(seeds=5)
async def test_a_restart_does_not_give_the_budget_anew(sim: Sim) -> None:
    async with stage(sim, THREE_A_MINUTE) as s:
        await s.node()
        await s.start()
        names = await zombies(s, 8)
        await s.until(100)
        await s.restart()
        await s.until(148)
        assert [await s.phase(name) for name in names].count("Failed") == 3
        await s.until(300)
        freed = Counter([await s.freed_at(name) for name in names])
        assert freed == {90: 3, 151: 3, 211: 2}


@virtual()
async def test_a_pod_that_goes_does_not_keep_its_place_in_the_line(sim: Sim) -> None:
    async with stage(sim, THREE_A_MINUTE) as s:
        await s.node()
        await s.start()
        names = await zombies(s, 7)
        await s.until(100)
        waiting = [name for name in names if await s.phase(name) == "Running"]
        for name in waiting[:3]:
            await s.annotate(name, dict.fromkeys(SAFE))
        await s.until(151)
        assert await s.freed_at(waiting[3]) == 150


@virtual()
async def test_a_refused_write_spends_nothing(sim: Sim) -> None:
    async with stage(sim, FailureRecoveryPolicy(budget=Budget(1, timedelta(hours=1)))) as s:

        async def changes(_: Request) -> None:
            if s.world.mortal.writes == 1:
                await s.annotate("p", {"example.com/note": "x"})

        await s.node()
        await s.start(before=changes)
        await s.zombie()
        await s.until(FREED_AFTER + 5)
        assert s.world.mortal.writes == 2
        assert await s.phase() == "Failed"


@virtual()
async def test_another_budget_lets_those_go_that_wait(sim: Sim) -> None:
    async with stage(sim, THREE_A_MINUTE) as s:
        await s.node()
        await s.start()
        names = await zombies(s, 8)
        await s.until(100)
        s.switch(FailureRecoveryPolicy())
        await s.until(101)
        assert Counter([await s.freed_at(name) for name in names]) == {90: 3, 100: 5}


@virtual(seeds=5)
async def test_a_reload_while_writes_are_under_way_gives_no_budget_anew(sim: Sim) -> None:
    policy = FailureRecoveryPolicy(budget=Budget(3, timedelta(hours=1)))
    async with stage(sim, policy) as s:

        async def reloads(_: Request) -> None:
            if s.world.mortal.writes == 3:
                s.switch(policy)

        await s.node()
        await s.start(before=reloads)
        names = await zombies(s, 8)
        await s.until(FREED_AFTER + 5)
        assert [await s.phase(name) for name in names].count("Failed") == 3
        await s.until(FREED_AFTER + 3605)
        assert [await s.phase(name) for name in names].count("Failed") == 6


def leads(s: Stage, *, leads: bool) -> None:
    (worker,) = s.world.workers
    assert isinstance(worker, FailureRecovery)
    worker.lead(leads=leads)


@virtual(seeds=5)
async def test_leadership_that_is_lost_and_won_gives_no_budget_anew(sim: Sim) -> None:
    """Neither what writes under way spend, nor what this process or another one spent."""
    policy = FailureRecoveryPolicy(budget=Budget(3, timedelta(hours=1)))
    async with stage(sim, policy) as s:

        async def slowly(_: Request, call: Callable[[], Awaitable[bytes]]) -> bytes:
            answer = await call() if s.world.mortal.writes < 3 else b""
            await sim.clock.sleep(NODE_GRACE + 10)
            return answer or await call()

        await s.node()
        await s.start(answers=slowly)
        names = await zombies(s, 8)
        await s.until(FREED_AFTER + 1)
        for _ in range(3):
            leads(s, leads=False)
            await sim.clock.sleep(1)
            leads(s, leads=True)
        await s.until(FREED_AFTER + 300)
        assert [await s.phase(name) for name in names].count("Failed") == 3
        leads(s, leads=False)
        leads(s, leads=True)
        await s.until(FREED_AFTER + 3500)
        assert [await s.phase(name) for name in names].count("Failed") == 3
        await s.until(FREED_AFTER + 3800)
        assert [await s.phase(name) for name in names].count("Failed") == 6


@virtual(seeds=3)
async def test_what_another_leader_spent_meanwhile_counts_once(sim: Sim) -> None:
    policy = FailureRecoveryPolicy(budget=Budget(3, timedelta(hours=1)))
    async with stage(sim, policy) as s:
        await s.node()
        await s.start()
        await s.zombie("mine")
        await s.until(FREED_AFTER + 1)
        leads(s, leads=False)
        await s.zombie("other")
        condition = {
            "type": zombie.CONDITION,
            "status": "True",
            "reason": zombie.REASON,
            "lastTransitionTime": times.format_time(sim.clock.now()),
        }
        await s.world.status("other", phase="Failed", conditions=[condition])
        for _ in range(3):
            await sim.clock.sleep(1)
            leads(s, leads=True)
        names = await zombies(s, 4)
        await s.until(FREED_AFTER + 300)
        assert [await s.phase(name) for name in names].count("Failed") == 1


@virtual()
async def test_a_reload_does_not_forget_pods_that_were_freed_and_are_gone(sim: Sim) -> None:
    at_once = Annotated(delete_after=timedelta())
    policy = FailureRecoveryPolicy(annotated=at_once, budget=Budget(3, timedelta(hours=1)))
    async with stage(sim, policy) as s:
        await s.node()
        await s.start()
        names = await zombies(s, 8)
        for second in range(5, 60, 10):
            await s.until(FREED_AFTER + second)
            assert [await s.phase(name) for name in names].count("gone") == 3
            s.switch(policy)


@virtual()
async def test_a_hold_does_not_save_up_the_budget(sim: Sim) -> None:
    """What could have been freed meanwhile is not freed on top of it."""
    async with stage(sim, THREE_A_MINUTE) as s:
        for number in range(4):
            await s.node(f"n{number}", lost=number == 0)
        await s.start()
        names = await zombies(s, 9, node="n0")
        await s.until(100)  # three are freed, six stand in the line
        await s.lose("n1")
        await s.lose("n2")
        await s.until(500)
        assert [await s.phase(name) for name in names].count("Failed") == 3
        await s.find("n2")
        await s.until(700)
        assert Counter([await s.freed_at(name) for name in names]) == {90: 3, 500: 3, 560: 3}


@virtual(seeds=5)
async def test_a_slot_that_meets_a_hold_goes_to_the_next_in_the_line(sim: Sim) -> None:
    """The first node of the line comes back; the pods of the second are freed all the same."""
    async with stage(sim, FailureRecoveryPolicy(budget=Budget(2, timedelta(minutes=1)))) as s:
        for number in range(5):
            await s.node(f"n{number}", lost=number < 2)
        await s.start()
        first = [f"p{number}" for number in range(4)]
        for name in first:
            await s.zombie(name, node="n0")
        await s.until(1)
        second = ["p4", "p5"]
        for name in second:
            await s.zombie(name, node="n1")
        await s.until(100)
        assert [await s.phase(name) for name in first].count("Failed") == 2
        await s.lose("n2")
        await s.until(200)
        held = "refloat_failure_recovery_held"
        assert s.world.sample(held, cause="Budget") == 0
        assert s.world.sample(held, cause="UnreachableNodes") == 4
        await s.find("n0")
        await s.until(201)
        assert [await s.freed_at(name) for name in second] == [200, 200]
        assert [await s.phase(name) for name in first].count("Failed") == 2


@virtual()
async def test_a_pod_that_ended_by_itself_needs_no_slot_to_be_deleted(sim: Sim) -> None:
    """Even if it cannot be: the slot is for those who wait."""

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        return errors.Forbidden("no", code=403) if request.method == "DELETE" else None

    policy = FailureRecoveryPolicy(
        annotated=Annotated(delete_after=timedelta()), budget=Budget(1, timedelta(minutes=1))
    )
    async with stage(sim, policy) as s:
        await s.node()
        await s.start(refuses=refuse)
        names = await zombies(s, 3)
        await s.until(100)
        ended, other = [name for name in names if await s.phase(name) == "Running"]
        await s.world.status(ended, phase="Failed")
        await s.until(155)
        assert await s.freed_at(other) == 150

# SPDX-License-Identifier: Apache-2.0
"""The budget: never more at once than allowed, and no pod in the line is forgotten."""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from refloat.api import times
from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.controllers.failure_recovery.controller import FailureRecovery
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import AnnotationRule, Budget, FailureRecoveryPolicy
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.recovery_cluster import (
    FREED_AFTER,
    GRACE_SECONDS,
    NODE_GRACE,
    SAFE,
    RecoveryCluster,
    lost_node,
    zombies,
)
from tests.virtual import virtual

THREE_A_MINUTE = FailureRecoveryPolicy(budget=Budget(3, timedelta(minutes=1)))


@virtual(lost_node, THREE_A_MINUTE, seeds=5)
async def test_a_budget_is_kept_exactly(cluster: RecoveryCluster) -> None:
    names = await zombies(cluster, 8)
    await cluster.until(FREED_AFTER)
    metric = "refloat_failure_recovery_held"
    assert cluster.sample(metric, cause="Budget") == 5
    await cluster.until(FREED_AFTER + 200)
    freed = Counter([await cluster.freed_at(name) for name in names])
    assert freed == {90: 3, 150: 3, 210: 2}
    assert cluster.sample(metric, cause="Budget") == 0
    (note,) = cluster.event_log.notes("FailureRecoveryHeld")
    assert note.startswith("Pods that hang on this node are not freed for now: ")
    assert note.endswith("the budget of 3 pods in 1m0s is used up")
    assert cluster.decided("held", "Budget") == 5
    assert cluster.decided("terminated", "Annotation") == 8


@virtual(lost_node, THREE_A_MINUTE, seeds=3)
async def test_pods_of_one_namespace_leave_budget_to_another(cluster: RecoveryCluster) -> None:
    """A user can bind pods to a lost node, and delete them."""
    client = cluster.client
    await client.create(kinds.NAMESPACES, {"metadata": {"name": "quiet"}})
    await zombies(cluster, 20)
    pod = builders.pod("p", node="n", grace=GRACE_SECONDS, annotations=SAFE, namespace="quiet")
    await client.create(kinds.PODS, pod, namespace="quiet")
    running = {"status": {"phase": "Running"}}
    await client.patch(kinds.PODS, "p", running, namespace="quiet", subresource="status")
    await client.delete(kinds.PODS, "p", namespace="quiet")
    await cluster.until(FREED_AFTER + 65)
    newest = await client.get(kinds.PODS, "p", namespace="quiet")
    assert newest.status.phase == "Failed"


@virtual(lost_node, THREE_A_MINUTE, seeds=5)
async def test_a_restart_does_not_give_the_budget_anew(cluster: RecoveryCluster) -> None:
    names = await zombies(cluster, 8)
    await cluster.until(100)
    await cluster.restart()
    await cluster.until(148)
    assert [await cluster.phase(name) for name in names].count("Failed") == 3
    await cluster.until(300)
    freed = Counter([await cluster.freed_at(name) for name in names])
    assert freed == {90: 3, 151: 3, 211: 2}


@virtual(lost_node, THREE_A_MINUTE)
async def test_pod_that_goes_does_not_keep_its_place_in_the_line(cluster: RecoveryCluster) -> None:
    names = await zombies(cluster, 7)
    await cluster.until(100)
    waiting = [name for name in names if await cluster.phase(name) == "Running"]
    for name in waiting[:3]:
        await cluster.annotate(name, dict.fromkeys(SAFE))
    await cluster.until(151)
    assert await cluster.freed_at(waiting[3]) == 150


@virtual(RecoveryCluster, FailureRecoveryPolicy(budget=Budget(1, timedelta(hours=1))))
async def test_a_refused_write_spends_nothing(cluster: RecoveryCluster) -> None:

    async def changes(_: Request) -> None:
        if cluster.faulty.writes == 1:
            await cluster.annotate("p", {"example.com/note": "x"})

    await cluster.node()
    await cluster.start(before=changes)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 5)
    assert cluster.faulty.writes == 2
    assert await cluster.phase() == "Failed"


@virtual(lost_node, THREE_A_MINUTE)
async def test_another_budget_lets_those_go_that_wait(cluster: RecoveryCluster) -> None:
    names = await zombies(cluster, 8)
    await cluster.until(100)
    cluster.switch(FailureRecoveryPolicy())
    await cluster.until(101)
    assert Counter([await cluster.freed_at(name) for name in names]) == {90: 3, 100: 5}


@virtual(seeds=5)
async def test_a_reload_while_writes_are_under_way_gives_no_budget_anew(sim: Sim) -> None:
    policy = FailureRecoveryPolicy(budget=Budget(3, timedelta(hours=1)))
    async with RecoveryCluster(sim, policy) as cluster:

        async def reloads(_: Request) -> None:
            if cluster.faulty.writes == 3:
                cluster.switch(policy)

        await cluster.node()
        await cluster.start(before=reloads)
        names = await zombies(cluster, 8)
        await cluster.until(FREED_AFTER + 5)
        assert [await cluster.phase(name) for name in names].count("Failed") == 3
        await cluster.until(FREED_AFTER + 3605)
        assert [await cluster.phase(name) for name in names].count("Failed") == 6


def leads(cluster: RecoveryCluster, *, leads: bool) -> None:
    (worker,) = cluster.workers
    assert isinstance(worker, FailureRecovery)
    worker.lead(leads=leads)


@virtual(RecoveryCluster, FailureRecoveryPolicy(budget=Budget(3, timedelta(hours=1))), seeds=5)
async def test_leadership_lost_and_won_gives_no_budget_anew(cluster: RecoveryCluster) -> None:
    """Neither what writes under way spend, nor what this process or another one spent."""

    async def slowly(_: Request, call: Callable[[], Awaitable[bytes]]) -> bytes:
        answer = await call() if cluster.faulty.writes < 3 else b""
        await cluster.sleep(NODE_GRACE + 10)
        return answer or await call()

    await cluster.node()
    await cluster.start(answers=slowly)
    names = await zombies(cluster, 8)
    await cluster.until(FREED_AFTER + 1)
    for _ in range(3):
        leads(cluster, leads=False)
        await cluster.sleep(1)
        leads(cluster, leads=True)
    await cluster.until(FREED_AFTER + 300)
    assert [await cluster.phase(name) for name in names].count("Failed") == 3
    leads(cluster, leads=False)
    leads(cluster, leads=True)
    await cluster.until(FREED_AFTER + 3500)
    assert [await cluster.phase(name) for name in names].count("Failed") == 3
    await cluster.until(FREED_AFTER + 3800)
    assert [await cluster.phase(name) for name in names].count("Failed") == 6


@virtual(lost_node, FailureRecoveryPolicy(budget=Budget(3, timedelta(hours=1))), seeds=3)
async def test_what_another_leader_spent_meanwhile_counts_once(cluster: RecoveryCluster) -> None:
    await cluster.zombie("mine")
    await cluster.until(FREED_AFTER + 1)
    leads(cluster, leads=False)
    await cluster.zombie("other")
    condition = {
        "type": zombie.CONDITION,
        "status": "True",
        "reason": zombie.REASON,
        "lastTransitionTime": times.format_time(cluster.sim.clock.now()),
    }
    await cluster.status("other", phase="Failed", conditions=[condition])
    for _ in range(3):
        await cluster.sleep(1)
        leads(cluster, leads=True)
    names = await zombies(cluster, 4)
    await cluster.until(FREED_AFTER + 300)
    assert [await cluster.phase(name) for name in names].count("Failed") == 1


@virtual()
async def test_a_reload_does_not_forget_pods_that_were_freed_and_are_gone(sim: Sim) -> None:
    at_once = AnnotationRule(delete_after=timedelta())
    policy = FailureRecoveryPolicy(annotated=at_once, budget=Budget(3, timedelta(hours=1)))
    async with lost_node(sim, policy) as cluster:
        names = await zombies(cluster, 8)
        for second in range(5, 60, 10):
            await cluster.until(FREED_AFTER + second)
            assert [await cluster.phase(name) for name in names].count("gone") == 3
            cluster.switch(policy)


@virtual(RecoveryCluster, THREE_A_MINUTE)
async def test_a_hold_does_not_save_up_the_budget(cluster: RecoveryCluster) -> None:
    """Pods that could have been freed meanwhile are not freed on top of the budget."""
    for number in range(4):
        await cluster.node(f"n{number}", lost=number == 0)
    await cluster.start()
    names = await zombies(cluster, 9, node="n0")
    await cluster.until(100)  # three are freed, six stand in the line
    await cluster.lose("n1")
    await cluster.lose("n2")
    await cluster.until(500)
    assert [await cluster.phase(name) for name in names].count("Failed") == 3
    await cluster.recover("n2")
    await cluster.until(700)
    assert Counter([await cluster.freed_at(name) for name in names]) == {90: 3, 500: 3, 560: 3}


@virtual(RecoveryCluster, FailureRecoveryPolicy(budget=Budget(2, timedelta(minutes=1))), seeds=5)
async def test_slot_that_meets_a_hold_goes_to_next_in_the_line(cluster: RecoveryCluster) -> None:
    """The first node of the line comes back; the pods of the second are freed all the same."""
    for number in range(5):
        await cluster.node(f"n{number}", lost=number < 2)
    await cluster.start()
    first = [f"p{number}" for number in range(4)]
    for name in first:
        await cluster.zombie(name, node="n0")
    await cluster.until(1)
    second = ["p4", "p5"]
    for name in second:
        await cluster.zombie(name, node="n1")
    await cluster.until(100)
    assert [await cluster.phase(name) for name in first].count("Failed") == 2
    await cluster.lose("n2")
    await cluster.until(200)
    metric = "refloat_failure_recovery_held"
    assert cluster.sample(metric, cause="Budget") == 0
    assert cluster.sample(metric, cause="UnreachableNodes") == 4
    await cluster.recover("n0")
    await cluster.until(201)
    assert [await cluster.freed_at(name) for name in second] == [200, 200]
    assert [await cluster.phase(name) for name in first].count("Failed") == 2


@virtual(
    RecoveryCluster,
    FailureRecoveryPolicy(
        annotated=AnnotationRule(delete_after=timedelta()), budget=Budget(1, timedelta(minutes=1))
    ),
)
async def test_a_pod_that_ended_by_itself_needs_no_slot_to_be_deleted(
    cluster: RecoveryCluster,
) -> None:
    """Even if the pod cannot be freed: the slot is for pods that wait."""

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        return errors.Forbidden("no", code=403) if request.method == "DELETE" else None

    await cluster.node()
    await cluster.start(refuses=refuse)
    names = await zombies(cluster, 3)
    await cluster.until(100)
    next_pod, other = [name for name in names if await cluster.phase(name) == "Running"]
    await cluster.status(next_pod, phase="Failed")
    await cluster.until(155)
    assert await cluster.freed_at(other) == 150

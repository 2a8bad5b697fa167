# SPDX-License-Identifier: Apache-2.0
"""What recovery says of itself is true: records, events, budgets and gauges.

A record and an event belong to the write that succeeded, and a budget is the
cluster's, whichever process spent it.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from refloat.api import times
from refloat.api.meta import Object
from refloat.client import errors, fence, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.client.requests import Request
from refloat.controllers.failure_recovery import due_pods
from refloat.controllers.failure_recovery.controller import FailureRecovery
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import (
    AnnotationRule,
    Budget,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
)
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.manager import Worker
from refloat.sim.controller_process import ControllerProcess
from refloat.sim.event_log import EventLog
from refloat.sim.faulty_client import FaultyClient, nothing
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.recovery_cluster import (
    FREED_AFTER,
    LOST,
    NODE_GRACE,
    ON,
    SAFE,
    RecoveryCluster,
    lost_node,
    zombies,
)
from tests.virtual import virtual

MESSAGE = (
    "Pod forcefully terminated after 90s grace period due to unreachable node `n` "
    "(triggered by `kueue.x-k8s.io/safe-to-forcefully-terminate annotation`)"
)
HOURLY = FailureRecoveryPolicy(budget=Budget(1, timedelta(hours=1)))
DELETES = FailureRecoveryPolicy(annotated=AnnotationRule(delete_after=timedelta(minutes=10)))
TAINTING = FailureRecoveryPolicy(taint=(TaintNodeOutOfService("rules[0]", timedelta(seconds=600)),))
DUE = "refloat_failure_recovery_due_pods"
DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
STUCK = "refloat_failure_recovery_stuck_pods"


def is_status_patch(request: Request) -> bool:
    return request.method == "PATCH" and "/pods/" in request.path


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = (getattr(each, "fields", {}) for each in caplog.records)
    return [each["action"] for each in records if "pod" in each]


async def another_writes(cluster: RecoveryCluster, name: str = "p", ago: float = 0.0) -> None:
    """The event of a second Refloat, word for word; `ago` is the age of its time in seconds."""
    when = cluster.sim.clock.now() - timedelta(seconds=ago)
    condition = {
        "type": zombie.CONDITION,
        "status": "True",
        "reason": zombie.REASON,
        "message": MESSAGE,
        "lastTransitionTime": times.format_time(when),
    }
    await cluster.status(name, phase="Failed", conditions=[condition])


# -- records belong to writes that succeeded


@virtual(seeds=5)
async def test_a_write_that_another_process_was_faster_with_is_not_recorded(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    """Though the watch shows the other's write, with the same message, before our 409 comes."""
    caplog.set_level(logging.INFO)
    caplog.clear()
    async with RecoveryCluster(sim) as cluster:

        async def is_second(request: Request) -> None:
            if is_status_patch(request):
                cluster.faulty.before = nothing
                await another_writes(cluster)
                await sim.clock.sleep(1)

        await cluster.node()
        await cluster.start(before=is_second)
        await cluster.zombie()
        await cluster.until(FREED_AFTER + 60)
        assert cluster.event_log.notes(zombie.REASON) == []
        assert cluster.decided("terminated", "Annotation") == 0
        assert "terminated" not in actions(caplog)
        assert cluster.sample("refloat_failure_recovery_stuck_seconds_count") == 0


@virtual(RecoveryCluster, seeds=3)
async def test_a_lost_answer_of_a_write_that_never_happened_is_not_recorded(
    cluster: RecoveryCluster,
) -> None:
    """Another process wrote the same, but at another time."""

    def lost(request: Request, number: int) -> errors.ClientError | None:
        first = is_status_patch(request) and number == 1
        return errors.Unavailable("the connection broke") if first else None

    async def is_second(request: Request) -> None:
        if is_status_patch(request):
            cluster.faulty.before = nothing
            await another_writes(cluster, ago=3)

    await cluster.node()
    await cluster.start(before=is_second, refuses=lost)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 60)
    assert await cluster.phase() == "Failed"
    assert cluster.event_log.notes(zombie.REASON) == []
    assert cluster.decided("terminated", "Annotation") == 0


class SentTwice(FaultyClient):
    """The answer of the first status patch is lost, and the client repeats the patch."""

    async def _call(self, request: Request) -> bytes:
        if not is_status_patch(request) or self.writes:
            return await super()._call(request)
        fence.check()
        await super()._call(request)
        fence.check()
        raise errors.Conflict("the object has been modified", code=409, reason="Conflict")


@virtual(RecoveryCluster, HOURLY, seeds=3)
async def test_write_sent_twice_is_recorded_and_spends_a_slot(cluster: RecoveryCluster) -> None:
    """The conflict of the second is the success of the first: the pod shows the condition."""
    await cluster.node()
    await cluster.start(__class__=SentTwice)
    names = await zombies(cluster, 2)
    await cluster.until(FREED_AFTER + 600)
    assert [await cluster.phase(name) for name in names].count("Failed") == 1
    assert cluster.event_log.notes(zombie.REASON) == [MESSAGE]
    assert cluster.decided("terminated", "Annotation") == 1


class FirstComesLate:
    """The first write arrives when a third one is sent; the first two get no answer."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self._sent: list[Callable[[], Awaitable[bytes]]] = []

    async def __call__(self, request: Request, send: Callable[[], Awaitable[bytes]]) -> bytes:
        self._sent.append(send)
        if len(self._sent) < 3:
            await self._sim.clock.sleep(2)
            raise errors.Unavailable("the connection broke")
        if len(self._sent) == 3:
            await self._sent[0]()
        return await send()


@virtual(RecoveryCluster, seeds=3)
async def test_a_try_that_arrives_after_later_ones_is_recorded(cluster: RecoveryCluster) -> None:
    await cluster.node()
    await cluster.start(answers=FirstComesLate(cluster.sim))
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 60)
    assert await cluster.phase() == "Failed"
    assert cluster.event_log.notes(zombie.REASON) == [MESSAGE]
    assert cluster.decided("terminated", "Annotation") == 1


class LostAfterPodIsGone:
    """The answer of a forced end is lost, and the pod is gone before the connection breaks."""

    def __init__(self, sim: Sim, client: Client) -> None:
        self._sim = sim
        self._client = client

    async def __call__(self, request: Request, send: Callable[[], Awaitable[bytes]]) -> bytes:
        if not is_status_patch(request):
            return await send()
        await send()
        now = DeleteOptions(grace_seconds=0)
        await self._client.delete(kinds.PODS, "p", namespace=NAMESPACE, options=now)
        await self._sim.clock.sleep(2)
        raise errors.Unavailable("the connection broke")


async def _lose_answer_after_pod_is_gone(sim: Sim, policy: FailureRecoveryPolicy) -> None:
    async with RecoveryCluster(sim, policy) as cluster:
        await cluster.node()
        await cluster.start(answers=LostAfterPodIsGone(sim, cluster.client))
        await cluster.zombie()
        await cluster.until(FREED_AFTER + 60)
        assert await cluster.find_pod("p") is None
        assert cluster.event_log.notes(zombie.REASON) == [MESSAGE]
        assert cluster.decided("terminated", "Annotation") == 1


@virtual(seeds=3)
async def test_a_lost_answer_is_recorded_though_the_pod_is_gone_before(sim: Sim) -> None:
    await _lose_answer_after_pod_is_gone(sim, FailureRecoveryPolicy())


@virtual(seeds=3)
async def test_a_lost_answer_is_recorded_also_where_pods_are_deleted_later(sim: Sim) -> None:
    await _lose_answer_after_pod_is_gone(sim, DELETES)


@virtual(RecoveryCluster, TAINTING, seeds=3)
async def test_a_taint_that_arrives_after_later_ones_is_recorded(cluster: RecoveryCluster) -> None:
    await cluster.node()
    await cluster.running()
    await cluster.start(answers=FirstComesLate(cluster.sim))
    await cluster.until(700)
    assert len(cluster.event_log.notes("FailureRecoveryTaintedNode")) == 1
    assert cluster.decided("tainted", "Rule", "node") == 1


@virtual(RecoveryCluster, TAINTING, seeds=3)
async def test_a_taint_whose_answer_is_lost_is_told_of_once(cluster: RecoveryCluster) -> None:
    await cluster.node()
    await cluster.running()
    await cluster.start(loses=(1,))
    await cluster.until(700)
    assert len(cluster.event_log.notes("FailureRecoveryTaintedNode")) == 1
    assert cluster.decided("tainted", "Rule", "node") == 1
    assert cluster.faulty.writes == 1


# -- writes name the version that was decided on

Race = Callable[[RecoveryCluster], Awaitable[None]]


@virtual(RecoveryCluster, DELETES, seeds=3)
async def test_pod_that_changes_before_its_delete_is_judged_anew(cluster: RecoveryCluster) -> None:
    """The user takes the annotation back: a delete without its version would not notice."""

    async def takes_back(request: Request) -> None:
        if request.method == "DELETE":
            await cluster.annotate("p", dict.fromkeys(SAFE))

    await cluster.node()
    await cluster.start(before=takes_back)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 700)
    assert cluster.faulty.writes >= 2
    assert await cluster.phase() == "Failed"
    assert (await cluster.get_pod()).metadata.deletion_grace_period_seconds == 30
    assert cluster.event_log.notes("KueueForcefullyDeleted") == []
    assert cluster.decided("deleted", "Annotation") == 0


@virtual(RecoveryCluster, TAINTING, seeds=3)
async def test_node_that_returns_before_its_taint_is_not_tainted(cluster: RecoveryCluster) -> None:
    """A patch without the node's version would add the taint."""

    async def returns(request: Request) -> None:
        if request.method == "PATCH" and "/nodes/" in request.path:
            cluster.faulty.before = nothing
            await cluster.recover()

    await cluster.node()
    await cluster.running()
    await cluster.start(before=returns)
    await cluster.until(700)
    assert cluster.faulty.writes == 1
    assert await cluster.taints() == []
    assert cluster.event_log.notes("FailureRecoveryTaintedNode") == []
    assert cluster.decided("tainted", "Rule", "node") == 0


# -- the budget is the cluster's


@virtual(RecoveryCluster, HOURLY, seeds=3)
async def test_a_lost_answer_counts_against_the_budget(cluster: RecoveryCluster) -> None:
    """The write may have happened, and here did."""
    await cluster.node()
    await cluster.start(loses=(1,))
    names = await zombies(cluster, 2)
    await cluster.until(FREED_AFTER + 3000)
    assert [await cluster.phase(name) for name in names].count("Failed") == 1
    await cluster.until(FREED_AFTER + 3700)
    assert [await cluster.phase(name) for name in names].count("Failed") == 2


@virtual(RecoveryCluster, HOURLY, seeds=3)
async def test_a_lost_answer_of_a_write_that_did_not_happen_counts_too(
    cluster: RecoveryCluster,
) -> None:
    def lost(_: Request, number: int) -> errors.ClientError | None:
        return errors.Timeout("no answer in time") if number == 1 else None

    await cluster.node()
    await cluster.start(refuses=lost)
    names = await zombies(cluster, 2)
    await cluster.until(FREED_AFTER + 3000)
    assert [await cluster.phase(name) for name in names].count("Failed") == 0
    await cluster.until(FREED_AFTER + 3700)
    assert [await cluster.phase(name) for name in names].count("Failed") == 1


@virtual(RecoveryCluster)
async def test_budget_that_comes_after_a_pod_was_freed_counts_it(cluster: RecoveryCluster) -> None:
    """Before the watch shows the end: the answer was faster."""

    class SwitchingClient(FaultyClient):
        async def _call(self, request: Request) -> bytes:
            answer = await super()._call(request)
            if is_status_patch(request) and self.writes == 1:
                # In the next turn of the loop, right after the answer is taken.
                clock = cluster.sim.clock
                clock.call_at(clock.monotonic(), lambda: cluster.switch(HOURLY))
            return answer

    await cluster.node()
    await cluster.start(__class__=SwitchingClient)
    await cluster.zombie("p0")
    await cluster.until(1)
    await cluster.zombie("p1")
    await cluster.until(FREED_AFTER + 600)
    assert await cluster.phase("p0") == "Failed"
    assert await cluster.phase("p1") == "Running"


class Standby:
    """A process with full caches, which acts only as leader."""

    name = "standby"

    def __init__(self, worker: FailureRecovery) -> None:
        self.worker = worker

    def start(self) -> None:
        pass

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        return await self.worker.stop(drain_seconds)


@virtual(RecoveryCluster, FailureRecoveryPolicy(budget=Budget(3, timedelta(hours=1))), seeds=3)
async def test_new_leader_goes_on_with_the_budget_of_the_old_one(cluster: RecoveryCluster) -> None:
    """What the old leader spent in the window is read off the pods when leadership begins."""
    second: list[Standby] = []

    def make(env: ControllerEnv) -> Sequence[Worker]:
        (worker,) = cluster.build_recovery(env)
        assert isinstance(worker, FailureRecovery)
        second.append(Standby(worker))
        return second

    standby = ControllerProcess(cluster.sim, cluster.server, make, sink=EventLog(), gates=ON)
    await cluster.node()
    await cluster.start()
    await standby.start()
    try:
        names = await zombies(cluster, 8)
        await cluster.until(FREED_AFTER + 1)
        await cluster.stop()  # this process spent the budget a second ago
        second[0].worker.start()
        await cluster.until(FREED_AFTER + 3000)
        assert [await cluster.phase(name) for name in names].count("Failed") == 3
        labels = {"cause": "Budget"}
        metric = "refloat_failure_recovery_held"
        assert standby.registry.get_sample_value(metric, labels) == 5
        await cluster.until(FREED_AFTER + 3700)
        assert [await cluster.phase(name) for name in names].count("Failed") == 6
    finally:
        await standby.stop()


# -- gauges for alerts


async def _budget(cluster: RecoveryCluster) -> None:
    await zombies(cluster, 2)


async def _hold(cluster: RecoveryCluster) -> None:
    for number in range(3):
        await cluster.node(f"n{number}")
    await cluster.zombie()


async def _zombie(cluster: RecoveryCluster) -> None:
    await cluster.zombie()


async def _ready(cluster: RecoveryCluster) -> None:
    await cluster.recover()
    await cluster.taint("n", *LOST)
    await cluster.zombie()


async def _renewed(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(FREED_AFTER - 10)
    await cluster.renew()


def _forbidden(request: Request, _: int) -> errors.ClientError | None:
    return errors.Forbidden("no", code=403) if is_status_patch(request) else None


@cases(
    "policy arrange faults reason",
    {
        "the budget holds it": (HOURLY, _budget, {}, "Budget"),
        "too many nodes are lost": (None, _hold, {}, "UnreachableNodes"),
        "a report": (FailureRecoveryPolicy(mode="Report"), _zombie, {}, "Report"),
        "nobody opted in": (None, lambda cluster: cluster.zombie(annotations={}), {}, "NotOptedIn"),
        "its node is Ready": (None, _ready, {}, "NodeReady"),
        "its node renewed its lease": (None, _renewed, {}, "LeaseSilence"),
        "a right is missing": (None, _zombie, {"refuses": _forbidden}, "WriteFailed"),
    },
)
@virtual()
async def test_a_pod_that_is_due_and_not_freed_is_counted_by_its_reason(
    sim: Sim, policy: FailureRecoveryPolicy | None, arrange: Race, faults: Object, reason: str
) -> None:
    async with RecoveryCluster(sim, policy) as cluster:
        await cluster.node()
        await cluster.start(**faults)
        await arrange(cluster)
        await cluster.until(FREED_AFTER - 1)
        assert cluster.sample(DUE, reason=reason) == 0
        assert cluster.sample(STUCK) > 0
        await cluster.until(FREED_AFTER + 1)
        assert cluster.sample(DUE, reason=reason) == 1
        assert cluster.sample(STUCK) == 1
        await cluster.client.delete(kinds.NODES, "n")  # the collector takes care of it
        await cluster.until(FREED_AFTER + 2)
        assert cluster.sample(DUE, reason=reason) == 0
        assert cluster.sample(STUCK) == 0


@virtual(lost_node)
async def test_a_pod_that_is_freed_is_neither_stuck_nor_due(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(FREED_AFTER - 1)
    assert cluster.sample(STUCK) == 1
    await cluster.until(FREED_AFTER + 1)
    assert await cluster.phase() == "Failed"
    assert cluster.sample(STUCK) == 0
    families = [each for each in cluster.metrics.collect() if each.name == DUE]
    assert sum(sample.value for each in families for sample in each.samples) == 0


@virtual(RecoveryCluster)
async def test_a_pod_that_goes_while_its_write_fails_is_not_counted_for_ever(
    cluster: RecoveryCluster,
) -> None:
    def lost(_: Request, number: int) -> errors.ClientError | None:
        return errors.Timeout("no answer in time") if number == 1 else None

    async def goes(_: Request) -> None:
        options = DeleteOptions(grace_seconds=0)
        await cluster.client.delete(kinds.PODS, "p", namespace=NAMESPACE, options=options)
        await cluster.sleep(1)

    await cluster.node()
    await cluster.start(before=goes, refuses=lost)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 60)
    assert await cluster.phase() == "gone"
    assert cluster.faulty.writes == 1
    assert cluster.sample(DUE, reason="WriteFailed") == 0
    assert cluster.event_log.notes(zombie.REASON) == []


@virtual(RecoveryCluster)
async def test_missing_right_shows_in_readyz_a_gauge_and_an_event(cluster: RecoveryCluster) -> None:
    missing: Any = {"right": "patch pods/status"}
    gauge = "refloat_failure_recovery_missing_rights"
    await cluster.node()
    await cluster.start(refuses=_forbidden)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + NODE_GRACE)
    (worker,) = cluster.workers
    assert isinstance(worker, FailureRecovery)
    assert worker.rights.missing == "failure-recovery-controller may not patch pods/status"
    assert cluster.sample(gauge, **missing) == 1
    (note,) = cluster.event_log.notes("MissingRights")
    assert note.startswith("failure-recovery-controller may not patch pods/status")
    cluster.faulty.refuses = lambda *_: None
    await cluster.until(FREED_AFTER + 2000)
    assert await cluster.phase() == "Failed"
    assert worker.rights.missing is None
    assert cluster.sample(gauge, **missing) == 0


def test_each_reason_of_the_gauge_is_documented() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    first = " ".join(row.split(" | ")[0] for row in rows)
    assert [each for each in due_pods.REASONS if f"`{each}`" not in first] == []

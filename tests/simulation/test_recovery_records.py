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
from refloat.app.equipment import Equipment
from refloat.client import errors, fence, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.controllers.failure_recovery import due
from refloat.controllers.failure_recovery.controller import FailureRecovery
from refloat.policy import zombie
from refloat.policy.failure_recovery import (
    Annotated,
    Budget,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
)
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim, run
from tests.simulation.controller_world import NAMESPACE, Faulty, World
from tests.simulation.job_world import nothing
from tests.simulation.recovery_world import (
    FREED_AFTER,
    LOST,
    NODE_GRACE,
    ON,
    SAFE,
    Stage,
    stage,
    zombies,
)
from tests.virtual import virtual

MESSAGE = (
    "Pod forcefully terminated after 90s grace period due to unreachable node `n` "
    "(triggered by `kueue.x-k8s.io/safe-to-forcefully-terminate annotation`)"
)
HOURLY = FailureRecoveryPolicy(budget=Budget(1, timedelta(hours=1)))
DELETES = FailureRecoveryPolicy(annotated=Annotated(delete_after=timedelta(minutes=10)))
TAINTING = FailureRecoveryPolicy(taint=(TaintNodeOutOfService("rules[0]", timedelta(seconds=600)),))
DUE = "refloat_failure_recovery_due_pods"
DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
STUCK = "refloat_failure_recovery_stuck_pods"


def is_status_patch(request: Request) -> bool:
    return request.method == "PATCH" and "/pods/" in request.path


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = (getattr(each, "fields", {}) for each in caplog.records)
    return [each["action"] for each in records if "pod" in each]


async def another_writes(s: Stage, name: str = "p", ago: float = 0.0) -> None:
    """What a second Refloat writes, word for word; `ago` is how old its time is."""
    when = s.sim.clock.now() - timedelta(seconds=ago)
    condition = {
        "type": zombie.CONDITION,
        "status": "True",
        "reason": zombie.REASON,
        "message": MESSAGE,
        "lastTransitionTime": times.format_time(when),
    }
    await s.world.status(name, phase="Failed", conditions=[condition])


# -- records belong to writes that succeeded


@virtual(seeds=5)
async def test_a_write_that_another_process_was_faster_with_is_not_recorded(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    """Though the watch shows the other's write, with the same message, before our 409 comes."""
    caplog.set_level(logging.INFO)
    caplog.clear()
    async with stage(sim) as s:

        async def is_second(request: Request) -> None:
            if is_status_patch(request):
                s.world.mortal.before = nothing
                await another_writes(s)
                await sim.clock.sleep(1)

        await s.node()
        await s.start(before=is_second)
        await s.zombie()
        await s.until(FREED_AFTER + 60)
        assert s.told(zombie.REASON) == []
        assert s.decided("terminated", "Annotation") == 0
        assert "terminated" not in actions(caplog)
        assert s.world.sample("refloat_failure_recovery_stuck_seconds_count") == 0


@virtual(seeds=3)
async def test_a_lost_answer_of_a_write_that_never_happened_is_not_recorded(sim: Sim) -> None:
    """Another process wrote the same, but at another time."""

    def lost(request: Request, number: int) -> errors.ClientError | None:
        first = is_status_patch(request) and number == 1
        return errors.Unavailable("the connection broke") if first else None

    async with stage(sim) as s:

        async def is_second(request: Request) -> None:
            if is_status_patch(request):
                s.world.mortal.before = nothing
                await another_writes(s, ago=3)

        await s.node()
        await s.start(before=is_second, refuses=lost)
        await s.zombie()
        await s.until(FREED_AFTER + 60)
        assert await s.phase() == "Failed"
        assert s.told(zombie.REASON) == []
        assert s.decided("terminated", "Annotation") == 0


class SentTwice(Faulty):
    """The answer of the first status patch is lost, and the client sends it again."""

    async def _call(self, request: Request) -> bytes:
        if not is_status_patch(request) or self.writes:
            return await super()._call(request)
        fence.check()
        await super()._call(request)
        fence.check()
        raise errors.Conflict("the object has been modified", code=409, reason="Conflict")


@virtual(seeds=3)
async def test_a_write_that_was_sent_twice_is_recorded_and_spends_a_slot(sim: Sim) -> None:
    """The conflict of the second is the success of the first: the pod shows it."""
    async with stage(sim, HOURLY) as s:
        await s.node()
        await s.start(__class__=SentTwice)
        names = await zombies(s, 2)
        await s.until(FREED_AFTER + 600)
        assert [await s.phase(name) for name in names].count("Failed") == 1
        assert s.told(zombie.REASON) == [MESSAGE]
        assert s.decided("terminated", "Annotation") == 1


@virtual(seeds=3)
async def test_a_taint_whose_answer_is_lost_is_told_of_once(sim: Sim) -> None:
    async with stage(sim, TAINTING) as s:
        await s.node()
        await s.running()
        await s.start(loses=(1,))
        await s.until(700)
        assert len(s.told("FailureRecoveryTaintedNode")) == 1
        assert s.decided("tainted", "Rule", "node") == 1
        assert s.world.mortal.writes == 1


# -- writes name the version that was decided on

Race = Callable[[Stage], Awaitable[None]]


@virtual(seeds=3)
async def test_a_pod_that_changes_right_before_its_deletion_is_decided_on_anew(sim: Sim) -> None:
    """The user takes the annotation back: a delete without its version would not notice."""
    async with stage(sim, DELETES) as s:

        async def takes_back(request: Request) -> None:
            if request.method == "DELETE":
                await s.annotate("p", dict.fromkeys(SAFE))

        await s.node()
        await s.start(before=takes_back)
        await s.zombie()
        await s.until(FREED_AFTER + 700)
        assert s.world.mortal.writes >= 2
        assert await s.phase() == "Failed"
        assert (await s.pod()).metadata.deletion_grace_period_seconds == 30
        assert s.told("KueueForcefullyDeleted") == []
        assert s.decided("deleted", "Annotation") == 0


@virtual(seeds=3)
async def test_a_node_that_returns_right_before_its_taint_is_not_tainted(sim: Sim) -> None:
    """A patch without the node's version would taint it."""
    async with stage(sim, TAINTING) as s:

        async def returns(request: Request) -> None:
            if request.method == "PATCH" and "/nodes/" in request.path:
                s.world.mortal.before = nothing
                await s.find()

        await s.node()
        await s.running()
        await s.start(before=returns)
        await s.until(700)
        assert s.world.mortal.writes == 1
        assert await s.taints() == []
        assert s.told("FailureRecoveryTaintedNode") == []
        assert s.decided("tainted", "Rule", "node") == 0


# -- the budget is the cluster's


@virtual(seeds=3)
async def test_a_lost_answer_counts_against_the_budget(sim: Sim) -> None:
    """The write may have happened, and here it has."""
    async with stage(sim, HOURLY) as s:
        await s.node()
        await s.start(loses=(1,))
        names = await zombies(s, 2)
        await s.until(FREED_AFTER + 3000)
        assert [await s.phase(name) for name in names].count("Failed") == 1
        await s.until(FREED_AFTER + 3700)
        assert [await s.phase(name) for name in names].count("Failed") == 2


@virtual(seeds=3)
async def test_a_lost_answer_of_a_write_that_did_not_happen_counts_too(sim: Sim) -> None:
    def lost(_: Request, number: int) -> errors.ClientError | None:
        return errors.Timeout("no answer in time") if number == 1 else None

    async with stage(sim, HOURLY) as s:
        await s.node()
        await s.start(refuses=lost)
        names = await zombies(s, 2)
        await s.until(FREED_AFTER + 3000)
        assert [await s.phase(name) for name in names].count("Failed") == 0
        await s.until(FREED_AFTER + 3700)
        assert [await s.phase(name) for name in names].count("Failed") == 1


@virtual()
async def test_a_budget_that_comes_right_after_a_pod_was_freed_counts_it(sim: Sim) -> None:
    """Before the watch shows it: the answer was faster."""
    async with stage(sim) as s:

        class Switched(Faulty):
            async def _call(self, request: Request) -> bytes:
                answer = await super()._call(request)
                if is_status_patch(request) and self.writes == 1:
                    # In the next turn of the loop, right after the answer is taken.
                    sim.clock.call_at(sim.clock.monotonic(), lambda: s.switch(HOURLY))
                return answer

        await s.node()
        await s.start(__class__=Switched)
        await s.zombie("p0")
        await s.until(1)
        await s.zombie("p1")
        await s.until(FREED_AFTER + 600)
        assert await s.phase("p0") == "Failed"
        assert await s.phase("p1") == "Running"


class Standby:
    """A process that has its caches, and acts only when it becomes the leader."""

    name = "standby"

    def __init__(self, worker: FailureRecovery) -> None:
        self.worker = worker

    def start(self) -> None:
        pass

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        return await self.worker.stop(drain_seconds)


@virtual(seeds=3)
async def test_a_new_leader_goes_on_with_the_budget_of_the_old_one(sim: Sim) -> None:
    """What the old leader spent in the window is read off the pods when leadership begins."""
    policy = FailureRecoveryPolicy(budget=Budget(3, timedelta(hours=1)))
    async with stage(sim, policy) as s:
        second: list[Standby] = []

        def make(shared: Equipment) -> Sequence[Worker]:
            (worker,) = s.make(shared)
            assert isinstance(worker, FailureRecovery)
            second.append(Standby(worker))
            return second

        standby = World(sim, s.world.api, make, ON)
        await s.node()
        await s.start()
        await standby.start()
        try:
            names = await zombies(s, 8)
            await s.until(FREED_AFTER + 1)
            await s.world.stop()  # it spent all of it a second ago
            second[0].worker.start()
            await s.until(FREED_AFTER + 3000)
            assert [await s.phase(name) for name in names].count("Failed") == 3
            assert standby.sample("refloat_failure_recovery_held", cause="Budget") == 5
            await s.until(FREED_AFTER + 3700)
            assert [await s.phase(name) for name in names].count("Failed") == 6
        finally:
            await standby.stop()


# -- gauges for alerts


async def _budget(s: Stage) -> None:
    await zombies(s, 2)


async def _hold(s: Stage) -> None:
    for number in range(3):
        await s.node(f"n{number}")
    await s.zombie()


async def _zombie(s: Stage) -> None:
    await s.zombie()


async def _not_opted_in(s: Stage) -> None:
    await s.zombie(annotations={})


async def _ready(s: Stage) -> None:
    await s.find()
    await s.taint("n", *LOST)
    await s.zombie()


async def _renewed(s: Stage) -> None:
    await s.zombie()
    await s.until(FREED_AFTER - 10)
    await s.renew()


def _forbidden(request: Request, _: int) -> errors.ClientError | None:
    return errors.Forbidden("no", code=403) if is_status_patch(request) else None


@pytest.mark.parametrize(
    ("policy", "arrange", "faults", "reason"),
    [
        pytest.param(HOURLY, _budget, {}, "Budget", id="the budget holds it"),
        pytest.param(None, _hold, {}, "UnreachableNodes", id="too many nodes are lost"),
        pytest.param(FailureRecoveryPolicy(mode="Report"), _zombie, {}, "Report", id="a report"),
        pytest.param(None, _not_opted_in, {}, "NotOptedIn", id="nobody opted in"),
        pytest.param(None, _ready, {}, "NodeReady", id="its node is Ready"),
        pytest.param(None, _renewed, {}, "LeaseSilence", id="its node renewed its lease"),
        pytest.param(
            None, _zombie, {"refuses": _forbidden}, "WriteFailed", id="a right is missing"
        ),
    ],
)
def test_a_pod_that_is_due_and_not_freed_is_counted_by_its_reason(
    policy: FailureRecoveryPolicy | None, arrange: Race, faults: Object, reason: str
) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim, policy) as s:
            await s.node()
            await s.start(**faults)
            await arrange(s)
            await s.until(FREED_AFTER - 1)
            assert s.world.sample(DUE, reason=reason) == 0
            assert s.world.sample(STUCK) > 0
            await s.until(FREED_AFTER + 1)
            assert s.world.sample(DUE, reason=reason) == 1
            assert s.world.sample(STUCK) == 1
            await s.world.client.delete(kinds.NODES, "n")  # the collector takes care of it
            await s.until(FREED_AFTER + 2)
            assert s.world.sample(DUE, reason=reason) == 0
            assert s.world.sample(STUCK) == 0

    run(program, seed=0)


@virtual()
async def test_a_pod_that_is_freed_is_neither_stuck_nor_due(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(FREED_AFTER - 1)
        assert s.world.sample(STUCK) == 1
        await s.until(FREED_AFTER + 1)
        assert await s.phase() == "Failed"
        assert s.world.sample(STUCK) == 0
        families = [each for each in s.world.metrics.collect() if each.name == DUE]
        assert sum(sample.value for each in families for sample in each.samples) == 0


@virtual()
async def test_a_pod_that_goes_while_its_write_fails_is_not_counted_for_ever(sim: Sim) -> None:
    def lost(_: Request, number: int) -> errors.ClientError | None:
        return errors.Timeout("no answer in time") if number == 1 else None

    async with stage(sim) as s:

        async def goes(_: Request) -> None:
            options = DeleteOptions(grace_seconds=0)
            await s.world.client.delete(kinds.PODS, "p", namespace=NAMESPACE, options=options)
            await sim.clock.sleep(1)

        await s.node()
        await s.start(before=goes, refuses=lost)
        await s.zombie()
        await s.until(FREED_AFTER + 60)
        assert await s.phase() == "gone"
        assert s.world.mortal.writes == 1
        assert s.world.sample(DUE, reason="WriteFailed") == 0
        assert s.told(zombie.REASON) == []


@virtual()
async def test_a_right_that_is_missing_shows_in_readyz_a_gauge_and_one_event(sim: Sim) -> None:
    missing: Any = {"right": "patch pods/status"}
    gauge = "refloat_failure_recovery_missing_rights"
    async with stage(sim) as s:
        await s.node()
        await s.start(refuses=_forbidden)
        await s.zombie()
        await s.until(FREED_AFTER + NODE_GRACE)
        (worker,) = s.world.workers
        assert isinstance(worker, FailureRecovery)
        assert worker.rights.missing == "failure-recovery-controller may not patch pods/status"
        assert s.world.sample(gauge, **missing) == 1
        (told,) = s.told("MissingRights")
        assert told.startswith("failure-recovery-controller may not patch pods/status")
        s.world.mortal.refuses = lambda *_: None
        await s.until(FREED_AFTER + 2000)
        assert await s.phase() == "Failed"
        assert worker.rights.missing is None
        assert s.world.sample(gauge, **missing) == 0


def test_each_reason_of_the_gauge_is_documented() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    first = " ".join(row.split(" | ")[0] for row in rows)
    assert [each for each in due.REASONS if f"`{each}`" not in first] == []

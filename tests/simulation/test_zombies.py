# SPDX-License-Identifier: Apache-2.0
"""Pods that hang on lost nodes are freed when they may be, and never else (KEP-6757).

One controller on a real API server in virtual time. What becomes of Jobs is in
`test_zombie_jobs`, of budgets, holds and nodes in `test_zombie_bounds`.
"""

from datetime import timedelta
from typing import Any

import pytest

from refloat.api import selectors
from refloat.api.meta import Object
from refloat.base.gates import Gates
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.policy import zombie
from refloat.policy.failure_recovery import Annotated, FailureRecoveryPolicy, TerminatePod
from refloat.sim.run import Sim, run
from tests.simulation.controller_world import FAULTS, NAMESPACE
from tests.simulation.job_world import nothing
from tests.simulation.recovery_world import (
    FREED_AFTER,
    NODE_GRACE,
    SAFE,
    Stage,
    stage,
)
from tests.virtual import virtual

MESSAGE = (
    "Pod forcefully terminated after 90s grace period due to unreachable node `n` "
    "(triggered by `kueue.x-k8s.io/safe-to-forcefully-terminate annotation`)"
)
DELETES = FailureRecoveryPolicy(annotated=Annotated(delete_after=timedelta(minutes=10)))
REPORT = FailureRecoveryPolicy(mode="Report")
NEVER = 5000.0
"""Long after anything would have happened."""


async def freed(s: Stage, seconds: float) -> None:
    """It is freed then, and not before."""
    await s.until(seconds - 0.5)
    assert await s.phase() == "Running"
    await s.until(seconds)
    assert await s.phase() == "Failed"


async def left_alone(s: Stage, name: str = "p", until: float = NEVER) -> None:
    before = await s.pod(name)
    await s.until(until)
    assert await s.pod(name) == before
    assert s.told(zombie.REASON) == []


# -- when


@virtual(seeds=5)
async def test_a_node_that_is_lost_after_the_pod_was_marked(sim: Sim) -> None:
    """The KEP's second flow."""
    async with stage(sim) as s:
        await s.node(lost=False)
        await s.start()
        await s.zombie()
        await s.until(10)
        await s.lose()
        await freed(s, FREED_AFTER)
        assert s.told(zombie.REASON) == [MESSAGE]
        assert s.decided("terminated", "Annotation") == 1
        assert s.world.sample("refloat_failure_recovery_stuck_seconds_sum") == pytest.approx(60)


@virtual(seeds=5)
async def test_a_node_that_is_lost_before_the_pod_was_marked(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.running()
        await s.start()
        await s.until(300)
        await s.sim.clock.sleep(0.95)  # a deletionTimestamp has whole seconds
        await s.world.delete("p")
        await freed(s, 301 + FREED_AFTER)


@virtual()
async def test_what_is_written(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(FREED_AFTER)
        pod = await s.pod()
        assert [each.type for each in pod.status.conditions or ()] == ["Ready", zombie.CONDITION]
        (condition,) = [e for e in pod.status.conditions or () if e.type == zombie.CONDITION]
        assert (condition.status, condition.reason) == ("True", "KueueForcefullyTerminated")
        assert condition.message == MESSAGE
        assert (pod.status.reason, pod.status.message) == ("", "")
        assert pod.metadata.deletion_grace_period_seconds == 30
        assert s.world.told.events == [("Warning", "KueueForcefullyTerminated", MESSAGE)]


@virtual()
async def test_a_node_that_is_tainted_after_the_threshold(sim: Sim) -> None:
    """kueue#10463: nothing else would ever look at the pod again."""
    async with stage(sim) as s:
        await s.node(lost=False)
        await s.start()
        await s.zombie()
        await s.until(500)
        assert await s.phase() == "Running"
        await s.lose()
        await s.until(500.1)
        assert await s.freed_at() == 500


@virtual(seeds=5)
async def test_does_not_terminate_when_the_node_recovers_before_the_threshold(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(60)
        await s.find()
        await left_alone(s)
        await s.lose()
        await s.until(NEVER + 0.1)
        assert await s.freed_at() == NEVER


@virtual()
async def test_an_annotation_that_is_added_late(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie(annotations={})
        await s.until(200)
        assert await s.phase() == "Running"
        await s.annotate("p", SAFE)
        await s.until(200.1)
        assert await s.freed_at() == 200


@virtual()
async def test_an_annotation_that_is_taken_back_in_time(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(60)
        await s.annotate("p", dict.fromkeys(SAFE))
        await left_alone(s)


@virtual(seeds=5)
async def test_resumes_when_the_controller_restarts(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(30)
        await s.restart()
        await freed(s, FREED_AFTER)


@virtual()
async def test_what_was_due_while_nobody_looked_is_done_when_its_node_is_seen_silent(
    sim: Sim,
) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.world.stop()
        await s.zombie()
        await s.until(1000)
        await s.start()
        await freed(s, 1000 + NODE_GRACE + 0.05)
        assert s.decided("waiting", "LeaseSilence") == 1


@virtual(seeds=5)
async def test_a_node_that_renewed_its_lease_while_nobody_looked_keeps_its_pods(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(60)
        await s.world.stop()
        await s.until(200)
        await s.renew()
        await s.start()
        await s.until(204)
        await s.find()  # whoever taints nodes looks at them every five seconds
        await left_alone(s)


@virtual()
async def test_a_node_that_renews_its_lease_after_a_start_is_waited_for(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.zombie()
        await s.until(200)
        await s.start()
        began = s.seconds
        await s.until(began + 10)
        await s.renew()
        await freed(s, began + 10 + NODE_GRACE + 0.05)


@virtual()
async def test_a_node_that_is_deleted_is_left_to_the_collector(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(60)
        await s.world.client.delete(kinds.NODES, "n")
        await left_alone(s)


# -- what is never touched


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"annotations": {}}, id="no annotation"),
        pytest.param({"annotations": {"kueue.x-k8s.io/managed": "true"}}, id="another annotation"),
        pytest.param({"phase": "Failed"}, id="it has failed"),
        pytest.param({"phase": "Succeeded"}, id="it has succeeded"),
        pytest.param({"phase": "Unknown"}, id="its phase is unknown"),
        pytest.param({"node": "other"}, id="its node is well"),
    ],
)
def test_is_left_alone(how: Object) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim) as s:
            await s.node()
            await s.node("other", lost=False)
            await s.start()
            await s.zombie(finalizers=["example.com/held"], **how)
            await left_alone(s)

    run(program, seed=0)


@virtual()
async def test_a_pod_that_is_not_deleted_is_left_alone(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.running()
        await left_alone(s)


@virtual()
async def test_a_node_that_says_itself_that_it_is_not_ready_keeps_its_pods(sim: Sim) -> None:
    async with stage(sim) as s:
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
        await s.world.node("n", taints=[taint])
        await s.start()
        await s.zombie()
        await left_alone(s)


@virtual()
async def test_pods_that_hang_on_a_reachable_node_are_counted_and_left_alone(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node(lost=False)
        await s.start()
        await s.zombie()
        name = "refloat_failure_recovery_stuck_on_reachable_nodes"
        await s.until(FREED_AFTER - 1)
        assert s.world.sample(name) == 0
        await left_alone(s, until=FREED_AFTER + 1)
        assert s.world.sample(name) == 1
        await s.lose()
        await s.until(FREED_AFTER + 2)
        assert s.world.sample(name) == 0


@virtual()
async def test_with_the_gate_off_nothing_is_decided(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(sim, gates=Gates()) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await left_alone(s)
        assert s.world.told.events == []
        assert s.decided("ignored", "NotOptedIn") == s.decided("terminated", "Annotation") == 0
        assert [each for each in caplog.records if each.levelname == "WARNING"] == []


@virtual()
async def test_rules_with_the_gate_off_are_a_warning_and_nothing_else(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    rule = TerminatePod("rules[0]", selectors.parse_labels("a"), timedelta(seconds=1))
    async with stage(sim, FailureRecoveryPolicy(terminate=(rule,)), gates=Gates()) as s:
        await s.node()
        await s.start()
        await s.zombie(labels={"a": "b"})
        await left_alone(s)
        warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        (told,) = warned
        assert "has rules, but the feature gate FailureRecoveryPolicy is off" in told


@virtual()
async def test_the_gate_off_on_off_on(sim: Sim) -> None:
    async with stage(sim, gates=Gates()) as s:
        await s.node()
        await s.start()
        await s.zombie("first")
        await s.until(1000)
        assert await s.phase("first") == "Running"
        s.switch(on=True)
        await s.until(1000.1)
        assert await s.freed_at("first") == 1000
        await s.zombie("second")
        await s.until(1050)
        s.switch(on=False)
        await s.until(3000)
        assert await s.phase("second") == "Running"
        s.switch(on=True)
        await s.until(3000.1)
        assert await s.freed_at("second") == 3000


@virtual()
async def test_a_report_tells_once_and_touches_nothing(sim: Sim) -> None:
    async with stage(sim, REPORT) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await left_alone(s)
        assert s.world.mortal.writes == 0
        (told,) = s.told("WouldForcefullyTerminate")
        assert "Pod would fail now by force, but failureRecoveryPolicy.mode is Report" in told
        assert s.decided("reported", "Annotation") == 1
        s.switch(FailureRecoveryPolicy())
        await s.until(NEVER + 0.1)
        assert await s.freed_at() == NEVER


@virtual()
async def test_a_namespace_that_comes_to_be_selected(sim: Sim) -> None:
    annotated = Annotated(namespaces=selectors.parse_labels("team=batch"))
    async with stage(sim, FailureRecoveryPolicy(annotated=annotated)) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await left_alone(s, until=500)
        labels = {"metadata": {"labels": {"team": "batch"}}}
        await s.world.client.patch(kinds.NAMESPACES, NAMESPACE, labels)
        await s.until(500.1)
        assert await s.freed_at() == 500


@virtual()
async def test_a_rule_frees_pods_by_their_labels(sim: Sim) -> None:
    selected = selectors.parse_labels("example.com/pod-safe-to-fail=true")
    rule = TerminatePod("failureRecoveryPolicy.rules[0]", selected, timedelta(minutes=5))
    async with stage(sim, FailureRecoveryPolicy(terminate=(rule,))) as s:
        await s.node()
        await s.start()
        await s.zombie(annotations={}, labels={"example.com/pod-safe-to-fail": "true"})
        await s.zombie("other", annotations={})
        await freed(s, 330)
        assert s.told(zombie.REASON)[0].endswith("by `failureRecoveryPolicy.rules[0] rule`)")
        assert await s.phase("other") == "Running"
        assert s.decided("ignored", "NotOptedIn") == 1


# -- deleteAfter


@virtual()
async def test_the_object_goes_after_a_while(sim: Sim) -> None:
    """kueue#9651"""
    async with stage(sim, DELETES) as s:
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(FREED_AFTER + 599)
        assert await s.phase() == "Failed"
        await s.until(FREED_AFTER + 601)
        assert await s.phase() == "gone"
        assert len(s.told("KueueForcefullyDeleted")) == 1
        assert s.world.mortal.writes == 2


@virtual()
async def test_finalizers_keep_it_and_it_is_deleted_once(sim: Sim) -> None:
    """behaviour C8.5, E1.11"""
    async with stage(sim, DELETES) as s:
        await s.node()
        await s.start()
        await s.zombie(finalizers=["example.com/held"])
        await s.until(NEVER)
        pod = await s.pod()
        assert pod.metadata.deletion_grace_period_seconds == 0
        assert s.world.mortal.writes == 2


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param(None, id="it ended by itself"),
        pytest.param(
            {"type": zombie.CONDITION, "status": "True", "reason": "KueueForcefullyDeleted"},
            id="Kueue made it fail, and could not delete it",
        ),
    ],
)
def test_a_pod_that_is_over_and_hangs_gets_no_status_and_goes(condition: Object | None) -> None:
    """kueue#10853: counted from the deletionTimestamp."""

    async def program(sim: Sim) -> None:
        async with stage(sim, DELETES) as s:
            await s.node()
            await s.start()
            await s.zombie()
            conditions = [condition] if condition else []
            await s.world.status("p", phase="Failed", conditions=conditions)
            before = (await s.pod()).status
            await s.until(30 + 599)
            assert (await s.pod()).status == before
            await s.until(30 + 601)
            assert await s.phase() == "gone"
            assert s.told(zombie.REASON) == []

    run(program, seed=0)


# -- races


async def _unsafe(s: Stage, _: Request) -> None:
    await s.annotate("p", dict.fromkeys(SAFE))


async def _replaced(s: Stage, _: Request) -> None:
    options = DeleteOptions(grace_seconds=0)
    await s.world.client.delete(kinds.PODS, "p", namespace=NAMESPACE, options=options)
    await s.running()


@pytest.mark.parametrize(
    "race",
    [
        pytest.param(_unsafe, id="the user takes it back"),
        pytest.param(_replaced, id="another pod gets its name (E4.3)"),
    ],
)
def test_what_changes_right_before_the_write_is_not_overwritten(race: Any) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim) as s:

            async def before(request: Request) -> None:
                s.world.mortal.before = nothing
                await race(s, request)

            await s.node()
            await s.start(before=before)
            await s.zombie()
            await s.until(NEVER)
            assert s.world.mortal.writes >= 1
            assert await s.phase() == "Running"
            assert s.told(zombie.REASON) == []

    run(program, seed=0)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", [1, 2])
def test_a_fault_at_any_write_changes_nothing_of_the_end(fault: str, number: int) -> None:
    """Killed before and after each write, an answer lost, a conflict."""

    async def program(sim: Sim) -> None:
        async with stage(sim, DELETES) as s:
            await s.node()
            s.began = sim.clock.monotonic()
            await s.zombie(finalizers=["example.com/held"])
            await FAULTS[fault](s.world, number, 800.0)
            await s.until(1700)
            pod = await s.pod()
            assert pod.status.phase == "Failed"
            assert pod.metadata.deletion_grace_period_seconds == 0
            again = fault == "dies before" and number == 1  # it is started anew, at 800
            freed_at = 800 + NODE_GRACE if again else FREED_AFTER
            assert await s.freed_at() == pytest.approx(freed_at, abs=2)
            if not fault.startswith("dies"):
                assert len(s.told(zombie.REASON)) == 1

    run(program, seed=0)


@virtual()
async def test_a_node_that_is_back_before_the_cache_knows_keeps_its_pods(sim: Sim) -> None:
    async with stage(sim) as s:

        async def back(request: Request) -> None:
            if "/nodes/" in request.path:
                s.world.mortal.before_read = nothing
                await s.find()

        await s.node()
        await s.start(before_read=back)
        await s.zombie()
        await left_alone(s)
        assert s.decided("ignored", "NodeReachable") >= 1


@virtual()
async def test_a_lease_that_moves_right_before_the_write_keeps_the_pod(sim: Sim) -> None:
    """And if nothing more comes of it, the pod is freed when it is silent again."""
    async with stage(sim) as s:

        async def renewed(request: Request) -> None:
            if "/leases/" in request.path:
                s.world.mortal.before_read = nothing
                await s.renew()

        await s.node()
        await s.start(before_read=renewed)
        await s.zombie()
        await freed(s, FREED_AFTER + NODE_GRACE)
        assert s.decided("waiting", "LeaseSilence") == 1


@virtual()
async def test_a_node_that_renews_its_lease_is_waited_for(sim: Sim) -> None:
    """Its kubelet lives; the taint goes a moment later."""
    async with stage(sim) as s:
        await s.node()
        await s.start()
        await s.zombie()
        for second in range(50, 1000, 10):
            await s.until(second)
            await s.renew()
        assert await s.phase() == "Running"
        await freed(s, 990.1 + NODE_GRACE)


@virtual()
async def test_a_look_that_fails_is_repeated(sim: Sim) -> None:
    async with stage(sim) as s:
        await s.node()
        await s.start(fails_to_read=3)
        await s.zombie()
        # No silence counts from before a moment in which the server did not answer.
        await s.until(FREED_AFTER + NODE_GRACE - 1)
        assert await s.phase() == "Running"
        await s.until(FREED_AFTER + NODE_GRACE + 10)
        assert await s.phase() == "Failed"
        assert len(s.told(zombie.REASON)) == 1

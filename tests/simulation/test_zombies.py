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
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import (
    AnnotationRule,
    FailureRecoveryPolicy,
    TerminatePod,
)
from refloat.sim.faulty_client import nothing
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation.controller_cluster import FAULTS, NAMESPACE
from tests.simulation.recovery_cluster import (
    FREED_AFTER,
    NODE_GRACE,
    SAFE,
    RecoveryCluster,
    healthy_node,
    lost_node,
    lost_pod,
)
from tests.virtual import virtual

MESSAGE = (
    "Pod forcefully terminated after 90s grace period due to unreachable node `n` "
    "(triggered by `kueue.x-k8s.io/safe-to-forcefully-terminate annotation`)"
)
DELETES = FailureRecoveryPolicy(annotated=AnnotationRule(delete_after=timedelta(minutes=10)))
REPORT = FailureRecoveryPolicy(mode="Report")
NEVER = 5000.0
"""Long after anything would have happened."""


async def freed(cluster: RecoveryCluster, seconds: float) -> None:
    """The pod is freed then, and not before."""
    await cluster.until(seconds - 0.5)
    assert await cluster.phase() == "Running"
    await cluster.until(seconds)
    assert await cluster.phase() == "Failed"


async def left_alone(cluster: RecoveryCluster, name: str = "p", until: float = NEVER) -> None:
    before = await cluster.get_pod(name)
    await cluster.until(until)
    assert await cluster.get_pod(name) == before
    assert cluster.event_log.notes(zombie.REASON) == []


# -- when


@virtual(healthy_node, seeds=5)
async def test_a_node_that_is_lost_after_the_pod_was_marked(cluster: RecoveryCluster) -> None:
    """The KEP's second flow."""
    await cluster.zombie()
    await cluster.until(10)
    await cluster.lose()
    await freed(cluster, FREED_AFTER)
    assert cluster.event_log.notes(zombie.REASON) == [MESSAGE]
    assert cluster.decided("terminated", "Annotation") == 1
    assert cluster.sample("refloat_failure_recovery_stuck_seconds_sum") == pytest.approx(60)


@virtual(lost_pod, seeds=5)
async def test_a_node_that_is_lost_before_the_pod_was_marked(cluster: RecoveryCluster) -> None:
    await cluster.until(300)
    await cluster.sleep(0.95)  # a deletionTimestamp has whole seconds
    await cluster.delete("p")
    await freed(cluster, 301 + FREED_AFTER)


@virtual(lost_node)
async def test_what_is_written(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(FREED_AFTER)
    pod = await cluster.get_pod()
    assert [each.type for each in pod.status.conditions or ()] == ["Ready", zombie.CONDITION]
    (condition,) = [e for e in pod.status.conditions or () if e.type == zombie.CONDITION]
    assert (condition.status, condition.reason) == ("True", "KueueForcefullyTerminated")
    assert condition.message == MESSAGE
    assert (pod.status.reason, pod.status.message) == ("", "")
    assert pod.metadata.deletion_grace_period_seconds == 30
    assert cluster.event_log.events == [("Warning", "KueueForcefullyTerminated", MESSAGE)]


@virtual(healthy_node)
async def test_a_node_that_is_tainted_after_the_threshold(cluster: RecoveryCluster) -> None:
    """kueue#10463: nothing else would ever look at the pod again."""
    await cluster.zombie()
    await cluster.until(500)
    assert await cluster.phase() == "Running"
    await cluster.lose()
    await cluster.until(500.1)
    assert await cluster.freed_at() == 500


@virtual(lost_node, seeds=5)
async def test_node_that_recovers_before_the_threshold_keeps_pods(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(60)
    await cluster.recover()
    await left_alone(cluster)
    await cluster.lose()
    await cluster.until(NEVER + 0.1)
    assert await cluster.freed_at() == NEVER


@virtual(lost_node)
async def test_an_annotation_that_is_added_late(cluster: RecoveryCluster) -> None:
    await cluster.zombie(annotations={})
    await cluster.until(200)
    assert await cluster.phase() == "Running"
    await cluster.annotate("p", SAFE)
    await cluster.until(200.1)
    assert await cluster.freed_at() == 200


@virtual(lost_node)
async def test_an_annotation_that_is_taken_back_in_time(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(60)
    await cluster.annotate("p", dict.fromkeys(SAFE))
    await left_alone(cluster)


@virtual(lost_node, seeds=5)
async def test_resumes_when_the_controller_restarts(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(30)
    await cluster.restart()
    await freed(cluster, FREED_AFTER)


@virtual(lost_node)
async def test_what_was_due_while_nobody_looked_is_done_when_its_node_is_seen_silent(
    cluster: RecoveryCluster,
) -> None:
    await cluster.stop()
    await cluster.zombie()
    await cluster.until(1000)
    await cluster.start()
    await freed(cluster, 1000 + NODE_GRACE + 0.05)
    assert cluster.decided("waiting", "LeaseSilence") == 1


@virtual(lost_node, seeds=5)
async def test_node_that_renewed_its_lease_unseen_keeps_its_pods(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(60)
    await cluster.stop()
    await cluster.until(200)
    await cluster.renew()
    await cluster.start()
    await cluster.until(204)
    await cluster.recover()  # the node controller reads nodes every five seconds
    await left_alone(cluster)


@virtual(RecoveryCluster)
async def test_node_that_renews_its_lease_after_a_start_has_time(cluster: RecoveryCluster) -> None:
    await cluster.node()
    await cluster.zombie()
    await cluster.until(200)
    await cluster.start()
    began = cluster.seconds
    await cluster.until(began + 10)
    await cluster.renew()
    await freed(cluster, began + 10 + NODE_GRACE + 0.05)


@virtual(lost_node)
async def test_a_node_that_is_deleted_is_left_to_the_collector(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await cluster.until(60)
    await cluster.client.delete(kinds.NODES, "n")
    await left_alone(cluster)


# -- what is never touched


@cases(
    "how",
    {
        "no annotation": {"annotations": {}},
        "another annotation": {"annotations": {"kueue.x-k8s.io/managed": "true"}},
        "it has failed": {"phase": "Failed"},
        "it has succeeded": {"phase": "Succeeded"},
        "its phase is unknown": {"phase": "Unknown"},
        "its node is well": {"node": "other"},
    },
)
@virtual(RecoveryCluster)
async def test_is_left_alone(cluster: RecoveryCluster, how: Object) -> None:
    await cluster.node()
    await cluster.node("other", lost=False)
    await cluster.start()
    await cluster.zombie(finalizers=["example.com/held"], **how)
    await left_alone(cluster)


@virtual(lost_node)
async def test_a_pod_that_is_not_deleted_is_left_alone(cluster: RecoveryCluster) -> None:
    await cluster.running()
    await left_alone(cluster)


@virtual(RecoveryCluster)
async def test_node_that_says_it_is_not_ready_keeps_its_pods(cluster: RecoveryCluster) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    await cluster.bare_node("n", taints=[taint])
    await cluster.start()
    await cluster.zombie()
    await left_alone(cluster)


@virtual(healthy_node)
async def test_pods_that_hang_on_reachable_node_are_only_counted(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    name = "refloat_failure_recovery_stuck_on_reachable_nodes"
    await cluster.until(FREED_AFTER - 1)
    assert cluster.sample(name) == 0
    await left_alone(cluster, until=FREED_AFTER + 1)
    assert cluster.sample(name) == 1
    await cluster.lose()
    await cluster.until(FREED_AFTER + 2)
    assert cluster.sample(name) == 0


@virtual(lost_node, gates=Gates())
async def test_with_the_gate_off_nothing_is_decided(
    cluster: RecoveryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.zombie()
    await left_alone(cluster)
    assert cluster.event_log.events == []
    assert (
        cluster.decided("ignored", "NotOptedIn") == cluster.decided("terminated", "Annotation") == 0
    )
    assert [each for each in caplog.records if each.levelname == "WARNING"] == []


@virtual(
    RecoveryCluster,
    FailureRecoveryPolicy(
        terminate=(TerminatePod("rules[0]", selectors.parse_labels("a"), timedelta(seconds=1)),)
    ),
    gates=Gates(),
)
async def test_rules_with_the_gate_off_are_a_warning_and_nothing_else(
    cluster: RecoveryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.node()
    await cluster.start()
    await cluster.zombie(labels={"a": "b"})
    await left_alone(cluster)
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    (line,) = warned
    assert "has rules, but the feature gate FailureRecoveryPolicy is off" in line


@virtual(lost_node, gates=Gates())
async def test_the_gate_off_on_off_on(cluster: RecoveryCluster) -> None:
    await cluster.zombie("first")
    await cluster.until(1000)
    assert await cluster.phase("first") == "Running"
    cluster.switch(on=True)
    await cluster.until(1000.1)
    assert await cluster.freed_at("first") == 1000
    await cluster.zombie("second")
    await cluster.until(1050)
    cluster.switch(on=False)
    await cluster.until(3000)
    assert await cluster.phase("second") == "Running"
    cluster.switch(on=True)
    await cluster.until(3000.1)
    assert await cluster.freed_at("second") == 3000


@virtual(lost_node, REPORT)
async def test_a_report_tells_once_and_touches_nothing(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await left_alone(cluster)
    assert cluster.faulty.writes == 0
    (note,) = cluster.event_log.notes("WouldForcefullyTerminate")
    assert "Pod would fail now by force, but failureRecoveryPolicy.mode is Report" in note
    assert cluster.decided("reported", "Annotation") == 1
    cluster.switch(FailureRecoveryPolicy())
    await cluster.until(NEVER + 0.1)
    assert await cluster.freed_at() == NEVER


@virtual(
    lost_node,
    FailureRecoveryPolicy(
        annotated=AnnotationRule(namespaces=selectors.parse_labels("team=batch"))
    ),
)
async def test_a_namespace_that_comes_to_be_selected(cluster: RecoveryCluster) -> None:
    await cluster.zombie()
    await left_alone(cluster, until=500)
    labels = {"metadata": {"labels": {"team": "batch"}}}
    await cluster.client.patch(kinds.NAMESPACES, NAMESPACE, labels)
    await cluster.until(500.1)
    assert await cluster.freed_at() == 500


@virtual()
async def test_a_rule_frees_pods_by_their_labels(sim: Sim) -> None:
    selected = selectors.parse_labels("example.com/pod-safe-to-fail=true")
    rule = TerminatePod("failureRecoveryPolicy.rules[0]", selected, timedelta(minutes=5))
    async with lost_node(sim, FailureRecoveryPolicy(terminate=(rule,))) as cluster:
        await cluster.zombie(annotations={}, labels={"example.com/pod-safe-to-fail": "true"})
        await cluster.zombie("other", annotations={})
        await freed(cluster, 330)
        assert cluster.event_log.notes(zombie.REASON)[0].endswith(
            "by `failureRecoveryPolicy.rules[0] rule`)"
        )
        assert await cluster.phase("other") == "Running"
        assert cluster.decided("ignored", "NotOptedIn") == 1


# -- deleteAfter


@virtual(lost_node, DELETES)
async def test_the_object_goes_after_a_while(cluster: RecoveryCluster) -> None:
    """kueue#9651"""
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 599)
    assert await cluster.phase() == "Failed"
    await cluster.until(FREED_AFTER + 601)
    assert await cluster.phase() == "gone"
    assert len(cluster.event_log.notes("KueueForcefullyDeleted")) == 1
    assert cluster.faulty.writes == 2


@virtual(lost_node, DELETES)
async def test_finalizers_keep_it_and_it_is_deleted_once(cluster: RecoveryCluster) -> None:
    """behaviour C8.5, E1.11"""
    await cluster.zombie(finalizers=["example.com/held"])
    await cluster.until(NEVER)
    pod = await cluster.get_pod()
    assert pod.metadata.deletion_grace_period_seconds == 0
    assert cluster.faulty.writes == 2


@cases(
    "condition",
    {
        "it ended by itself": None,
        "Kueue made it fail, and could not delete it": {
            "type": zombie.CONDITION,
            "status": "True",
            "reason": "KueueForcefullyDeleted",
        },
    },
)
@virtual(lost_node, DELETES)
async def test_a_pod_that_is_over_and_hangs_gets_no_status_and_goes(
    cluster: RecoveryCluster, condition: Object | None
) -> None:
    """kueue#10853: counted from the deletionTimestamp."""
    await cluster.zombie()
    conditions = [condition] if condition else []
    await cluster.status("p", phase="Failed", conditions=conditions)
    before = (await cluster.get_pod()).status
    await cluster.until(30 + 599)
    assert (await cluster.get_pod()).status == before
    await cluster.until(30 + 601)
    assert await cluster.phase() == "gone"
    assert cluster.event_log.notes(zombie.REASON) == []


# -- races


async def _unsafe(cluster: RecoveryCluster, _: Request) -> None:
    await cluster.annotate("p", dict.fromkeys(SAFE))


async def _replaced(cluster: RecoveryCluster, _: Request) -> None:
    options = DeleteOptions(grace_seconds=0)
    await cluster.client.delete(kinds.PODS, "p", namespace=NAMESPACE, options=options)
    await cluster.running()


@cases("race", {"the user takes it back": _unsafe, "another pod gets its name (E4.3)": _replaced})
@virtual(RecoveryCluster)
async def test_what_changes_right_before_the_write_is_not_overwritten(
    cluster: RecoveryCluster, race: Any
) -> None:

    async def before(request: Request) -> None:
        cluster.faulty.before = nothing
        await race(cluster, request)

    await cluster.node()
    await cluster.start(before=before)
    await cluster.zombie()
    await cluster.until(NEVER)
    assert cluster.faulty.writes >= 1
    assert await cluster.phase() == "Running"
    assert cluster.event_log.notes(zombie.REASON) == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", [1, 2])
@virtual(RecoveryCluster, DELETES)
async def test_a_fault_at_any_write_changes_nothing_of_the_end(
    cluster: RecoveryCluster, fault: str, number: int
) -> None:
    """Killed before and after each write, an answer lost, a conflict."""
    await cluster.node()
    cluster.began = cluster.sim.clock.monotonic()
    await cluster.zombie(finalizers=["example.com/held"])
    await FAULTS[fault](cluster, number, 800.0)
    await cluster.until(1700)
    pod = await cluster.get_pod()
    assert pod.status.phase == "Failed"
    assert pod.metadata.deletion_grace_period_seconds == 0
    again = fault == "dies before" and number == 1  # the controller restarts at 800
    freed_at = 800 + NODE_GRACE if again else FREED_AFTER
    assert await cluster.freed_at() == pytest.approx(freed_at, abs=2)
    if not fault.startswith("dies"):
        assert len(cluster.event_log.notes(zombie.REASON)) == 1


@virtual(RecoveryCluster)
async def test_node_back_before_the_cache_knows_keeps_its_pods(cluster: RecoveryCluster) -> None:

    async def back(request: Request) -> None:
        if "/nodes/" in request.path:
            cluster.faulty.before_read = nothing
            await cluster.recover()

    await cluster.node()
    await cluster.start(before_read=back)
    await cluster.zombie()
    await left_alone(cluster)
    assert cluster.decided("ignored", "NodeReachable") >= 1


@virtual(RecoveryCluster)
async def test_lease_that_moves_right_before_write_keeps_the_pod(cluster: RecoveryCluster) -> None:
    """And if nothing more happens, the pod is freed when the node is silent again."""

    async def renewed(request: Request) -> None:
        if "/leases/" in request.path:
            cluster.faulty.before_read = nothing
            await cluster.renew()

    await cluster.node()
    await cluster.start(before_read=renewed)
    await cluster.zombie()
    await freed(cluster, FREED_AFTER + NODE_GRACE)
    assert cluster.decided("waiting", "LeaseSilence") == 1


@virtual(lost_node)
async def test_a_node_that_renews_its_lease_is_waited_for(cluster: RecoveryCluster) -> None:
    """Its kubelet lives; the taint goes a moment later."""
    await cluster.zombie()
    for second in range(50, 1000, 10):
        await cluster.until(second)
        await cluster.renew()
    assert await cluster.phase() == "Running"
    await freed(cluster, 990.1 + NODE_GRACE)


@virtual(RecoveryCluster)
async def test_a_look_that_fails_is_repeated(cluster: RecoveryCluster) -> None:
    await cluster.node()
    await cluster.start(fails_to_read=3)
    await cluster.zombie()
    # No silence counts from before a moment in which the server did not answer.
    await cluster.until(FREED_AFTER + NODE_GRACE - 1)
    assert await cluster.phase() == "Running"
    await cluster.until(FREED_AFTER + NODE_GRACE + 10)
    assert await cluster.phase() == "Failed"
    assert len(cluster.event_log.notes(zombie.REASON)) == 1

# SPDX-License-Identifier: Apache-2.0
"""What changes while a node is looked at, and what only the look can see."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Generic, TypeAlias, TypeVar

import pytest

from refloat.client import errors, kinds
from refloat.client.contract import Kind, Watch, WatchEvent
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.policy.recovery import out_of_service, zombie
from refloat.policy.recovery.failure_recovery import (
    AnnotationRule,
    Budget,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
)
from refloat.sim.faulty_client import nothing
from tests.cases import cases
from tests.simulation.recovery_cluster import FREED_AFTER, NODE_GRACE, SAFE, RecoveryCluster
from tests.virtual import virtual

T = TypeVar("T")

TAINT_AFTER = 600
TAINTING = FailureRecoveryPolicy(
    taint=(TaintNodeOutOfService("rules[0]", timedelta(seconds=TAINT_AFTER)),)
)
HOURLY = FailureRecoveryPolicy(budget=Budget(1, timedelta(hours=1)))
AT_ONCE = FailureRecoveryPolicy(annotated=AnnotationRule(delete_after=timedelta(minutes=1)))
LOOK_SECONDS = 10
EXPIRED = errors.Expired("too old resource version")


# -- gate, mode and hold

Change: TypeAlias = Callable[[RecoveryCluster], Awaitable[None]]


async def _off(cluster: RecoveryCluster) -> None:
    cluster.switch(on=False)


async def _report(cluster: RecoveryCluster) -> None:
    cluster.switch(replace(cluster.policy, mode="Report"))


async def _on(cluster: RecoveryCluster) -> None:
    cluster.switch()


async def _lost(cluster: RecoveryCluster) -> None:
    await cluster.lose("n1")
    await cluster.lose("n2")


async def _found(cluster: RecoveryCluster) -> None:
    await cluster.recover("n1")


CHANGES = cases(
    "change undo",
    {
        "the gate is switched off": (_off, _on),
        "the mode becomes Report": (_report, _on),
        "too many nodes are lost": (_lost, _found),
    },
)


async def looked_at_slowly(cluster: RecoveryCluster, change: Change) -> None:
    """Start; while the node is looked at for the first time, something changes."""

    async def slowly(request: Request) -> None:
        if "/nodes/" in request.path:
            cluster.faulty.before_read = nothing
            await change(cluster)
            await cluster.sleep(2)

    await cluster.node()
    for name in ("n1", "n2"):
        await cluster.node(name, lost=False)
    await cluster.start(before_read=slowly)


@CHANGES
@virtual(RecoveryCluster, HOURLY)
async def test_what_changes_while_a_node_is_looked_at_keeps_its_pod(
    cluster: RecoveryCluster, change: Change, undo: Change
) -> None:
    """And the slot of the budget is there when the pod may be forced again."""
    await looked_at_slowly(cluster, change)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 100)
    assert await cluster.phase() == "Running"
    assert cluster.faulty.writes == 0
    assert cluster.decided("terminated", "Annotation") == 0
    await undo(cluster)
    await cluster.until(FREED_AFTER + 101)
    assert await cluster.freed_at() == FREED_AFTER + 100


@CHANGES
@virtual(RecoveryCluster, AT_ONCE)
async def test_what_changes_while_a_node_is_looked_at_keeps_its_object(
    cluster: RecoveryCluster, change: Change, undo: Change
) -> None:
    await looked_at_slowly(cluster, change)
    await cluster.zombie()
    await cluster.status("p", phase="Succeeded")
    await cluster.until(FREED_AFTER + 100)
    assert await cluster.phase() == "Succeeded"
    assert cluster.faulty.writes == 0
    await undo(cluster)
    await cluster.until(FREED_AFTER + 101)
    assert await cluster.phase() == "gone"


@CHANGES
@virtual(RecoveryCluster, TAINTING)
async def test_what_changes_while_a_node_is_looked_at_keeps_it_in_service(
    cluster: RecoveryCluster, change: Change, undo: Change
) -> None:
    await looked_at_slowly(cluster, change)
    await cluster.running()
    await cluster.until(TAINT_AFTER + 100)
    assert cluster.faulty.writes == 0
    assert cluster.event_log.notes("FailureRecoveryTaintedNode") == []
    await undo(cluster)
    await cluster.until(TAINT_AFTER + 101)
    assert len(cluster.event_log.notes("FailureRecoveryTaintedNode")) == 1


@virtual(RecoveryCluster, TAINTING)
async def test_gate_switched_off_during_the_look_leaves_the_taint(cluster: RecoveryCluster) -> None:
    ours = {"key": "node.kubernetes.io/out-of-service", "value": out_of_service.OURS}

    async def slowly(request: Request) -> None:
        cluster.faulty.before_read = nothing
        cluster.switch(on=False)
        await cluster.sleep(2)

    await cluster.node(lost=False)
    await cluster.start(before_read=slowly)
    await cluster.taint("n", {**ours, "effect": "NoExecute"})
    await cluster.until(60)
    assert cluster.faulty.writes == 0


@virtual(RecoveryCluster)
async def test_a_pod_that_is_kept_in_mode_report_is_told_of(cluster: RecoveryCluster) -> None:
    await looked_at_slowly(cluster, _report)
    await cluster.zombie()
    await cluster.until(FREED_AFTER + 100)
    assert len(cluster.event_log.notes("WouldForcefullyTerminate")) == 1


# -- caches that are behind


class Cut(LocalClient):
    """Watches of one kind send nothing while cut; then the cache lists again."""

    def __init__(
        self, cluster: RecoveryCluster, cut: Kind[T], error: errors.ClientError = EXPIRED
    ) -> None:
        super().__init__(cluster.server, field_manager="test")
        self._cut = cut.resource
        self.error = error
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def _open(self, request: Request, kind: Kind[T]) -> Watch[T]:
        watch = super()._open(request, kind)
        if kind.resource != self._cut:
            return watch
        return CutWatch(watch, self.goes_on, self.error)


class CutWatch(Generic[T]):
    def __init__(self, watch: Watch[T], goes_on: asyncio.Event, error: errors.ClientError) -> None:
        self._watch = watch
        self._goes_on = goes_on
        self._error = error

    def __aiter__(self) -> "CutWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        event = await self._watch.__anext__()
        if not self._goes_on.is_set():
            await self._goes_on.wait()
            raise self._error
        return event

    async def aclose(self) -> None:
        await self._watch.aclose()


async def _takes_it_back(cluster: RecoveryCluster) -> None:
    await cluster.annotate("p", dict.fromkeys(SAFE))


async def _is_bound(cluster: RecoveryCluster) -> None:
    await cluster.running("other", annotations={})


@cases(
    "change",
    {"its user takes the opt-in back": _takes_it_back, "another is bound to the node": _is_bound},
)
@virtual(RecoveryCluster, TAINTING)
async def test_a_pod_that_the_cache_does_not_know_keeps_its_node_in_service(
    cluster: RecoveryCluster, change: Change
) -> None:
    cluster.reader = cut = Cut(cluster, kinds.PODS)
    await cluster.node()
    await cluster.running()
    await cluster.start()
    await cluster.until(500)
    cut.goes_on.clear()
    await change(cluster)
    await cluster.until(TAINT_AFTER + 100)
    assert cluster.faulty.writes == 0
    assert cluster.decided("ignored", "PodNotOptedIn", "node") == 1


@virtual(RecoveryCluster, TAINTING)
async def test_node_whose_pods_opt_in_later_is_tainted_then(cluster: RecoveryCluster) -> None:
    cluster.reader = cut = Cut(cluster, kinds.PODS)
    await cluster.node()
    await cluster.running()
    await cluster.start()
    await cluster.until(500)
    cut.goes_on.clear()
    await _takes_it_back(cluster)
    await cluster.until(TAINT_AFTER + 5)
    await cluster.annotate("p", SAFE)
    await cluster.until(TAINT_AFTER + LOOK_SECONDS + 1)
    assert len(cluster.event_log.notes("FailureRecoveryTaintedNode")) == 1


@pytest.mark.parametrize("over", [False, True], ids=["to be freed", "to be deleted"])
@virtual(RecoveryCluster, AT_ONCE)
async def test_a_pod_is_not_forgotten_that_only_the_look_kept(
    cluster: RecoveryCluster, over: bool
) -> None:
    """The node was back for a moment, and no watch ever shows that."""
    cluster.reader = cut = Cut(cluster, kinds.NODES)
    await cluster.node()
    await cluster.start()
    await cluster.zombie()
    if over:
        await cluster.status("p", phase="Succeeded")
    await cluster.until(FREED_AFTER - 5)
    cut.goes_on.clear()
    await cluster.recover()
    await cluster.until(FREED_AFTER + 1)
    assert await cluster.phase() == ("Succeeded" if over else "Running")
    assert cluster.decided("ignored", "NodeReachable") == 1
    await cluster.lose()
    cut.goes_on.set()
    await cluster.until(FREED_AFTER + LOOK_SECONDS + 1)
    assert await cluster.phase() == ("gone" if over else "Failed")


@virtual(RecoveryCluster)
async def test_a_pod_whose_node_is_back_for_good_is_left_alone(cluster: RecoveryCluster) -> None:
    cluster.reader = cut = Cut(cluster, kinds.NODES)
    await cluster.node()
    await cluster.start()
    await cluster.zombie()
    await cluster.until(FREED_AFTER - 5)
    cut.goes_on.clear()
    await cluster.recover()
    await cluster.until(FREED_AFTER + 1)
    cut.goes_on.set()
    await cluster.until(5000)
    assert await cluster.phase() == "Running"
    assert cluster.event_log.notes(zombie.REASON) == []
    assert cluster.decided("ignored", "NodeReachable") == 1


@virtual(RecoveryCluster, seeds=3)
async def test_silence_before_an_outage_of_server_is_not_counted(cluster: RecoveryCluster) -> None:
    """While the server is out no node can renew its Lease, so silence proves nothing."""
    cluster.reader = cut = Cut(cluster, kinds.LEASES, errors.Unavailable("the connection broke"))
    await cluster.node()
    await cluster.node("n1", lost=False)
    await cluster.start()
    await cluster.zombie()
    await cluster.until(70)
    cut.goes_on.clear()
    await cluster.renew("n1")
    await cluster.until(80)
    cut.goes_on.set()
    await cluster.until(80 + NODE_GRACE - 1)
    assert await cluster.phase() == "Running"
    assert cluster.decided("waiting", "LeaseSilence") == 1
    await cluster.until(80 + NODE_GRACE + 5)
    assert await cluster.phase() == "Failed"

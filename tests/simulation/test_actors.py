# SPDX-License-Identifier: Apache-2.0
"""Several processes on one cluster, of which one forces: virtual time, a real API server."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from refloat.apiserver.local_server import LocalConnection
from refloat.app import actor_publisher, controller_names, controller_table
from refloat.app.actor_publisher import ActorPublisher
from refloat.app.controller_env import EmbeddedEnv
from refloat.app.controller_names import ControllerSelection
from refloat.base.clock import Clock
from refloat.base.gates import FAILURE_RECOVERY_POLICY, TAINT_FORCE_EVICTION, Gates
from refloat.client import kinds
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.config import actors
from refloat.config.actors import Actor
from refloat.policy.recovery import zombie
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.manager import Manager, Parts
from refloat.sim.run import Sim
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.recovery_cluster import FREED_AFTER, RecoveryCluster, zombies
from tests.virtual import virtual

GATES = Gates({FAILURE_RECOVERY_POLICY: True, TAINT_FORCE_EVICTION: True})
BOTH = (controller_names.FAILURE_RECOVERY, controller_names.FORCE_EVICTION)
TAKE_OVER_SECONDS = 15 + 2 * 4.4
"""The duration of the Lease, and two tries."""


class ActorClient(LocalClient):
    """Takes a while, and can be cut: a broken network, or a process that stands still."""

    def __init__(self, api: LocalConnection, clock: Clock) -> None:
        super().__init__(api, field_manager="test")
        self._clock = clock
        self.whole = asyncio.Event()
        self.whole.set()
        self.forced: list[str] = []  # paths of writes to pods

    async def _call(self, request: Request) -> bytes:
        if request.method in ("PATCH", "DELETE") and "/pods/" in request.path:
            self.forced.append(request.path)
        await self._clock.sleep(0.1)
        await self.whole.wait()
        try:
            return await super()._call(request)
        finally:
            await self._clock.sleep(0.1)


class ActorProcess(EmbeddedEnv):
    """The controllers that force, in one process, as `refloat up` makes them."""

    def __init__(
        self, cluster: RecoveryCluster, identity: str, policy: FailureRecoveryPolicy
    ) -> None:
        self.wire = ActorClient(cluster.server, cluster.sim.clock)
        super().__init__(
            lambda _: self.wire,
            ControllerSelection(BOTH),
            gates=GATES,
            clock=cluster.sim.clock,
            rand=cluster.sim.rand,
            registry=CollectorRegistry(),
            recovery=policy,
            identity_in_elections=identity,
        )
        workers = controller_table.build(self, BOTH)
        parts = Parts(self.informers, workers, self.recorders, candidates=self.candidates)
        self._manager = Manager(parts, clock=cluster.sim.clock)
        self._task = asyncio.ensure_future(self._manager.run())

    @property
    def leads(self) -> list[bool]:
        return [each.leads for each in self.candidates]

    def state(self, state: str) -> float | None:
        labels = {"controller": controller_names.FAILURE_RECOVERY, "state": state}
        return self.registry.get_sample_value("refloat_actor_state", labels)

    async def stop(self) -> None:
        self.wire.whole.set()
        self._manager.stop()
        await self._task


class ActorProcesses(contextlib.AsyncExitStack):
    """All processes of a test; the test ends them."""

    def __init__(self, cluster: RecoveryCluster) -> None:
        super().__init__()
        self._cluster = cluster

    async def start(
        self, identity: str, policy: FailureRecoveryPolicy | None = None, *, seconds: float = 1
    ) -> ActorProcess:
        process = ActorProcess(self._cluster, identity, policy or FailureRecoveryPolicy())
        self.push_async_callback(process.stop)
        await self._cluster.sim.clock.sleep(seconds)
        return process


@contextlib.asynccontextmanager
async def processes(sim: Sim) -> AsyncIterator[tuple[RecoveryCluster, ActorProcesses]]:
    async with RecoveryCluster(sim, gates=GATES) as cluster, ActorProcesses(cluster) as running:
        yield cluster, running


def actions(caplog: pytest.LogCaptureFixture, action: str) -> list[str]:
    """The pods of the audit records of an action."""
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    return sorted(each["pod"] for each in fields if each.get("action") == action)


async def warnings(cluster: RecoveryCluster) -> list[str]:
    """The names of pods, once for each event that says that the pod was ended by force."""
    pages = cluster.client.list(kinds.EVENTS, namespace=NAMESPACE)
    events = [each async for page in pages for each in page.items]
    counts = {each.regarding.name: 0 for each in events if each.reason == zombie.REASON}
    for each in events:
        if each.reason == zombie.REASON:
            counts[each.regarding.name] += 1 if each.series is None else each.series.count
    return sorted(name for name, count in counts.items() for _ in range(count))


@virtual(seeds=3)
async def test_of_three_processes_one_ends_each_pod_and_records_it_once(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    async with processes(sim) as (cluster, running):
        await cluster.node()
        three = [await running.start(each) for each in ("refloat-up", "manager-a", "manager-b")]
        names = sorted(await zombies(cluster, 20))
        await sim.clock.sleep(FREED_AFTER + 30)
        assert {await cluster.phase(name) for name in names} == {"Failed"}
        assert actions(caplog, "terminated") == [f"{NAMESPACE}/{name}" for name in names]
        assert await warnings(cluster) == names
        assert [len(each.wire.forced) for each in three] == [len(names), 0, 0]


@virtual()
async def test_a_standby_takes_over_when_the_leader_is_gone(sim: Sim) -> None:
    async with processes(sim) as (cluster, running):
        await cluster.node()
        first, second = await running.start("a"), await running.start("b")
        assert (first.leads, second.leads) == ([True, True], [False, False])
        await cluster.zombie()
        first.wire.whole.clear()
        await sim.clock.sleep(TAKE_OVER_SECONDS)
        assert (first.leads, second.leads) == ([False, False], [True, True])
        await sim.clock.sleep(FREED_AFTER)
        assert await cluster.phase() == "Failed"


@virtual()
async def test_a_leader_that_lost_its_lease_stands_by_and_may_lead_again(sim: Sim) -> None:
    async with processes(sim) as (cluster, running):
        await cluster.node()
        first, second = await running.start("a"), await running.start("b")
        first.wire.whole.clear()
        await sim.clock.sleep(TAKE_OVER_SECONDS)
        first.wire.whole.set()
        await sim.clock.sleep(60)
        assert (first.leads, second.leads) == ([False, False], [True, True])
        assert (first.state("standby"), second.state("leader")) == (1, 1)
        second.wire.whole.clear()
        await sim.clock.sleep(TAKE_OVER_SECONDS)
        assert first.leads == [True, True]
        await cluster.zombie()
        await sim.clock.sleep(FREED_AFTER + 30)
        assert await cluster.phase() == "Failed"


@virtual()
async def test_a_standby_says_so_once_in_its_log_and_always_in_its_state(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    async with processes(sim) as (_, running):
        await running.start("a")
        caplog.clear()
        standby = await running.start("b", seconds=600)
        messages = [each.getMessage() for each in caplog.records]
        lines = sorted(each for each in messages if "standby" in each)
        assert lines == [
            f"{name}: standby: a leads by the Lease kube-system/{actors.LEASES[name]}"
            for name in BOTH
        ]
        assert [each.describe() for each in standby.candidates] == ["standby; a leads"] * 2
        assert [each.why_unhealthy() for each in standby.candidates] == [None, None]
        assert (standby.state("leader"), standby.state("standby")) == (0, 1)


@virtual()
async def test_a_process_that_stops_lets_the_next_one_lead_at_once(sim: Sim) -> None:
    async with processes(sim) as (_, running):
        first, second = await running.start("a"), await running.start("b")
        await first.stop()
        await sim.clock.sleep(5)
        assert second.leads == [True, True]


@virtual()
async def test_an_embedded_cluster_leads_at_once_after_it_was_killed(sim: Sim) -> None:
    async with processes(sim) as (_, running):
        killed = await running.start(actor_publisher.EMBEDDED)
        killed.wire.whole.clear()
        again = await running.start(actor_publisher.EMBEDDED)
        assert again.leads == [True, True]


@virtual()
async def test_a_process_in_mode_report_reports_beside_the_leader_and_never_leads(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with processes(sim) as (cluster, running):
        await cluster.node()
        report = await running.start("a", FailureRecoveryPolicy(mode="Report"))
        acting = await running.start("b")
        assert (report.leads[0], acting.leads[0]) == (False, True)
        assert (report.state("off"), acting.state("leader")) == (1, 1)
        caplog.clear()
        await cluster.zombie()
        await sim.clock.sleep(FREED_AFTER + 30)
        assert await cluster.phase() == "Failed"
        assert actions(caplog, "terminated") == [f"{NAMESPACE}/p"]
        assert actions(caplog, "reported") == [f"{NAMESPACE}/p"]


def publisher(cluster: RecoveryCluster, identity: str) -> ActorPublisher:
    actor = Actor(identity, "manager", cluster.sim.clock.now(), BOTH)
    return ActorPublisher(cluster.client, actor, dict, cluster.sim.clock)


async def records(cluster: RecoveryCluster) -> list[Actor]:
    config_map = await cluster.client.get(
        kinds.CONFIG_MAPS, actors.NAME, namespace=actors.NAMESPACE
    )
    return actors.read(config_map.data)


@virtual(RecoveryCluster)
async def test_a_record_is_renewed_while_its_process_lives_and_says_when_it_ends(
    cluster: RecoveryCluster,
) -> None:
    one = publisher(cluster, "a")
    one.start()
    await cluster.sleep(3600)
    (record,) = await records(cluster)
    assert record.is_alive(cluster.sim.clock.now())
    await one.stop()
    (record,) = await records(cluster)
    assert record.stopped
    assert record.seen == cluster.sim.clock.now()


@virtual(RecoveryCluster)
async def test_records_of_processes_that_are_gone_stay_bounded(cluster: RecoveryCluster) -> None:
    """A process that starts again and again has another identity each time."""
    for number in range(2 * actors.MAX_RECORDS):
        each = publisher(cluster, f"a-{number}")
        each.start()
        await cluster.sleep(10)
        await each.stop()
    last = publisher(cluster, "last")
    last.start()
    await cluster.sleep(actors.HEARTBEAT_SECONDS + 1)
    actors_after = await records(cluster)
    assert len(actors_after) == actors.MAX_RECORDS
    assert actors_after[0].identity == "last"
    await last.stop()

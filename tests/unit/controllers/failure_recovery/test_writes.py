# SPDX-License-Identifier: Apache-2.0
"""The client does not repeat a forced write long after the evidence for this write."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from refloat.api.coordination import Lease
from refloat.api.core import Namespace, Node, Pod
from refloat.base.rand import Rand
from refloat.client import cluster_access
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.recovery_state import PodCaches, RecoveryState
from refloat.controllers.failure_recovery.settings import FailureRecoverySettings
from refloat.controllers.failure_recovery.writes import LateWrite, RecoveryWriter
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.runtime.cache import Cache
from refloat.runtime.errors import LeadershipLost
from refloat.runtime.guard import Guard
from refloat.runtime.missing_rights import Rights
from refloat.sim.event_log import EventLog
from tests import builders
from tests.clocks import ManualClock
from tests.unit.client.misbehaving import Act, Misbehaving, obj, serving, status

BUSY = status(429, "TooManyRequests", Retry_After=5)
POD = builders.pod(uid="u", namespace="n", resourceVersion="7")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODE = builders.node(uid="u", resourceVersion="7")


class Leader:
    leads = True

    def check(self) -> None:
        if not self.leads:
            raise LeadershipLost("somebody else leads")


@pytest.fixture
async def server() -> AsyncIterator[Misbehaving]:
    async with serving(None) as running:
        yield running


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(jumps=True)


@pytest.fixture
def state(clock: ManualClock) -> RecoveryState:
    state = RecoveryState(
        PodCaches([]), Cache[Node](), Cache[Namespace](), clock, node_leases=Cache[Lease]()
    )
    state.settings = FailureRecoverySettings(enabled=True)
    return state


@pytest.fixture
async def writes(
    server: Misbehaving, leader: Leader, clock: ManualClock, state: RecoveryState
) -> AsyncIterator[RecoveryWriter]:
    where = cluster_access.Access(cluster_access.ClusterEndpoint(server.url), cluster_access.User())
    settings = ClientSettings(component="test", qps=0)
    client = HttpClient(where, clock=clock, rand=Rand(1), settings=settings)
    metrics = FailureRecoveryMetrics(CollectorRegistry())
    rights = Rights("test", metrics.missing_rights, EventLog())
    yield RecoveryWriter(Guard(client, leader.check), clock, state, rights)
    await client.close()


def fail(writes: RecoveryWriter) -> Awaitable[None]:
    return writes.fail(msgspec.convert(POD, Pod), "m", now=NOW, says_why=False)


FORCING: dict[str, Callable[[RecoveryWriter], Awaitable[None]]] = {
    "fail": fail,
    "delete": lambda writes: writes.delete(msgspec.convert(POD, Pod)),
    "taint": lambda writes: writes.taint(msgspec.convert(NODE, Node), now="2026-01-01T00:00:00Z"),
}


@pytest.mark.parametrize("what", FORCING)
async def test_what_a_busy_server_puts_off_for_long_is_not_sent_again(
    server: Misbehaving, writes: RecoveryWriter, what: str
) -> None:
    server.will(BUSY)
    with pytest.raises(LateWrite) as late:
        await FORCING[what](writes)
    assert late.value.was_sent
    assert len(server.seen) == 1


OFF = FailureRecoverySettings(enabled=False)
REPORT = FailureRecoverySettings(enabled=True, policy=FailureRecoveryPolicy(mode="Report"))


def busy_while(state: RecoveryState, settings: FailureRecoverySettings) -> Act:
    """The server answers with a retry after one second; during this the settings change."""

    async def act(served: Misbehaving, writer: asyncio.StreamWriter) -> None:
        state.settings = settings
        await status(429, "TooManyRequests", Retry_After=1)(served, writer)

    return act


@pytest.mark.parametrize("settings", [OFF, REPORT], ids=["the gate is off", "the mode is Report"])
@pytest.mark.parametrize("what", FORCING)
async def test_what_may_not_be_forced_any_more_is_not_sent_again(
    server: Misbehaving,
    writes: RecoveryWriter,
    state: RecoveryState,
    what: str,
    settings: FailureRecoverySettings,
) -> None:
    server.will(busy_while(state, settings))
    with pytest.raises(LateWrite, match="nothing may be forced any more") as late:
        await FORCING[what](writes)
    assert late.value.was_sent
    assert len(server.seen) == 1


async def test_a_taint_is_taken_back_in_mode_report(
    server: Misbehaving, writes: RecoveryWriter, state: RecoveryState
) -> None:
    server.will(busy_while(state, REPORT), obj(NODE))
    await writes.untaint(msgspec.convert(NODE, Node))
    assert len(server.seen) == 2


async def test_a_taint_is_not_taken_back_with_the_gate_off(
    server: Misbehaving, writes: RecoveryWriter, state: RecoveryState
) -> None:
    server.will(busy_while(state, OFF))
    with pytest.raises(LateWrite, match="nothing is taken back any more"):
        await writes.untaint(msgspec.convert(NODE, Node))
    assert len(server.seen) == 1


async def test_what_is_put_off_for_a_moment_is_sent_again(
    server: Misbehaving, writes: RecoveryWriter
) -> None:
    server.will(status(429, "TooManyRequests", Retry_After=1), obj(POD))
    await fail(writes)
    assert len(server.seen) == 2


async def test_a_taint_is_taken_back_however_long_it_takes(
    server: Misbehaving, writes: RecoveryWriter
) -> None:
    server.will(BUSY, obj(NODE))
    await writes.untaint(msgspec.convert(NODE, Node))
    assert len(server.seen) == 2


async def test_leadership_is_still_asked_for(
    server: Misbehaving, writes: RecoveryWriter, leader: Leader
) -> None:
    async def deposed(served: Misbehaving, writer: object) -> None:
        leader.leads = False
        await status(429, "TooManyRequests", Retry_After=1)(served, writer)  # type: ignore[arg-type]

    server.will(deposed)
    with pytest.raises(LeadershipLost):
        await fail(writes)
    assert len(server.seen) == 1

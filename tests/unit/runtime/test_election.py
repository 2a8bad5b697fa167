# SPDX-License-Identifier: Apache-2.0
"""Who leads, since when, and until when; `tests/property/test_election.py` has any order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from refloat.api import times
from refloat.api.meta import Object
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.kinds import LEASES
from refloat.runtime.election import ElectionMetrics, ElectionSettings, Elector
from refloat.runtime.errors import BadElection, LeadershipLost
from refloat.sim.run import Sim
from tests.unit.runtime.clusters import RegistryCluster
from tests.unit.runtime.processes import ElectionProcess
from tests.virtual import virtual


def spec(cluster: RegistryCluster) -> Object:
    lease: Object = cluster.world.get(LEASES.resource, "refloat", namespace="kube-system")["spec"]
    return lease


class Two:
    """Two contenders for one Lease."""

    def __init__(self, sim: Sim, cluster: RegistryCluster) -> None:
        self.sim = sim
        self.cluster = cluster
        self.a = ElectionProcess("a", self.cluster, sim.clock, Rand(1))
        self.b = ElectionProcess("b", self.cluster, sim.clock, Rand(2))

    async def take_over(self) -> float:
        """How long it takes until the second leads."""
        started = self.sim.clock.monotonic()
        await self.b.elector.acquire()
        return self.sim.clock.monotonic() - started

    async def close(self) -> None:
        for each in (self.a, self.b):
            await each.elector.close()


@asynccontextmanager
async def leading(sim: Sim) -> AsyncIterator[Two]:
    """Two contenders, of which the first leads; both are closed when the test has passed."""
    two = Two(sim, await RegistryCluster.started())
    await two.a.elector.acquire()
    yield two
    await two.close()


@virtual(leading)
async def test_the_first_leads_at_once_and_writes_what_kubernetes_writes(two: Two) -> None:
    assert two.a.elector.leads
    assert two.sim.clock.monotonic() == 0
    assert spec(two.cluster) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }


@virtual(leading)
async def test_a_renewal_keeps_the_time_of_acquisition(two: Two) -> None:
    await two.sim.clock.sleep(61)
    lease = spec(two.cluster)
    assert lease["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert lease["renewTime"] == "2026-01-01T00:01:00.000000Z"
    assert lease["leaseTransitions"] == 0
    assert two.a.elector.leads


@virtual(leading)
async def test_while_one_renews_no_other_leads(two: Two) -> None:
    waiting = asyncio.ensure_future(two.b.elector.acquire())
    await two.sim.clock.sleep(3600)
    assert not waiting.done()
    assert not two.b.elector.leads
    with pytest.raises(LeadershipLost, match="refloat: not the leader"):
        two.b.elector.check()
    waiting.cancel()


@virtual(leading)
async def test_when_a_leader_dies_another_takes_over_after_the_lease(two: Two) -> None:
    await two.a.elector.close()
    waited = await two.take_over()
    assert 15 <= waited <= 15 + 2 * 2.2 * 2
    assert two.b.elector.holder == "b"
    assert spec(two.cluster)["leaseTransitions"] == 1
    assert spec(two.cluster)["acquireTime"] == times.format_micro(two.sim.clock.now())


@virtual(leading, seeds=20)
async def test_of_two_that_find_it_free_at_the_same_moment_one_leads(two: Two) -> None:
    await two.a.elector.close()
    rivals = [ElectionProcess(name, two.cluster, two.sim.clock, Rand(7)) for name in ("c", "d")]
    for each in rivals:
        each.client.latency = 0.5  # between the look and the claim of each
    waiting = [asyncio.ensure_future(each.elector.acquire()) for each in rivals]
    await two.sim.clock.sleep(60)
    assert sum(each.elector.leads for each in rivals) == 1
    for task in waiting:
        task.cancel()
    for each in rivals:
        await each.elector.close()


@virtual()
async def test_times_inside_the_lease_decide_nothing(sim: Sim) -> None:
    """A leader whose clock is an hour slow still leads; one an hour ahead still expires."""
    for wall_offset in (-3600.0, 3600.0):
        two = Two(sim, await RegistryCluster.started())
        two.a.clock.wall_offset = wall_offset
        await two.a.elector.acquire()
        waiting = asyncio.ensure_future(two.b.elector.acquire())
        await sim.clock.sleep(60)
        assert not waiting.done()
        await two.a.elector.close()
        await waiting
        await two.close()


@virtual(leading)
async def test_a_wall_clock_that_stands_still_does_not_stop_renewals(two: Two) -> None:
    waiting = asyncio.ensure_future(two.b.elector.acquire())
    for _ in range(120):
        two.a.clock.wall_offset = -two.sim.clock.monotonic()
        await two.sim.clock.sleep(0.5)
    assert not waiting.done()
    assert two.a.elector.leads
    waiting.cancel()


@virtual(leading)
async def test_release_lets_the_next_one_lead_without_a_wait(two: Two) -> None:
    await two.sim.clock.sleep(7)
    await two.a.elector.release()
    assert not two.a.elector.leads
    lease = spec(two.cluster)
    assert "holderIdentity" not in lease
    assert lease["leaseDurationSeconds"] == 1
    assert await two.take_over() == 0
    assert spec(two.cluster)["leaseTransitions"] == 1


@virtual(leading)
async def test_release_does_not_touch_the_lease_of_another(two: Two) -> None:
    await two.a.elector.close()
    await two.take_over()
    await two.a.elector.release()
    assert spec(two.cluster)["holderIdentity"] == "b"


@virtual(leading)
async def test_a_release_without_an_answer_ends_in_time(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    two.a.client.hangs = True
    await two.a.elector.release()
    assert two.sim.clock.monotonic() == 5
    assert "refloat: not released: no answer" in caplog.text


@virtual(leading)
async def test_a_leader_whose_api_hangs_stops_at_its_deadline(two: Two) -> None:
    await two.sim.clock.sleep(3)  # renewed at 2
    two.a.client.hangs = True
    error = await two.a.elector.lost()
    assert two.sim.clock.monotonic() == 12
    assert str(error) == "refloat: leadership lost: not renewed in time"
    assert not two.a.elector.leads


@virtual()
async def test_a_leader_counts_its_deadline_from_the_sending_and_not_from_the_answer(
    sim: Sim,
) -> None:
    """A standby counts from when it saw the write, which may be long before the answer."""
    two = Two(sim, await RegistryCluster.started())
    two.a.client.latency = 2
    await two.a.elector.acquire()  # asked at 0, sent at 2, answered at 4
    assert sim.clock.monotonic() == 4
    two.a.client.hangs = True
    await two.a.elector.lost()
    assert sim.clock.monotonic() == 12
    await two.close()


@virtual(leading)
async def test_a_renewal_moves_the_deadline_to_its_sending(two: Two) -> None:
    two.a.client.latency = 4
    await two.sim.clock.sleep(7)  # sent at 2, answered at 6
    two.a.client.hangs = True
    await two.a.elector.lost()
    assert two.sim.clock.monotonic() == 12


FAILURES = [
    pytest.param(errors.Unavailable("connection reset"), id="away"),
    pytest.param(errors.Timeout("no answer"), id="timeout"),
    pytest.param(errors.Forbidden("no right"), id="forbidden"),
    pytest.param(errors.TooManyRequests("slow down"), id="throttled"),
]


@pytest.mark.parametrize("failure", FAILURES)
@virtual(leading)
async def test_a_leader_survives_failures_that_are_shorter_than_its_deadline(
    two: Two, failure: Exception
) -> None:
    two.a.client.down = failure
    await two.sim.clock.sleep(7)
    two.a.client.down = None
    await two.sim.clock.sleep(60)
    assert two.a.elector.leads


@pytest.mark.parametrize("failure", FAILURES)
@virtual(leading)
async def test_a_leader_does_not_survive_longer_ones(two: Two, failure: Exception) -> None:
    two.a.client.down = failure
    await two.a.elector.lost()
    assert two.sim.clock.monotonic() == 10
    two.a.client.down = None
    await two.sim.clock.sleep(60)
    assert not two.a.elector.leads, "what is lost stays lost"


@virtual(leading)
async def test_a_renewal_whose_answer_was_lost_is_done_again(two: Two) -> None:
    two.a.client.lost = [errors.Timeout("lost")] * 2
    await two.sim.clock.sleep(60)
    assert two.a.elector.leads
    assert spec(two.cluster)["leaseTransitions"] == 0


@virtual()
async def test_a_create_whose_answer_was_lost_is_found_again(sim: Sim) -> None:
    two = Two(sim, await RegistryCluster.started())
    two.a.client.lost = [errors.Timeout("lost")]
    await two.a.elector.acquire()
    assert sim.clock.monotonic() < 5
    assert two.a.elector.leads
    await two.close()


@virtual(leading)
async def test_a_change_by_somebody_else_does_not_end_leadership(two: Two) -> None:
    await two.b.client.patch(
        LEASES, "refloat", {"metadata": {"labels": {"x": "y"}}}, namespace="kube-system"
    )
    await two.sim.clock.sleep(60)
    assert two.a.elector.leads


@virtual(leading)
async def test_a_lease_that_was_taken_away_ends_leadership_at_the_next_renewal(two: Two) -> None:
    await two.b.client.patch(
        LEASES, "refloat", {"spec": {"holderIdentity": "c"}}, namespace="kube-system"
    )
    error = await two.a.elector.lost()
    assert two.sim.clock.monotonic() == 2
    assert str(error) == "refloat: leadership lost: c has the Lease"


@virtual(leading)
async def test_a_lease_that_was_deleted_is_made_anew_by_its_leader(two: Two) -> None:
    waiting = asyncio.ensure_future(two.b.elector.acquire())
    await two.sim.clock.sleep(30.5)
    await two.b.client.delete(LEASES, "refloat", namespace="kube-system")
    await two.sim.clock.sleep(60)
    assert two.a.elector.leads
    assert not waiting.done()
    assert spec(two.cluster)["holderIdentity"] == "a"
    assert spec(two.cluster)["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    waiting.cancel()


@virtual(leading)
async def test_who_saw_a_leader_waits_for_it_even_if_the_lease_is_deleted(two: Two) -> None:
    waiting = asyncio.ensure_future(two.b.elector.acquire())
    await two.sim.clock.sleep(1)
    two.a.client.hangs = True
    await two.b.client.delete(LEASES, "refloat", namespace="kube-system")
    await two.a.elector.lost()
    assert not two.b.elector.leads
    await waiting
    assert two.sim.clock.monotonic() >= 15


@virtual(leading)
async def test_a_lease_in_our_name_of_another_process_is_waited_for(two: Two) -> None:
    """A restarted process cannot know whether the one before it has ended."""
    await two.a.elector.close()
    again = ElectionProcess("a", two.cluster, two.sim.clock, Rand(3))
    await again.elector.acquire()
    assert two.sim.clock.monotonic() >= 15
    assert spec(two.cluster)["leaseTransitions"] == 0
    await again.elector.close()


@virtual(leading)
async def test_a_lease_in_a_name_that_is_unique_is_ours_at_once(two: Two) -> None:
    """The process before this one has surely ended, or it is this one."""
    await two.a.elector.close()
    settings = ElectionSettings("kube-system", "refloat", "a", unique_identity=True)
    again = Elector(
        two.cluster.client(two.sim.clock), clock=two.sim.clock, rand=Rand(3), settings=settings
    )
    await again.acquire()
    assert two.sim.clock.monotonic() == 0
    await again.close()


@virtual()
async def test_a_lease_that_is_refused_is_logged_once_and_remembered(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    two = Two(sim, await RegistryCluster.started())
    two.a.client.down = errors.Forbidden("no right")
    waiting = asyncio.ensure_future(two.a.elector.acquire())
    await sim.clock.sleep(60)
    assert caplog.text.count("no right") == 1
    assert two.a.elector.denied == "no right"
    two.a.client.down = None
    await waiting
    assert two.a.elector.denied == ""
    await two.close()


@virtual(leading)
async def test_a_guard_lets_nothing_through_after_the_deadline(two: Two) -> None:
    two.a.client.hangs = True
    patch = {"metadata": {"labels": {"x": "y"}}}
    await two.a.guard.patch(LEASES, "refloat", patch, namespace="kube-system")
    two.a.clock.freeze(20)
    await two.sim.clock.sleep(20)
    with pytest.raises(LeadershipLost, match="not renewed in time"):
        await two.a.guard.patch(LEASES, "refloat", patch, namespace="kube-system")


@virtual(leading)
async def test_a_guard_stops_every_verb_that_writes_and_none_that_reads(two: Two) -> None:
    await two.a.elector.close()
    guard, calls = two.a.guard, two.a.work_client.calls
    for write in (
        guard.create(LEASES, {"metadata": {"name": "x"}}),
        guard.patch(LEASES, "x", {}),
        guard.delete(LEASES, "x"),
        guard.evict("x", namespace="d"),
        guard.bind("x", "n", namespace="d"),
    ):
        with pytest.raises(LeadershipLost, match="refloat: stopped"):
            await write
    assert calls == []
    assert (await guard.get(LEASES, "refloat", namespace="kube-system")).spec.holder_identity == "a"
    await guard.close()
    assert calls == ["get refloat", "close"]


@virtual()
async def test_the_status_is_a_metric_of_kubernetes_name(sim: Sim) -> None:
    registry, cluster = CollectorRegistry(), await RegistryCluster.started()
    elector = Elector(
        cluster.client(sim.clock),
        clock=sim.clock,
        rand=Rand(1),
        settings=ElectionSettings("kube-system", "refloat", "a"),
        metrics=ElectionMetrics(registry),
    )

    def status() -> float | None:
        return registry.get_sample_value("leader_election_master_status", {"name": "refloat"})

    states = [status()]
    await elector.acquire()
    states.append(status())
    await elector.release()
    states.append(status())
    assert states == [0, 1, 0]


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({"lease_duration": 10}, "lease_duration 10 must be above renew_deadline"),
        ({"renew_deadline": 2.4, "request_timeout": 1}, "renew_deadline 2.4 must be above retry"),
        ({"request_timeout": 10}, "renew_deadline 10 must be above request_timeout"),
        ({"retry_period": 0}, "retry_period 0 must be above zero"),
        ({"lease_duration": 15.5}, "lease_duration 15.5 must be whole seconds"),
        ({"identity": ""}, "the identity is empty"),
    ],
)
def test_times_that_cannot_keep_two_leaders_apart_are_refused(
    settings: dict[str, float], want: str
) -> None:
    with pytest.raises(BadElection, match=want):
        ElectionSettings(**{"namespace": "d", "name": "l", "identity": "a", **settings})  # type: ignore[arg-type]

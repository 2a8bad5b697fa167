# SPDX-License-Identifier: Apache-2.0
"""Jobs that are over go by themselves, at their time and not before (behaviour A24)."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.meta import Object
from refloat.apiserver.local_server import LocalConnection
from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.controllers import ttl
from refloat.controllers.ttl.metrics import TtlMetrics
from refloat.runtime.controller import Controller
from refloat.sim.faulty_client import FaultyClient
from refloat.sim.run import Sim
from tests import builders
from tests.cases import cases
from tests.simulation.controller_cluster import NAMESPACE, ControllerCluster
from tests.virtual import virtual

STARTED = "2020-01-01T00:00:00Z"
METRIC = "ttl_after_finished_controller_job_deletion_duration_seconds"


class TtlClient(FaultyClient):
    """Records its requests, and takes `seconds` for each."""

    def __init__(self, api: LocalConnection, sim: Sim) -> None:
        super().__init__(api)
        self._sim = sim
        self.requests: list[Request] = []
        self.failures: list[Exception] = []
        """The errors of the next requests."""
        self.lost: list[Exception] = []
        """What the next requests get instead of the answer, though the server did them."""
        self.seconds = 0.0
        self._in_flight = 0
        self.most_in_flight = 0

    async def _call(self, request: Request) -> bytes:
        self.requests.append(request)
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            await self._sim.clock.sleep(self.seconds)
            if self.failures:
                raise self.failures.pop()
            answer = await super()._call(request)
            if self.lost:
                raise self.lost.pop()
            return answer
        finally:
            self._in_flight -= 1

    def deletes(self) -> list[Object]:
        bodies = [each.body or b"" for each in self.requests if each.method == "DELETE"]
        return [msgspec.json.decode(body) for body in bodies]


class TtlCluster(ControllerCluster):
    """A cluster whose TTL controller runs when the block begins."""

    ttl_client: TtlClient

    def __init__(self, sim: Sim) -> None:
        super().__init__(sim, ttl.build)

    async def open(self) -> None:
        await self.start()

    async def start(self, **faults: Any) -> None:
        self.ttl_client = TtlClient(self.server, self.sim)
        await super().start(client=self.ttl_client, **faults)

    @property
    def reconciles(self) -> int:
        """How often the controller reconciled a Job, or will at once."""
        (controller,) = self.workers
        assert isinstance(controller, Controller)
        return controller.queue.adds

    def measured(self, part: str, **labels: str) -> float | None:
        return self.metrics.get_sample_value(f"{METRIC}_{part}", labels)

    async def submit(self, name: str = "job", **spec: Any) -> None:
        await self.client.create(kinds.JOBS, builders.job(name, spec=spec), namespace=NAMESPACE)

    async def end(self, name: str = "job", *, kind: str = "Failed", later: float = 0) -> None:
        """Write that the Job has ended, `later` seconds from now."""
        when = times.format_time(self.sim.clock.now() + timedelta(seconds=later))
        interim = {"Failed": "FailureTarget", "Complete": "SuccessCriteriaMet"}[kind]
        status: Object = {
            "startTime": STARTED,
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": when}
                for each in (interim, kind)
            ],
        }
        if kind == "Complete":
            status["completionTime"] = when
        await self.job_status(name, status)

    async def job_status(self, name: str, status: Object) -> None:
        await self.client.patch(
            kinds.JOBS, name, {"status": status}, namespace=NAMESPACE, subresource="status"
        )

    async def change(self, name: str = "job", **spec: Any) -> None:
        await self.client.patch(kinds.JOBS, name, {"spec": spec}, namespace=NAMESPACE)

    async def job(self, name: str = "job") -> Job:
        return await self.client.get(kinds.JOBS, name, namespace=NAMESPACE)

    async def is_deleted(self, name: str = "job") -> bool:
        return (await self.job(name)).metadata.deletion_timestamp is not None

    async def delete_at_once(self, name: str = "job") -> None:
        """Delete the Job, and remove its finalizers as the garbage collector does."""
        await self.client.delete(kinds.JOBS, name, namespace=NAMESPACE)
        patch = {"metadata": {"finalizers": None}}
        await self.client.patch(kinds.JOBS, name, patch, namespace=NAMESPACE)


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
@virtual(TtlCluster)
async def test_job_goes_when_its_time_is_over_not_before(cluster: TtlCluster, kind: str) -> None:
    await cluster.submit(ttlSecondsAfterFinished=100)
    await cluster.sleep(50)
    await cluster.end(kind=kind)
    await cluster.sleep(98.9)
    assert not await cluster.is_deleted()
    await cluster.sleep(1.2)
    assert await cluster.is_deleted()


@virtual(TtlCluster)
async def test_job_is_deleted_with_all_that_it_owns_by_its_uid(cluster: TtlCluster) -> None:
    await cluster.submit(ttlSecondsAfterFinished=10)
    job = await cluster.job()
    await cluster.end()
    await cluster.sleep(20)
    [options] = cluster.ttl_client.deletes()
    assert options["propagationPolicy"] == "Foreground"
    assert options["preconditions"] == {"uid": job.metadata.uid}
    assert "foregroundDeletion" in ((await cluster.job()).metadata.finalizers or ())


@virtual(TtlCluster)
async def test_it_is_looked_at_once_more_before_it_is_deleted(cluster: TtlCluster) -> None:
    await cluster.submit(ttlSecondsAfterFinished=10)
    await cluster.end()
    await cluster.sleep(20)
    assert [each.method for each in cluster.ttl_client.requests] == ["GET", "DELETE"]


@virtual(TtlCluster)
async def test_waiting_asks_nothing(cluster: TtlCluster) -> None:
    await cluster.submit(ttlSecondsAfterFinished=100_000)
    await cluster.end()
    await cluster.sleep(90_000)
    assert cluster.ttl_client.requests == []


@virtual(TtlCluster)
async def test_a_job_that_is_gone_is_forgotten_within_the_hour(cluster: TtlCluster) -> None:
    """Though the Job was to stay for years."""
    await cluster.submit(ttlSecondsAfterFinished=2**31 - 1)
    await cluster.end()
    await cluster.sleep(10)
    await cluster.delete_at_once()
    before = cluster.reconciles
    await cluster.sleep(1e6)
    assert cluster.reconciles - before <= 1
    assert cluster.ttl_client.requests == []


@virtual(TtlCluster)
async def test_a_job_that_stays_is_looked_at_every_hour(cluster: TtlCluster) -> None:
    """A machine that slept would else be late by the length of the sleep."""
    await cluster.submit(ttlSecondsAfterFinished=10 * 3600)
    await cluster.end()
    await cluster.sleep(1)
    before = cluster.reconciles
    await cluster.sleep(5 * 3600)
    assert cluster.reconciles - before == 5


@virtual(TtlCluster)
async def test_no_time_at_all_is_at_once(cluster: TtlCluster) -> None:
    await cluster.submit(ttlSecondsAfterFinished=0)
    await cluster.end()
    await cluster.sleep(0.1)
    assert await cluster.is_deleted()


@virtual(TtlCluster)
async def test_without_a_time_a_job_stays(cluster: TtlCluster) -> None:
    await cluster.submit()
    await cluster.end()
    await cluster.sleep(1e6)
    assert not await cluster.is_deleted()


@virtual(TtlCluster)
async def test_a_job_that_runs_stays(cluster: TtlCluster) -> None:
    await cluster.submit(ttlSecondsAfterFinished=0)
    await cluster.sleep(1e6)
    assert not await cluster.is_deleted()


@virtual(TtlCluster)
async def test_a_job_of_another_controller_goes_too(cluster: TtlCluster) -> None:
    """Behaviour A21.2."""
    await cluster.submit(ttlSecondsAfterFinished=5, managedBy="example.com/other")
    await cluster.end()
    await cluster.sleep(10)
    assert await cluster.is_deleted()


@cases(
    "before after want",
    {
        "longer": (100, 1000, 1000),
        "shorter": (1000, 100, 100),
        "said only now": (None, 100, 100),
        "over already when it is said": (1000, 20, 50),
        "taken back": (100, None, None),
    },
)
@virtual(TtlCluster)
async def test_another_time_counts_from_the_same_end(
    cluster: TtlCluster, before: int | None, after: int | None, want: float | None
) -> None:
    await cluster.submit(ttlSecondsAfterFinished=before)
    await cluster.end()
    await cluster.sleep(50)
    await cluster.change(ttlSecondsAfterFinished=after)
    if want is not None:
        await cluster.sleep(want - 50 - 1.5)
        assert want == 50 or not await cluster.is_deleted()
        await cluster.sleep(2)
        assert await cluster.is_deleted()
    else:
        await cluster.sleep(1e5)
        assert not await cluster.is_deleted()


@virtual()
async def test_end_in_the_future_is_waited_for(sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
    async with TtlCluster(sim) as cluster:
        await cluster.submit(ttlSecondsAfterFinished=10)
        await cluster.end(later=500)
        await cluster.sleep(505)
        assert not await cluster.is_deleted()
        await cluster.sleep(10)
        assert await cluster.is_deleted()
    assert "Job default/job finished in the future" in caplog.text


@virtual(TtlCluster)
async def test_an_end_without_a_time_deletes_nothing_until_there_is_one(
    cluster: TtlCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.submit(ttlSecondsAfterFinished=0)
    over = [{"type": each, "status": "True"} for each in ("FailureTarget", "Failed")]
    await cluster.job_status("job", {"startTime": STARTED, "conditions": over})
    await cluster.sleep(5000)
    assert not await cluster.is_deleted()
    assert "default/job: its condition does not say when it finished" in caplog.text
    await cluster.end()
    await cluster.sleep(1)
    assert await cluster.is_deleted()


@virtual(TtlCluster, seeds=5)
async def test_whoever_starts_anew_goes_on_to_wait(cluster: TtlCluster) -> None:
    await cluster.submit(ttlSecondsAfterFinished=100)
    await cluster.end()
    for _ in range(9):
        await cluster.sleep(11)
        await cluster.restart()
    assert not await cluster.is_deleted()
    await cluster.sleep(2)
    assert await cluster.is_deleted()


@virtual(TtlCluster)
async def test_what_was_due_while_nobody_was_there_goes_at_the_start(cluster: TtlCluster) -> None:
    await cluster.submit(ttlSecondsAfterFinished=100)
    await cluster.end()
    await cluster.stop()
    await cluster.sleep(1000)
    assert not await cluster.is_deleted()
    await cluster.restart()
    await cluster.sleep(0.1)
    assert await cluster.is_deleted()
    assert cluster.measured("sum") == pytest.approx(900, abs=1.5)


@virtual(TtlCluster)
async def test_how_late_it_was_is_measured(cluster: TtlCluster) -> None:
    cluster.ttl_client.seconds = 1.0  # for each of two requests
    await cluster.submit(ttlSecondsAfterFinished=100)
    await cluster.end()
    await cluster.sleep(200)
    assert cluster.measured("count") == 1
    assert cluster.measured("sum") == pytest.approx(2, abs=0.1)
    assert cluster.measured("bucket", le="1.6") == 0
    assert cluster.measured("bucket", le="3.2") == 1
    assert cluster.measured("bucket", le="819.2") == 1


def test_its_buckets_are_those_of_kubernetes() -> None:
    registry = CollectorRegistry()
    TtlMetrics(registry)
    [family] = registry.collect()
    bounds = [each.labels["le"] for each in family.samples if each.name.endswith("_bucket")]
    assert bounds == [f"{0.1 * 2**power:.1f}" for power in range(14)] + ["+Inf"]


@virtual(TtlCluster)
async def test_a_job_that_may_stay_after_all_is_not_deleted_by_a_cache_that_is_behind(
    cluster: TtlCluster,
) -> None:
    """1. Its time is over. 2. The GET is on its way. 3. The user gives it longer."""
    cluster.ttl_client.seconds = 5.0
    await cluster.submit(ttlSecondsAfterFinished=10)
    await cluster.end()
    await cluster.sleep(11)
    await cluster.change(ttlSecondsAfterFinished=1000)
    await cluster.sleep(900)
    assert not await cluster.is_deleted()
    assert cluster.ttl_client.deletes() == []
    await cluster.sleep(120)
    assert await cluster.is_deleted()


@virtual(TtlCluster)
async def test_a_job_of_the_same_name_is_not_deleted_in_its_place(cluster: TtlCluster) -> None:
    """1. The GET has the old Job. 2. That Job goes, a new one comes. 3. The DELETE arrives."""
    cluster.ttl_client.seconds = 5.0
    await cluster.submit(ttlSecondsAfterFinished=10)
    await cluster.end()
    await cluster.sleep(17)
    assert len(cluster.ttl_client.deletes()) == 1  # on its way
    await cluster.delete_at_once()
    await cluster.submit(ttlSecondsAfterFinished=10)
    await cluster.sleep(1000)
    assert not await cluster.is_deleted()


@virtual(TtlCluster)
async def test_a_job_that_somebody_else_deletes_is_no_failure(cluster: TtlCluster) -> None:
    cluster.ttl_client.seconds = 5.0
    await cluster.submit(ttlSecondsAfterFinished=10)
    await cluster.end()
    await cluster.sleep(11)
    await cluster.delete_at_once()
    await cluster.sleep(100)
    assert len(cluster.ttl_client.requests) == 1
    assert cluster.measured("count") == 0


@pytest.mark.parametrize("many", [1, 5])
@virtual(TtlCluster)
async def test_a_failure_is_tried_again_soon(cluster: TtlCluster, many: int) -> None:
    cluster.ttl_client.failures = [errors.Unavailable("no") for _ in range(many)]
    await cluster.submit(ttlSecondsAfterFinished=10)
    await cluster.end()
    await cluster.sleep(12)
    assert await cluster.is_deleted()


@virtual(TtlCluster)
async def test_a_delete_whose_answer_was_lost_is_not_made_twice(cluster: TtlCluster) -> None:
    await cluster.submit(ttlSecondsAfterFinished=10)
    await cluster.end()
    await cluster.sleep(8.5)
    cluster.ttl_client.lost = [errors.Unavailable("lost"), errors.Unavailable("lost")]
    await cluster.sleep(60)
    assert await cluster.is_deleted()
    assert len(cluster.ttl_client.deletes()) == 1


@virtual(TtlCluster)
async def test_five_go_at_once(cluster: TtlCluster) -> None:
    cluster.ttl_client.seconds = 1.0
    for number in range(20):
        await cluster.submit(f"job-{number}", ttlSecondsAfterFinished=10)
        await cluster.end(f"job-{number}")
    await cluster.sleep(60)
    assert cluster.ttl_client.most_in_flight == 5
    assert all([await cluster.is_deleted(f"job-{number}") for number in range(20)])

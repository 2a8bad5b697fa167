# SPDX-License-Identifier: Apache-2.0
"""Jobs that are over go by themselves, at their time and not before (behaviour A24)."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.meta import Object
from refloat.apiserver.inprocess import InProcess
from refloat.client import errors, kinds
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.controllers.ttl.controller import TtlController
from refloat.controllers.ttl.metrics import TtlMetrics
from refloat.runtime.informer import Informer
from refloat.sim.run import Sim
from tests.simulation import api_program
from tests.unit.agent.nodes import instruments
from tests.virtual import virtual

NAMESPACE = "default"
STARTED = "2020-01-01T00:00:00Z"
METRIC = "ttl_after_finished_controller_job_deletion_duration_seconds"


class Client(LocalClient):
    """Notes what is asked, takes its time, and fails or dies when it is told to."""

    def __init__(self, api: InProcess, sim: Sim) -> None:
        super().__init__(api, field_manager="ttl")
        self._sim = sim
        self.asked: list[Request] = []
        self.failures: list[Exception] = []
        self.lost: list[Exception] = []
        """What comes back instead of the answer, though the request was served."""
        self.seconds = 0.0
        self.under_way = 0
        self.most_under_way = 0

    async def _call(self, request: Request) -> bytes:
        self.asked.append(request)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self._sim.clock.sleep(self.seconds)
            if self.failures:
                raise self.failures.pop()
            answer = await super()._call(request)
            if self.lost:
                raise self.lost.pop()
            return answer
        finally:
            self.under_way -= 1

    def deletes(self) -> list[Object]:
        bodies = [each.body or b"" for each in self.asked if each.method == "DELETE"]
        return [msgspec.json.decode(body) for body in bodies]


class Process:
    """One life of the controller."""

    def __init__(self, sim: Sim, api: InProcess) -> None:
        self.client = Client(api, sim)
        self.registry = CollectorRegistry()
        reader = LocalClient(api, field_manager="reader")
        self._jobs = Informer(reader, kinds.JOBS, clock=sim.clock, rand=sim.rand)
        self._controllers = TtlController(
            self.client,
            self._jobs,
            clock=sim.clock,
            instruments=instruments(),
            metrics=TtlMetrics(self.registry),
        ).controllers

    async def start(self) -> None:
        self._jobs.start()
        await self._jobs.wait_synced()
        for each in self._controllers:
            each.start()

    async def stop(self) -> None:
        for each in self._controllers:
            await each.stop()
        await self._jobs.close()

    @property
    def looks(self) -> int:
        """How often a Job was looked at."""
        [controller] = self._controllers
        return controller.queue.adds

    def measured(self, part: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"{METRIC}_{part}", labels)


class World:
    def __init__(self, sim: Sim, api: InProcess) -> None:
        self.sim = sim
        self.api = api
        self.user = LocalClient(api, field_manager="test")
        self.process = Process(sim, api)

    async def restart(self) -> None:
        await self.process.stop()
        self.process = Process(self.sim, self.api)
        await self.process.start()

    async def sleep(self, seconds: float) -> None:
        await self.sim.clock.sleep(seconds)

    async def submit(self, name: str = "job", **spec: Any) -> Job:
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}
        made = {"metadata": {"name": name}, "spec": {**spec, "template": {"spec": pod}}}
        return await self.user.create(kinds.JOBS, made, namespace=NAMESPACE)

    async def end(self, name: str = "job", *, kind: str = "Failed", later: float = 0) -> None:
        """Write that the Job is over, as of so many seconds from now."""
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
        await self.status(name, status)

    async def status(self, name: str, status: Object) -> None:
        await self.user.patch(
            kinds.JOBS, name, {"status": status}, namespace=NAMESPACE, subresource="status"
        )

    async def change(self, name: str = "job", **spec: Any) -> None:
        await self.user.patch(kinds.JOBS, name, {"spec": spec}, namespace=NAMESPACE)

    async def get(self, name: str = "job") -> Job:
        return await self.user.get(kinds.JOBS, name, namespace=NAMESPACE)

    async def is_deleted(self, name: str = "job") -> bool:
        return (await self.get(name)).metadata.deletion_timestamp is not None

    async def free(self, name: str = "job") -> None:
        """Do what the garbage collector does when nothing owned is left."""
        patch = {"metadata": {"finalizers": None}}
        await self.user.patch(kinds.JOBS, name, patch, namespace=NAMESPACE)


@contextlib.asynccontextmanager
async def world(sim: Sim) -> AsyncIterator[World]:
    async with api_program.serving(sim) as api:
        made = World(sim, api)
        await made.process.start()
        try:
            yield made
        finally:
            await made.process.stop()


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
@virtual()
async def test_a_job_goes_when_its_time_is_over_and_not_before(sim: Sim, kind: str) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=100)
        await here.sleep(50)
        await here.end(kind=kind)
        await here.sleep(98.9)
        assert not await here.is_deleted()
        await here.sleep(1.2)
        assert await here.is_deleted()


@virtual()
async def test_it_is_deleted_with_all_that_it_owns_and_only_if_it_is_the_same(sim: Sim) -> None:
    async with world(sim) as here:
        job = await here.submit(ttlSecondsAfterFinished=10)
        await here.end()
        await here.sleep(20)
        [options] = here.process.client.deletes()
        assert options["propagationPolicy"] == "Foreground"
        assert options["preconditions"] == {"uid": job.metadata.uid}
        assert "foregroundDeletion" in ((await here.get()).metadata.finalizers or ())


@virtual()
async def test_it_is_looked_at_once_more_before_it_is_deleted(sim: Sim) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=10)
        await here.end()
        await here.sleep(20)
        assert [each.method for each in here.process.client.asked] == ["GET", "DELETE"]


@virtual()
async def test_waiting_asks_nothing(sim: Sim) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=100_000)
        await here.end()
        await here.sleep(90_000)
        assert here.process.client.asked == []


@virtual()
async def test_a_job_that_is_gone_is_forgotten_within_the_hour(sim: Sim) -> None:
    """Though it was to stay for years."""
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=2**31 - 1)
        await here.end()
        await here.sleep(10)
        await here.user.delete(kinds.JOBS, "job", namespace=NAMESPACE)
        await here.free()
        before = here.process.looks
        await here.sleep(1e6)
        assert here.process.looks - before <= 1
        assert here.process.client.asked == []


@virtual()
async def test_a_job_that_stays_is_looked_at_every_hour(sim: Sim) -> None:
    """A machine that slept would else be late by as long as it slept."""
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=10 * 3600)
        await here.end()
        await here.sleep(1)
        before = here.process.looks
        await here.sleep(5 * 3600)
        assert here.process.looks - before == 5


@virtual()
async def test_no_time_at_all_is_at_once(sim: Sim) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=0)
        await here.end()
        await here.sleep(0.1)
        assert await here.is_deleted()


@virtual()
async def test_without_a_time_a_job_stays(sim: Sim) -> None:
    async with world(sim) as here:
        await here.submit()
        await here.end()
        await here.sleep(1e6)
        assert not await here.is_deleted()


@virtual()
async def test_a_job_that_runs_stays(sim: Sim) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=0)
        await here.sleep(1e6)
        assert not await here.is_deleted()


@virtual()
async def test_a_job_of_another_controller_goes_too(sim: Sim) -> None:
    """Behaviour A21.2."""
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=5, managedBy="example.com/other")
        await here.end()
        await here.sleep(10)
        assert await here.is_deleted()


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(100, 1000, 1000, id="longer"),
        pytest.param(1000, 100, 100, id="shorter"),
        pytest.param(None, 100, 100, id="said only now"),
        pytest.param(1000, 20, 50, id="over already when it is said"),
        pytest.param(100, None, None, id="taken back"),
    ],
)
@virtual()
async def test_another_time_counts_from_the_same_end(
    sim: Sim, before: int | None, after: int | None, want: float | None
) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=before)
        await here.end()
        await here.sleep(50)
        await here.change(ttlSecondsAfterFinished=after)
        if want is not None:
            await here.sleep(want - 50 - 1.5)
            assert want == 50 or not await here.is_deleted()
            await here.sleep(2)
            assert await here.is_deleted()
        else:
            await here.sleep(1e5)
            assert not await here.is_deleted()


@virtual()
async def test_an_end_in_the_future_is_waited_for(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=10)
        await here.end(later=500)
        await here.sleep(505)
        assert not await here.is_deleted()
        await here.sleep(10)
        assert await here.is_deleted()
    assert "Job default/job finished in the future" in caplog.text


@virtual()
async def test_an_end_without_a_time_deletes_nothing_until_there_is_one(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=0)
        over = [{"type": each, "status": "True"} for each in ("FailureTarget", "Failed")]
        await here.status("job", {"startTime": STARTED, "conditions": over})
        await here.sleep(5000)
        assert not await here.is_deleted()
        assert "default/job: its condition does not say when it finished" in caplog.text
        await here.end()
        await here.sleep(1)
        assert await here.is_deleted()


@virtual(seeds=5)
async def test_whoever_starts_anew_goes_on_to_wait(sim: Sim) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=100)
        await here.end()
        for _ in range(9):
            await here.sleep(11)
            await here.restart()
        assert not await here.is_deleted()
        await here.sleep(2)
        assert await here.is_deleted()


@virtual()
async def test_what_was_due_while_nobody_was_there_goes_at_the_start(sim: Sim) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=100)
        await here.end()
        await here.process.stop()
        await here.sleep(1000)
        assert not await here.is_deleted()
        await here.restart()
        await here.sleep(0.1)
        assert await here.is_deleted()
        assert here.process.measured("sum") == pytest.approx(900, abs=1.5)


@virtual()
async def test_how_late_it_was_is_measured(sim: Sim) -> None:
    async with world(sim) as here:
        here.process.client.seconds = 1.0  # for each of two requests
        await here.submit(ttlSecondsAfterFinished=100)
        await here.end()
        await here.sleep(200)
        assert here.process.measured("count") == 1
        assert here.process.measured("sum") == pytest.approx(2, abs=0.1)
        assert here.process.measured("bucket", le="1.6") == 0
        assert here.process.measured("bucket", le="3.2") == 1
        assert here.process.measured("bucket", le="819.2") == 1


def test_its_buckets_are_those_of_kubernetes() -> None:
    registry = CollectorRegistry()
    TtlMetrics(registry)
    [family] = registry.collect()
    bounds = [each.labels["le"] for each in family.samples if each.name.endswith("_bucket")]
    assert bounds == [f"{0.1 * 2**power:.1f}" for power in range(14)] + ["+Inf"]


@virtual()
async def test_a_job_that_may_stay_after_all_is_not_deleted_by_a_cache_that_is_behind(
    sim: Sim,
) -> None:
    """1. Its time is over. 2. The GET is on its way. 3. The user gives it longer."""
    async with world(sim) as here:
        here.process.client.seconds = 5.0
        await here.submit(ttlSecondsAfterFinished=10)
        await here.end()
        await here.sleep(11)
        await here.change(ttlSecondsAfterFinished=1000)
        await here.sleep(900)
        assert not await here.is_deleted()
        assert here.process.client.deletes() == []
        await here.sleep(120)
        assert await here.is_deleted()


@virtual()
async def test_a_job_of_the_same_name_is_not_deleted_in_its_place(sim: Sim) -> None:
    """1. The GET has the old Job. 2. It goes, and a new one comes. 3. The DELETE arrives."""
    async with world(sim) as here:
        here.process.client.seconds = 5.0
        await here.submit(ttlSecondsAfterFinished=10)
        await here.end()
        await here.sleep(17)
        assert len(here.process.client.deletes()) == 1  # on its way
        await here.user.delete(kinds.JOBS, "job", namespace=NAMESPACE)
        await here.free()
        await here.submit(ttlSecondsAfterFinished=10)
        await here.sleep(1000)
        assert not await here.is_deleted()


@virtual()
async def test_a_job_that_somebody_else_deletes_is_no_failure(sim: Sim) -> None:
    async with world(sim) as here:
        here.process.client.seconds = 5.0
        await here.submit(ttlSecondsAfterFinished=10)
        await here.end()
        await here.sleep(11)
        await here.user.delete(kinds.JOBS, "job", namespace=NAMESPACE)
        await here.free()
        await here.sleep(100)
        assert len(here.process.client.asked) == 1
        assert here.process.measured("count") == 0


@pytest.mark.parametrize("many", [1, 5])
@virtual()
async def test_a_failure_is_tried_again_soon(sim: Sim, many: int) -> None:
    async with world(sim) as here:
        here.process.client.failures = [errors.Unavailable("no") for _ in range(many)]
        await here.submit(ttlSecondsAfterFinished=10)
        await here.end()
        await here.sleep(12)
        assert await here.is_deleted()


@virtual()
async def test_a_delete_whose_answer_was_lost_is_not_made_twice(sim: Sim) -> None:
    async with world(sim) as here:
        await here.submit(ttlSecondsAfterFinished=10)
        await here.end()
        await here.sleep(8.5)
        here.process.client.lost = [errors.Unavailable("lost"), errors.Unavailable("lost")]
        await here.sleep(60)
        assert await here.is_deleted()
        assert len(here.process.client.deletes()) == 1


@virtual()
async def test_five_go_at_once(sim: Sim) -> None:
    async with world(sim) as here:
        here.process.client.seconds = 1.0
        for number in range(20):
            await here.submit(f"job-{number}", ttlSecondsAfterFinished=10)
            await here.end(f"job-{number}")
        await here.sleep(60)
        assert here.process.client.most_under_way == 5
        assert all([await here.is_deleted(f"job-{number}") for number in range(20)])

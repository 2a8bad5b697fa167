# SPDX-License-Identifier: Apache-2.0
"""Jobs that need no sync get none: nothing is asked of the API for them."""

from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from refloat.api.batch import Job
from refloat.client.contract import Client
from refloat.controllers.job.controller import JOB_INDEXES, POD_INDEXES, JobReconciler
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.settings import JobSettings
from refloat.controllers.job.sync import JobContext
from refloat.controllers.job.sync_memory import SyncMemory
from refloat.policy.job import backoff
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.errors import Retry
from refloat.runtime.reconcile import DONE
from tests.clocks import ManualClock
from tests.unit.policy import builders

FINISHED = {"conditions": [{"type": "Complete", "status": "True"}]}


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, _: object, kind: str, reason: str, __: str, note: str) -> None:
        self.events.append((kind, reason, note))


class ReconcilerFixture:
    """A reconciler without a client: whatever asks the API fails."""

    def __init__(self) -> None:
        self.clock = clock = ManualClock()
        self.told = Told()
        self.memory = SyncMemory(clock)
        self.pods_seen = 0
        self.registry = CollectorRegistry()
        self.jobs: Cache[Job] = Cache(JOB_INDEXES)
        self.reconciler = JobReconciler(
            JobContext(
                client=cast("Client", None),
                clock=clock,
                jobs=self.jobs,
                pods=Cache(POD_INDEXES),
                pods_seen=lambda version: int(version) <= self.pods_seen,
                sink=self.told,
                memory=self.memory,
                metrics=JobMetrics(self.registry),
                settings=JobSettings(),
            )
        )

    def put(self, job: Job) -> str:
        self.jobs.put(key_of(job), job)
        return key_of(job)

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"job_controller_{name}", labels)


async def test_a_job_that_is_gone_needs_nothing() -> None:
    assert await ReconcilerFixture().reconciler.reconcile("ns/none") == DONE


async def test_another_controllers_job_is_not_looked_at() -> None:
    stage = ReconcilerFixture()
    key = stage.put(builders.job(managedBy="example.com/other"))
    assert await stage.reconciler.reconcile(key) == DONE
    assert stage.told.events == []


async def test_a_finished_job_is_forgotten() -> None:
    stage = ReconcilerFixture()
    stage.memory.keep("job", backoff.Record(3, builders.at(0)))
    key = stage.put(builders.job(status=FINISHED))
    assert await stage.reconciler.reconcile(key) == DONE
    assert stage.memory.record("job") == backoff.NO_FAILURES


async def test_an_unknown_completion_mode_is_told_and_left_alone() -> None:
    """Behaviour A4.6."""
    stage = ReconcilerFixture()
    key = stage.put(builders.job(completionMode="Later"))
    assert await stage.reconciler.reconcile(key) == DONE
    assert stage.told.events == [
        ("Warning", "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
    ]


async def test_a_cache_that_has_not_seen_our_write_is_waited_for() -> None:
    """Behaviour A4.1."""
    stage = ReconcilerFixture()
    stage.memory.wrote(builders.job(version="10"))
    key = stage.put(builders.job(version="9"))
    with pytest.raises(Retry, match="not seen the last write"):
        await stage.reconciler.reconcile(key)
    assert stage.sample("stale_sync_skips_total", group="batch", resource="jobs") == 1


async def test_a_cache_that_has_seen_our_write_is_not() -> None:
    stage = ReconcilerFixture()
    stage.memory.wrote(builders.job(version="10"))
    key = stage.put(builders.job(version="10", status=FINISHED))
    assert await stage.reconciler.reconcile(key) == DONE


async def test_a_cache_of_pods_that_has_not_seen_our_write_is_waited_for() -> None:
    """Behaviour A4.1."""
    stage = ReconcilerFixture()
    stage.memory.wrote_pod("job", builders.pod(version="10"))
    stage.memory.wrote_pod("job", builders.pod(version="8"))
    stage.memory.wrote_pod("job", None)
    key = stage.put(builders.job(status=FINISHED))
    stage.pods_seen = 9
    with pytest.raises(Retry, match="pods has not seen the last write"):
        await stage.reconciler.reconcile(key)
    assert stage.sample("stale_sync_skips_total", group="", resource="pods") == 1
    stage.pods_seen = 10
    assert await stage.reconciler.reconcile(key) == DONE


async def test_another_jobs_writes_are_not_waited_for() -> None:
    stage = ReconcilerFixture()
    stage.memory.wrote_pod("other", builders.pod(version="10"))
    assert await stage.reconciler.reconcile(stage.put(builders.job(status=FINISHED))) == DONE


async def test_a_server_that_was_set_back_is_not_waited_for_longer_than_five_minutes() -> None:
    stage = ReconcilerFixture()
    stage.memory.wrote(builders.job(version="10"))
    stage.memory.wrote_pod("job", builders.pod(version="11"))
    key = stage.put(builders.job(version="2", status=FINISHED))
    await stage.clock.advance(299)
    with pytest.raises(Retry):
        await stage.reconciler.reconcile(key)
    await stage.clock.advance(1)
    assert await stage.reconciler.reconcile(key) == DONE

# SPDX-License-Identifier: Apache-2.0
"""Caches that are behind, and an API that refuses: no pod twice, none uncounted."""

import functools
import itertools
from collections.abc import Callable

import pytest

from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.policy.job import attempts, pod_state
from refloat.sim.run import Sim, run
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run
from tests.simulation.job_scenarios import SCENARIOS, Ending, checked, relabel_a_pod
from tests.unit.policy.job.test_attempts import STRANGE
from tests.virtual import virtual


def creates_a_pod(request: Request) -> bool:
    return request.method == "POST" and "/pods" in request.path


def disturbed(name: str, disturb: Callable[[JobCluster], None], *, seed: int) -> Ending:
    async def program(sim: Sim) -> Ending:
        scenario = SCENARIOS[name]
        async with JobCluster(sim, scenario.script) as cluster:
            disturb(cluster)
            return await checked(cluster, scenario)

    return run(program, seed=seed)


@functools.cache
def undisturbed(name: str) -> Ending:
    return disturbed(name, lambda _: None, seed=0)


def lagging(cluster: JobCluster) -> None:
    cluster.watch_faults.lag = 1.5


def with_gaps(cluster: JobCluster) -> None:
    cluster.watch_faults.gaps = 0.3


def conflicting(cluster: JobCluster) -> None:
    """Each write conflicts the first time, and succeeds the second time."""
    attempts: set[tuple[str, str]] = set()

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        write = (request.method, request.path)
        if write in attempts:
            attempts.discard(write)
            return None
        attempts.add(write)
        return errors.Conflict("somebody was faster")

    cluster.faulty.refuses = refuse


def overloaded(cluster: JobCluster) -> None:
    """Every fifth write is not done, and the answers say so in turn."""
    refusals = itertools.cycle(
        [
            errors.TooManyRequests("try again later", code=429, retry_after=1),
            errors.Unavailable("internal error", code=500),
            errors.Timeout("no answer in time"),
        ]
    )
    cluster.faulty.refuses = lambda _, number: None if number % 5 else next(refusals)


def hardly_answering(cluster: JobCluster) -> None:
    """Every second answer is lost."""
    cluster.faulty.loses = range(1, 10_000, 2)


FAULTS: dict[str, Callable[[JobCluster], None]] = {
    "caches that are behind": lagging,
    "watches that end in a gap": with_gaps,
    "a conflict on every write": conflicting,
    "a server that has too much to do": overloaded,
    "every second answer lost": hardly_answering,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_fault_changes_how_a_job_ends(name: str, fault: str) -> None:
    assert disturbed(name, FAULTS[fault], seed=0) == undisturbed(name)


@virtual(JobCluster, job_cluster.in_turn(OK, FAILS, OK), seeds=15)
async def test_caches_that_are_behind_make_no_pod_twice(cluster: JobCluster) -> None:
    cluster.watch_faults.lag = 4.0
    await cluster.submit(completions=4, parallelism=2)
    job = await cluster.finished()
    assert (job.status.succeeded, job.status.failed) == (4, 1)
    assert len(cluster.kubelet.created) == 5


@virtual(JobCluster, job_cluster.by_index(i0=Run(seconds=1, exit_code=1)), seeds=15)
async def test_caches_that_are_behind_make_no_index_twice(cluster: JobCluster) -> None:
    cluster.watch_faults.lag = 4.0
    await cluster.submit(
        completions=3, parallelism=3, completionMode="Indexed", backoffLimitPerIndex=1
    )
    job = await cluster.finished()
    assert (job.status.succeeded, job.status.failed) == (2, 2)
    assert (job.status.completed_indexes, job.status.failed_indexes) == ("1,2", "0")
    assert len(cluster.kubelet.created) == 4


@virtual(JobCluster, seeds=5)
async def test_one_refused_create_is_enough_to_stop(cluster: JobCluster) -> None:
    """Behaviour A1.7, A8.10, A8.11."""
    times: list[float] = []

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        if not creates_a_pod(request) or cluster.seconds > 20:
            return None
        times.append(cluster.seconds)
        return errors.Forbidden("exceeded quota: q")

    cluster.faulty.refuses = refuse
    await cluster.submit(completions=50, parallelism=50)
    await cluster.sleep(2)
    status = (await cluster.job()).status
    assert (status.active, status.start_time) == (0, "2026-01-01T00:00:00Z")
    job = await cluster.finished()
    # One request each time, at the pace of the queue: 1, 2, 4, 8 s.
    assert times == [0, 1, 3, 7, 15]
    assert job.status.succeeded == 50
    assert cluster.event_log.events[0] == (
        "Warning",
        "FailedCreate",
        "Error creating: exceeded quota: q",
    )


@virtual(JobCluster, seeds=5)
async def test_a_namespace_that_goes_is_no_error(cluster: JobCluster) -> None:
    """Behaviour A8.11: no event, and no second try."""
    cause = (("NamespaceTerminating", "metadata.namespace", "being terminated"),)
    tries: list[float] = []

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        if not creates_a_pod(request):
            return None
        tries.append(cluster.seconds)
        return errors.Forbidden("no", code=403, causes=cause)

    cluster.faulty.refuses = refuse
    await cluster.submit()
    await cluster.sleep(100)
    assert len(tries) == 1
    assert cluster.event_log.events == []


@virtual(JobCluster, job_cluster.in_turn(FAILS, FOREVER), seeds=10)
async def test_a_job_does_not_end_before_all_pods_could_be_deleted(cluster: JobCluster) -> None:
    """The decision is in the status before the first deletion, the end comes after the last."""

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        deletes = request.method == "DELETE" and cluster.seconds < 30
        return errors.Unavailable("not now") if deletes else None

    cluster.faulty.refuses = refuse
    await cluster.submit(completions=2, parallelism=2, backoffLimit=0)
    await cluster.sleep(25)
    status = (await cluster.job()).status
    assert [each.type for each in status.conditions or ()] == ["FailureTarget"]
    assert (status.active, status.failed) == (1, 1)
    assert "FailedDelete" in cluster.event_log.reasons()
    job = await cluster.finished()
    assert (job.status.conditions or ())[-1].reason == "BackoffLimitExceeded"
    assert job.status.failed == 2


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=8)), seeds=40)
async def test_success_that_cache_has_not_seen_survives_a_suspension(cluster: JobCluster) -> None:
    """Kubernetes takes the finalizer from such a pod, and its work is done again."""
    await cluster.submit(completions=3, parallelism=3)
    await cluster.sleep(6)
    cluster.watch_faults.lag = 3.0
    await cluster.sleep(2 + cluster.sim.rand.random())
    await cluster.change(suspend=True)
    await cluster.sleep(30)
    cluster.watch_faults.lag = 0.0
    await cluster.change(suspend=False)
    job = await cluster.finished()
    successes = [pod for pod in cluster.kubelet.created if pod.metadata.uid in cluster.kubelet.done]
    assert job.status.succeeded == len(successes) == 3


# -- a sync that hangs is cancelled, and tried again with the same memory -----------


def delaying(cluster: JobCluster, *delays: tuple[str, bytes, float]) -> None:
    """The next write of this method with this in its body waits for so long, in this order."""
    waiting = list(delays)

    async def before(request: Request) -> None:
        if not waiting:
            return
        method, part, seconds = waiting[0]
        if request.method == method and part in (request.body or b""):
            waiting.pop(0)
            await cluster.sleep(seconds)

    cluster.faulty.before = before


HANGS = 400.0


@virtual(JobCluster, job_cluster.in_turn(FAILS, FOREVER), seeds=3)
async def test_a_removal_that_is_cancelled_counts_nobody_twice(cluster: JobCluster) -> None:
    delaying(cluster, ("PATCH", b"deleteFromPrimitiveList", HANGS))
    await cluster.submit(backoffLimit=6)
    await cluster.sleep(900)
    assert (await cluster.job()).status.failed == 1
    assert [pod_state.is_tracked(pod) for pod in await cluster.pods()].count(True) == 1
    await cluster.restart()
    await cluster.sleep(10)
    assert (await cluster.job()).status.failed == 1


@virtual(JobCluster, job_cluster.in_turn(FAILS, FAILS, FAILS, FOREVER), seeds=3)
async def test_removals_that_are_cancelled_in_part_count_all_once(cluster: JobCluster) -> None:
    delaying(cluster, ("PATCH", b"deleteFromPrimitiveList", HANGS))
    await cluster.submit(completions=3, parallelism=3, backoffLimit=6)
    for seconds in (20, 900):
        await cluster.sleep(seconds)
    await cluster.restart()
    await cluster.sleep(10)
    assert (await cluster.job()).status.failed == 3


# Before anything is expected: so the bound on a sync is over before the expectations expire.
SLOW_CLAIM = ("PATCH", b"ownerReferences", 10.0)


@virtual(JobCluster, job_cluster.in_turn(FOREVER, OK), seeds=3)
async def test_creations_that_are_cancelled_are_tried_again(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.sleep(1)
    delaying(cluster, SLOW_CLAIM, ("POST", b"", HANGS))
    await relabel_a_pod(cluster)
    await cluster.finished(within=1000)
    assert len(cluster.kubelet.created) == 2


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_deletions_that_are_cancelled_are_tried_again(cluster: JobCluster) -> None:
    await cluster.submit(completions=2, parallelism=2)
    await cluster.sleep(1)
    delaying(cluster, SLOW_CLAIM, ("DELETE", b"", HANGS))
    await relabel_a_pod(cluster)
    await cluster.change(suspend=True)
    await cluster.sleep(1000)
    stray = cluster.kubelet.created[0].metadata.uid
    assert [pod.metadata.uid for pod in await cluster.pods()] == [stray]
    status = (await cluster.job()).status
    assert (status.active, status.failed) == (0, 0)


# -- what users wrote ---------------------------------------------------------------


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
@virtual(JobCluster, job_cluster.in_turn(FAILS, OK), seeds=2)
async def test_no_record_of_failures_keeps_job_from_its_end(cluster: JobCluster, text: str) -> None:
    await cluster.submit(suspend=True)
    patch = {"metadata": {"annotations": {attempts.ANNOTATION: text}}}
    await cluster.client.patch(kinds.JOBS, "job", patch, namespace=NAMESPACE)
    await cluster.change(suspend=False)
    job = await cluster.finished(within=60)
    assert (job.status.succeeded, job.status.failed) == (1, 1)


@virtual(JobCluster, job_cluster.in_turn(FOREVER, OK), seeds=2)
async def test_an_index_that_no_number_can_hold_is_none(cluster: JobCluster) -> None:
    """Behaviour A3.6: such a pod is one too many, and another runs for its index."""
    await cluster.submit(completionMode="Indexed", completions=1)
    await cluster.sleep(2)
    [pod] = await cluster.pods()
    patch = {"metadata": {"annotations": {pod_state.COMPLETION_INDEX: "9" * 5000}}}
    name = pod.metadata.name
    await cluster.client.patch(kinds.PODS, name, patch, namespace=NAMESPACE)
    job = await cluster.finished(within=60)
    assert (job.status.completed_indexes, job.status.failed) == ("0", 0)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=2)
async def test_a_pod_that_ended_in_the_year_0_is_counted(cluster: JobCluster) -> None:
    """Go knows such a year, and Python does not."""
    await cluster.submit(backoffLimit=0)
    await cluster.sleep(2)
    [pod] = await cluster.pods()
    state = {"terminated": {"exitCode": 1, "finishedAt": "0000-01-01T00:00:00Z"}}
    container = {"name": "main", "image": "i", "imageID": "", "state": state}
    await cluster.client.patch(
        kinds.PODS,
        pod.metadata.name,
        {"status": {"phase": "Failed", "containerStatuses": [container]}},
        patch_type="strategic",
        namespace=NAMESPACE,
        subresource="status",
    )
    job = await cluster.finished(within=60)
    assert job.status.failed == 1


FULL = {"metadata": {"annotations": {"note": "x" * (256 * 1024 - len("note"))}}}


@virtual(JobCluster, job_cluster.in_turn(FAILS, FOREVER), seeds=3)
async def test_a_job_whose_annotations_leave_no_room_ends_all_the_same(cluster: JobCluster) -> None:
    """The Job has 256 KB of annotations of its own, so failures cannot be recorded there."""
    await cluster.submit(completions=2, parallelism=2, backoffLimit=0)
    await cluster.client.patch(kinds.JOBS, "job", FULL, namespace=NAMESPACE)
    job = await cluster.finished(within=60)
    assert (job.status.conditions or ())[-1].reason == "BackoffLimitExceeded"
    assert job.status.failed == 2
    assert list(job.metadata.annotations or ()) == ["note"]
    assert "PodFailureJudged" in cluster.event_log.reasons()


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_pod_whose_annotations_leave_no_room_is_suspended_too(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.sleep(3)
    [pod] = await cluster.pods()
    name = pod.metadata.name
    await cluster.client.patch(kinds.PODS, name, FULL, namespace=NAMESPACE)
    await cluster.change(suspend=True)
    await cluster.sleep(10)
    assert await cluster.pods() == []
    assert (await cluster.job()).status.failed == 0

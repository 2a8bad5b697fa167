# SPDX-License-Identifier: Apache-2.0
"""What a backoffPolicy makes of the ends of pods, on a real API server in virtual time."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.base import gates
from refloat.base.gates import Gates
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.policy.job import attempts, backoff_annotation, pod_reason
from refloat.sim.run import Sim, run
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run
from tests.simulation.job_scenarios import Ending, ending
from tests.simulation.test_job_lifecycle import DONE, OVER_LIMIT, completed, conditions, failed
from tests.virtual import virtual

ON = Gates({gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES: True})
OFF = Gates()

BUGS = {"action": "Terminate", "containerExitCodeNotIn": "40-50"}
DISRUPTIONS = {"action": "Ignore", "podStatusReasonNotIn": [""]}


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"backoffPolicy": {"rules": list(rules)}}


def exits(code: int) -> Run:
    return Run(seconds=5, exit_code=code)


async def delete(cluster: JobCluster, pod: Pod, reason: str = "") -> None:
    options = DeleteOptions(reason=reason)
    await cluster.client.delete(kinds.PODS, pod.metadata.name, namespace=NAMESPACE, options=options)


async def annotate(cluster: JobCluster, text: str | None, name: str = "job") -> None:
    annotations = {backoff_annotation.ANNOTATION: text}
    await cluster.client.patch(
        kinds.JOBS, name, {"metadata": {"annotations": annotations}}, namespace=NAMESPACE
    )


def told(cluster: JobCluster, reason: str) -> list[str]:
    return [note for _, each, note in cluster.event_log.events if each == reason]


@virtual(JobCluster, job_cluster.in_turn(FOREVER, exits(39)), seeds=20)
async def test_terminate_ends_the_job_and_all_its_pods(cluster: JobCluster) -> None:
    """FailureTarget first (A18.1), then Failed once nothing runs any more."""
    await cluster.switch(ON)
    await cluster.submit(parallelism=2, completions=2, backoffLimit=3, **policy(BUGS))
    job = await cluster.finished()
    name = cluster.kubelet.created[1].metadata.name
    message = (
        f"Container main for pod default/{name} failed with exit code 39 "
        "matching Terminate rule at index 0"
    )
    assert conditions(job) == failed(("BackoffPolicy", message))
    assert (job.status.failed, job.status.terminating) == (2, 0)
    assert len(cluster.kubelet.created) == 2
    assert cluster.event_log.events[-1] == ("Warning", "BackoffPolicy", message)
    deleted, failure = attempts.recorded(job.metadata.annotations)
    assert deleted["pod"] == cluster.kubelet.created[0].metadata.name
    assert deleted["jobFailed"] == "BackoffPolicy"
    assert failure | {
        "uid": "",
        "node": "",
        "finished": "",
    } == {
        "pod": name,
        "uid": "",
        "node": "",
        "finished": "",
        "action": "Terminate",
        "rule": 0,
        "container": "main",
        "exitCode": 39,
    }
    labels = {"completion_mode": "NonIndexed", "result": "failed", "reason": "BackoffPolicy"}
    value = cluster.metrics.get_sample_value
    assert value("job_controller_jobs_finished_total", labels) == 1
    metric = "job_controller_pod_failures_handled_by_failure_policy_total"
    assert value(metric, {"action": "Terminate"}) == 1


@virtual(JobCluster, job_cluster.in_turn(exits(40), exits(50), exits(45), exits(41)), seeds=20)
async def test_known_codes_count_and_others_end_the_job(cluster: JobCluster) -> None:
    """Story 1: retried up to the limit, unless the failure is a bug."""
    await cluster.switch(ON)
    await cluster.submit(backoffLimit=3, **policy(BUGS))
    job = await cluster.finished()
    assert conditions(job) == failed(OVER_LIMIT)
    assert job.status.failed == 4


@virtual(JobCluster, job_cluster.in_turn(FOREVER, FOREVER, OK), seeds=20)
async def test_disruptions_are_replaced_and_not_counted(cluster: JobCluster) -> None:
    """Story 2: a Job with no failure to spare survives any number of disruptions."""
    await cluster.switch(ON)
    await cluster.submit(backoffLimit=0, **policy(DISRUPTIONS))
    for turn, reason in enumerate(["Preemption", "TaintEviction"]):
        while len(cluster.kubelet.created) == turn:
            await cluster.sleep(1)
        await cluster.sleep(5)
        await delete(cluster, cluster.kubelet.created[turn], reason)
    job = await cluster.finished()
    assert conditions(job) == completed(DONE)
    assert (job.status.failed, len(cluster.kubelet.created)) == (0, 3)
    records = attempts.recorded(job.metadata.annotations)
    assert [(each["action"], each["reason"]) for each in records] == [
        ("Ignore", "Preemption"),
        ("Ignore", "TaintEviction"),
    ]
    first = cluster.kubelet.created[0].metadata.name
    assert told(cluster, "PodFailureJudged")[0] == (
        f"{first}: reason Preemption matching Ignore rule at index 0"
    )


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_a_plain_delete_counts(cluster: JobCluster) -> None:
    await cluster.switch(ON)
    await cluster.submit(backoffLimit=0, **policy(DISRUPTIONS))
    await cluster.sleep(5)
    await delete(cluster, cluster.kubelet.created[0])
    assert conditions(await cluster.finished()) == failed(OVER_LIMIT)


@virtual(
    JobCluster,
    job_cluster.in_turn(Run(seconds=FOREVER.seconds, stop_seconds=60, stop_code=39)),
    seeds=10,
)
async def test_a_pod_is_judged_when_it_has_ended_and_not_before(cluster: JobCluster) -> None:
    """The pod is deleted for a reason, but ends with a code that is a bug."""
    await cluster.switch(ON)
    await cluster.submit(backoffLimit=3, **policy(BUGS, DISRUPTIONS))
    await cluster.sleep(5)
    await delete(cluster, cluster.kubelet.created[0], "Preemption")
    await cluster.sleep(30)
    job = await cluster.job()
    assert (job.status.terminating, job.status.failed) == (1, 0)
    assert len(cluster.kubelet.created) == 1
    assert (await cluster.finished()).status.conditions is not None
    assert conditions(await cluster.job())[0][:2] == ("FailureTarget", "BackoffPolicy")


# -- crashes -----------------------------------------------------------------------

# One that runs, one that must not count, and one that ends the Job.
RUNS = job_cluster.in_turn(FOREVER, exits(7), exits(39))
RULES = policy({"action": "Ignore", "containerExitCodeIn": "1-9"}, BUGS)


async def disturbed(sim: Sim, disturb: Callable[[JobCluster], object]) -> tuple[Ending, int]:
    """How such a Job ends, and the number of writes until then."""
    async with JobCluster(sim, RUNS) as cluster:
        await cluster.switch(ON)
        client = cluster.faulty
        disturb(cluster)
        await cluster.submit(parallelism=2, completions=2, backoffLimit=0, **RULES)
        return await ending(cluster), client.writes


def dies(number: int, *, after: bool) -> Callable[[JobCluster], object]:
    def disturb(cluster: JobCluster) -> None:
        client = cluster.faulty
        client.dies_at, client.dies_after = number, after
        cluster.spawn(cluster.restart_when_dead(client))

    return disturb


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_changes_nothing(*, after: bool) -> None:
    want, writes = run(partial(disturbed, disturb=lambda _: None), seed=1)
    assert [reason for _, reason, _ in want["conditions"]] == ["BackoffPolicy"] * 2
    assert want["counts"][:2] == (0, 2)
    for number in range(1, writes + 1):
        ending, _ = run(partial(disturbed, disturb=dies(number, after=after)), seed=1)
        assert ending == want, f"killed at write {number}"


# -- on Kubernetes -----------------------------------------------------------------


@virtual(JobCluster, job_cluster.in_turn(exits(42), exits(39)), seeds=10)
async def test_an_annotation_is_a_policy(cluster: JobCluster) -> None:
    """A server without the field, and a manager with the gate."""
    await cluster.switch(ON, server=OFF)
    await cluster.submit(suspend=True)
    text = "rules: [{action: Terminate, containerExitCodeNotIn: 40-50}]"
    await annotate(cluster, text)
    await cluster.change(suspend=False)
    job = await cluster.finished()
    assert conditions(job)[0][:2] == ("FailureTarget", "BackoffPolicy")
    assert job.status.failed == 2


@virtual(JobCluster, seeds=10)
async def test_nothing_starts_while_the_annotation_is_wrong(cluster: JobCluster) -> None:
    await cluster.switch(ON, server=OFF)
    await cluster.submit(suspend=True)
    await annotate(cluster, "rules: [{action: Terminate, containerExitCodeIn: 9-1}]")
    await cluster.change(suspend=False)
    await cluster.sleep(60)
    assert cluster.kubelet.created == []
    assert told(cluster, "InvalidBackoffPolicy")[0] == (
        "Skipped Job sync because its backoff policy is wrong: "
        "metadata.annotations[refloat.dev/backoff-policy].rules[0].containerExitCodeIn: "
        'Invalid value: "9-1": the range "9-1" ends before it begins'
    )
    await annotate(cluster, "rules: [{action: Terminate, containerExitCodeIn: 1-9}]")
    assert conditions(await cluster.finished()) == completed(DONE)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=10)
async def test_a_job_that_is_deleted_goes_whatever_its_annotation_says(cluster: JobCluster) -> None:
    await cluster.switch(ON, server=OFF)
    await cluster.submit()
    await cluster.sleep(5)
    await annotate(cluster, "not: right")
    await cluster.client.delete(
        kinds.JOBS, "job", namespace=NAMESPACE, options=DeleteOptions(propagation="Foreground")
    )
    await cluster.sleep(30)
    [pod] = await cluster.pods()
    assert pod.metadata.finalizers in (None, ())


@virtual(
    JobCluster, job_cluster.in_turn(Run(seconds=FOREVER.seconds, stop_seconds=60), FAILS), seeds=10
)
async def test_a_job_that_is_decided_ends_whatever_its_annotation_says(cluster: JobCluster) -> None:
    await cluster.switch(ON, server=OFF)
    await cluster.submit(parallelism=2, completions=2, backoffLimit=0)
    while not (await cluster.job()).status.conditions:
        await cluster.sleep(1)
    await annotate(cluster, "not: right")
    assert conditions(await cluster.finished()) == failed(OVER_LIMIT)


@virtual(JobCluster, job_cluster.in_turn(FOREVER, OK), seeds=10)
async def test_a_reason_in_an_annotation_of_the_pod_is_one(cluster: JobCluster) -> None:
    """What a stock server has no place for, written before the delete."""
    await cluster.switch(ON)
    await cluster.submit(backoffLimit=0, **policy(DISRUPTIONS))
    await cluster.sleep(5)
    [pod] = cluster.kubelet.created
    patch = {"metadata": {"annotations": {pod_reason.ANNOTATION: "Maintenance"}}}
    await cluster.client.patch(kinds.PODS, pod.metadata.name, patch, namespace=NAMESPACE)
    await delete(cluster, pod)
    assert conditions(await cluster.finished()) == completed(DONE)


# -- the gate ----------------------------------------------------------------------


async def story_1(cluster: JobCluster, name: str) -> tuple[str, int]:
    """A bug, then a success, with failures to spare."""
    try:
        await cluster.submit(name, backoffLimit=3, **policy(BUGS))
    except errors.ClientError as error:
        return str(error), 0
    return await end_of(cluster, name)


async def story_2(cluster: JobCluster, name: str) -> tuple[str, int]:
    """A disruption, then a success, without a failure to spare."""
    await cluster.submit(name, backoffLimit=0, **policy(DISRUPTIONS))
    await cluster.sleep(5)
    pod = next(each for each in cluster.kubelet.created if each.metadata.name.startswith(name))
    await delete(cluster, pod, "Preemption")
    return await end_of(cluster, name)


async def end_of(cluster: JobCluster, name: str) -> tuple[str, int]:
    job: Job = await cluster.finished(name)
    _, (_, reason, _) = conditions(job)
    return reason, job.status.failed


STORIES = {"story-1": story_1, "story-2": story_2}

ENDS = {
    ("story-1", True): ("BackoffPolicy", 1),
    ("story-1", False): ("CompletionsReached", 1),
    ("story-2", True): ("CompletionsReached", 0),
    ("story-2", False): ("BackoffLimitExceeded", 1),
}


def by_name(pod: Pod, number: int) -> Run:
    if number:
        return OK
    return exits(39) if pod.metadata.name.startswith("story-1") else FOREVER


@pytest.mark.parametrize("name", STORIES)
@virtual(JobCluster, by_name, seeds=3)
async def test_off_on_off_on(cluster: JobCluster, name: str) -> None:
    """Each time as the first time."""
    for turn, on in enumerate([False, True, False, True]):
        await cluster.switch(ON if on else OFF)
        assert await STORIES[name](cluster, f"{name}-{turn}") == ENDS[name, on]


@pytest.mark.parametrize("restarts", [True, False], ids=["restarted", "taken up while it runs"])
@virtual(JobCluster, job_cluster.in_turn(Run(seconds=100, exit_code=39)), seeds=3)
async def test_kept_policy_counts_when_its_gate_is_on(cluster: JobCluster, restarts: bool) -> None:
    """One Job whose pods fail alike: counted, counted, and then the end of the Job."""
    await cluster.switch(ON)
    await cluster.submit(backoffLimit=6, **policy(BUGS))
    await switched(cluster, OFF, restarts=restarts)
    while (await cluster.job()).status.failed < 2:
        await cluster.sleep(1)
    await switched(cluster, ON, restarts=restarts)
    job = await cluster.finished()
    assert conditions(job)[0][:2] == ("FailureTarget", "BackoffPolicy")
    assert job.status.failed == 3


async def switched(cluster: JobCluster, on: Gates, *, restarts: bool) -> None:
    if restarts:
        await cluster.switch(on)
        return
    cluster.server.use(on)
    cluster.process.env.update(gates=on)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_a_delete_says_why_whatever_the_gate(cluster: JobCluster) -> None:
    """KEP: the terminated pods continue to get the status.reason field set."""
    await cluster.switch(OFF)
    await cluster.submit()
    await cluster.sleep(5)
    await delete(cluster, cluster.kubelet.created[0], "Preemption")
    [pod] = await cluster.pods()
    assert pod.status.reason == "Preemption"

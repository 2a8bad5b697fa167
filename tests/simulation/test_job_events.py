# SPDX-License-Identifier: Apache-2.0
"""The events of a Job, word for word (behaviour A22).

Events about single pods, which Kubernetes does not write, are in
`test_job_policies`.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run, Script
from tests.virtual import virtual

INDEXED: dict[str, Any] = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
ON_42 = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}

ENDS: dict[str, tuple[dict[str, Any], Script, tuple[str, str, str]]] = {
    "completed": ({}, job_cluster.in_turn(OK), ("Normal", "Completed", "Job completed")),
    "enough indexes": (
        {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 1}]}},
        job_cluster.by_index(i1=FOREVER),
        ("Normal", "Completed", "Job completed"),
    ),
    "too many failures": (
        {"backoffLimit": 0},
        job_cluster.in_turn(FAILS),
        ("Warning", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    ),
    "too slow": (
        {"activeDeadlineSeconds": 10},
        job_cluster.in_turn(FOREVER),
        ("Warning", "DeadlineExceeded", "Job was active longer than specified deadline"),
    ),
    "a failure that is final": (
        {"podFailurePolicy": {"rules": [ON_42]}},
        job_cluster.in_turn(Run(exit_code=42)),
        (
            "Warning",
            "PodFailurePolicy",
            (
                "Container main for pod default/POD-0 failed with exit code 42 "
                "matching FailJob rule at index 0"
            ),
        ),
    ),
    "too many failed indexes": (
        {**INDEXED, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0},
        job_cluster.by_index(i0=FAILS, i1=FOREVER),
        (
            "Warning",
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        ),
    ),
    "a failed index": (
        {**INDEXED, "backoffLimitPerIndex": 0},
        job_cluster.by_index(i0=FAILS),
        ("Warning", "FailedIndexes", "Job has failed indexes"),
    ),
}


def told(cluster: JobCluster) -> list[tuple[str, str, str]]:
    """Of Kubernetes' own events, with POD-n for the name of the nth pod."""
    names = [pod.metadata.name for pod in cluster.kubelet.created]
    return [
        (kind, reason, _with_numbers(note, names))
        for kind, reason, note in cluster.event_log.events
        if reason != "PodFailureJudged"
    ]


def _with_numbers(note: str, names: list[str]) -> str:
    for number, name in enumerate(names):
        note = note.replace(name, f"POD-{number}")
    return note


@pytest.mark.parametrize("how", ENDS)
@virtual()
async def test_the_end_of_a_job_is_told_last_and_once(sim: Sim, how: str) -> None:
    spec, script, want = ENDS[how]
    async with JobCluster(sim, script) as cluster:
        await cluster.submit(**spec)
        await cluster.finished()
        await cluster.sleep(60)
        assert told(cluster)[-1] == want
        assert told(cluster).count(want) == 1


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=1e9, stop_seconds=100)))
async def test_the_end_is_not_told_before_the_last_pod_has_ended(cluster: JobCluster) -> None:
    """The interim condition has no event: only a condition that stays has (A5.11)."""
    await cluster.submit(activeDeadlineSeconds=10)
    await cluster.sleep(90)
    assert told(cluster) == [
        ("Normal", "SuccessfulCreate", "Created pod: POD-0"),
        ("Normal", "SuccessfulDelete", "Deleted pod: POD-0"),
    ]
    await cluster.finished()
    assert told(cluster)[2:] == [ENDS["too slow"][-1]]


@virtual(JobCluster, job_cluster.in_turn(FOREVER))
async def test_creations_and_deletions_name_the_pod(cluster: JobCluster) -> None:
    await cluster.submit(parallelism=2, completions=9)
    await cluster.sleep(3)
    await cluster.change(parallelism=0)
    await cluster.sleep(3)
    assert sorted(told(cluster)) == [
        ("Normal", "SuccessfulCreate", "Created pod: POD-0"),
        ("Normal", "SuccessfulCreate", "Created pod: POD-1"),
        ("Normal", "SuccessfulDelete", "Deleted pod: POD-0"),
        ("Normal", "SuccessfulDelete", "Deleted pod: POD-1"),
    ]


@virtual(JobCluster, job_cluster.in_turn(FOREVER))
async def test_suspension_and_resumption_are_told_once_each(cluster: JobCluster) -> None:
    await cluster.submit(suspend=True)
    await cluster.sleep(5)
    await cluster.change(suspend=False)
    await cluster.sleep(5)
    await cluster.change(suspend=True)
    await cluster.sleep(5)
    assert told(cluster) == [
        ("Normal", "Suspended", "Job suspended"),
        ("Normal", "SuccessfulCreate", "Created pod: POD-0"),
        ("Normal", "Resumed", "Job resumed"),
        ("Normal", "SuccessfulDelete", "Deleted pod: POD-0"),
        ("Normal", "Suspended", "Job suspended"),
    ]


@cases(
    "error want",
    {
        "a failure is told": (
            errors.Unavailable("try later"),
            [("Warning", "FailedDelete", "Error deleting: try later")],
        ),
        "one that is gone is no failure (A22.1)": (
            errors.NotFound("gone", code=404, reason="NotFound"),
            [],
        ),
    },
)
@virtual(JobCluster, job_cluster.in_turn(FOREVER))
async def test_a_delete_that_failed(
    cluster: JobCluster, error: errors.ClientError, want: list[tuple[str, str, str]]
) -> None:
    requests: list[Request] = []

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        if request.method != "DELETE" or requests:
            return None
        requests.append(request)
        return error

    cluster.faulty.refuses = refuse
    await cluster.submit()
    await cluster.sleep(3)
    await cluster.change(suspend=True)
    await cluster.sleep(20)
    assert requests
    assert [each for each in told(cluster) if each[1] == "FailedDelete"] == want


def refusing(why: str) -> Callable[[Request, int], errors.ClientError | None]:
    """Refuses to create pods as Kubernetes does, which names them."""

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        if request.method != "POST":
            return None
        name = msgspec.json.decode(request.body or b"")["metadata"]["name"]
        return errors.Forbidden(f'pods "{name}" is forbidden: {why}', code=403)

    return refuse


@pytest.mark.parametrize(
    "why",
    [
        "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
        'violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)',
        "maximum cpu usage per Container is 1, but limit is 2",
        "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: pod rejected: no",
    ],
)
@virtual(JobCluster)
async def test_create_that_is_refused_as_it_is_names_the_pod(cluster: JobCluster, why: str) -> None:
    cluster.faulty.refuses = refusing(why)
    await cluster.submit()
    await cluster.sleep(0.5)
    [(_, reason, note)] = told(cluster)
    assert reason == "FailedCreate"
    assert re.fullmatch(rf'Error creating: pods "job-\w{{5}}" is forbidden: {re.escape(why)}', note)


@pytest.mark.parametrize(
    "why",
    [
        "no PriorityClass with name x was found",
        'error looking up service account default/x: serviceaccount "x" not found',
        'pod rejected: RuntimeClass "x" not found',
        "unable to create new content in namespace default because it is being terminated",
    ],
)
@virtual(JobCluster)
async def test_a_create_that_is_refused_before_it_has_a_name_tells_the_prefix(
    cluster: JobCluster, why: str
) -> None:
    cluster.faulty.refuses = refusing(why)
    await cluster.submit()
    await cluster.sleep(0.5)
    want = f'Error creating: pods "job-" is forbidden: {why}'
    assert told(cluster) == [("Warning", "FailedCreate", want)]


@virtual(JobCluster)
async def test_a_pod_that_is_invalid_is_named(cluster: JobCluster) -> None:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]}
    template = {"metadata": {"finalizers": ["bad finalizer"]}, "spec": spec}
    job = {"metadata": {"name": "job"}, "spec": {"template": template}}
    await cluster.client.create(kinds.JOBS, job, namespace=NAMESPACE)
    await cluster.sleep(0.5)
    [(_, _, note)] = told(cluster)
    assert re.match(r'Error creating: Pod "job-\w{5}" is invalid: \[?metadata\.finalizers', note)


@virtual(JobCluster)
async def test_a_restart_tells_nothing_again(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.finished()
    before = list(cluster.event_log.events)
    await cluster.restart()
    await cluster.sleep(60)
    assert cluster.event_log.events == before


@virtual(seeds=1)
async def test_each_decision_is_logged_with_the_key_of_the_job(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="refloat.controllers.job")
    async with JobCluster(sim, job_cluster.in_turn(job_cluster.FAILS, job_cluster.OK)) as cluster:
        await cluster.submit(completions=1)
        await cluster.finished()
        await cluster.sleep(5)
    lines = [
        each.getMessage()
        for each in caplog.records
        if each.name.startswith("refloat.controllers.job") and each.levelno == logging.DEBUG
    ]
    assert all(line.startswith("job default/job: ") for line in lines)
    text = "\n".join(lines)
    for words in (
        "creates 1 pods (new): 0 active",
        "counts 1 pods whose finalizers go now, 1 of them failures",
        "s after failures: 0 active, 0 terminating, 0 succeeded, 1 failed",
        "has counted 0 succeeded, 1 failed",
        "creates 1 pods (recreate",
        "has ended: CompletionsReached",
    ):
        assert words in text, text


@virtual(seeds=1)
async def test_the_end_of_a_job_with_active_pods_is_logged(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="refloat.controllers.job")
    async with JobCluster(sim, job_cluster.in_turn(job_cluster.FOREVER)) as cluster:
        await cluster.submit(activeDeadlineSeconds=5)
        await cluster.finished()
    assert "job default/job: ends as failed because of DeadlineExceeded: deletes 1" in caplog.text

# SPDX-License-Identifier: Apache-2.0
"""What the Job controller counts of whole lives of Jobs (behaviour A23)."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from prometheus_client import CollectorRegistry

from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run, Script
from tests.virtual import virtual

Values: TypeAlias = dict[tuple[str, ...], float]


def values(registry: CollectorRegistry, name: str) -> Values:
    """All that a counter has, by the values of its labels."""
    values: Values = {}
    for family in registry.collect():
        for sample in family.samples:
            if sample.name == f"job_controller_{name}":
                values[tuple(sample.labels.values())] = sample.value
    return values


def counted(cluster: JobCluster, name: str) -> Values:
    return values(cluster.metrics, name)


EXITS_42 = Run(exit_code=42)
INDEXED: dict[str, Any] = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}


def rule(action: str) -> dict[str, Any]:
    codes = {"operator": "In", "values": [42]}
    return {"podFailurePolicy": {"rules": [{"action": action, "onExitCodes": codes}]}}


ENDS: dict[str, tuple[dict[str, Any], Script, tuple[str, str, str]]] = {
    "all pods succeed": (
        {},
        job_cluster.in_turn(OK),
        ("NonIndexed", "succeeded", "CompletionsReached"),
    ),
    "all indexes succeed": (
        INDEXED,
        job_cluster.in_turn(OK),
        ("Indexed", "succeeded", "CompletionsReached"),
    ),
    "enough indexes succeed": (
        {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
        job_cluster.by_index(i1=FOREVER),
        ("Indexed", "succeeded", "SuccessPolicy"),
    ),
    "too many failures": (
        {"backoffLimit": 0},
        job_cluster.in_turn(FAILS),
        ("NonIndexed", "failed", "BackoffLimitExceeded"),
    ),
    "too slow": (
        {"activeDeadlineSeconds": 10},
        job_cluster.in_turn(FOREVER),
        ("NonIndexed", "failed", "DeadlineExceeded"),
    ),
    "a failure that is final": (
        rule("FailJob"),
        job_cluster.in_turn(EXITS_42),
        ("NonIndexed", "failed", "PodFailurePolicy"),
    ),
    "an index fails": (
        {**INDEXED, "backoffLimitPerIndex": 0},
        job_cluster.by_index(i0=FAILS),
        ("Indexed", "failed", "FailedIndexes"),
    ),
    "too many indexes fail": (
        {**INDEXED, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0},
        job_cluster.by_index(i0=FAILS, i1=FOREVER),
        ("Indexed", "failed", "MaxFailedIndexesExceeded"),
    ),
}


@pytest.mark.parametrize("how", ENDS)
@virtual()
async def test_a_job_that_ends_is_counted_once_with_its_reason(sim: Sim, how: str) -> None:
    spec, script, want = ENDS[how]
    async with JobCluster(sim, script) as cluster:
        await cluster.submit(**spec)
        await cluster.finished()
        await cluster.sleep(60)
        assert counted(cluster, "jobs_finished_total") == {want: 1}


@virtual(JobCluster, job_cluster.in_turn(OK, FAILS))
async def test_the_older_name_of_finished_jobs_has_the_same_values(cluster: JobCluster) -> None:
    """KEP-3329 calls the counter job_finished_total."""
    await cluster.submit("one")
    await cluster.submit("two", backoffLimit=0)
    await cluster.finished("one")
    await cluster.finished("two")
    counts = counted(cluster, "job_finished_total")
    assert counts
    assert counts == counted(cluster, "jobs_finished_total")


@cases(
    "spec script want",
    {
        "one of four fails": (
            {"completions": 3},
            job_cluster.in_turn(FAILS, OK),
            {("NonIndexed", "succeeded"): 3, ("NonIndexed", "failed"): 1},
        ),
        "each index fails once": (
            INDEXED,
            lambda _, number: OK if number else FAILS,
            {("Indexed", "succeeded"): 2, ("Indexed", "failed"): 2},
        ),
        "ignored failures are none": (
            rule("Ignore"),
            job_cluster.in_turn(EXITS_42, EXITS_42, OK),
            {("NonIndexed", "succeeded"): 1},
        ),
        "ended because the Job failed": (
            {"activeDeadlineSeconds": 10, "parallelism": 3},
            job_cluster.in_turn(FOREVER),
            {("NonIndexed", "failed"): 3},
        ),
        "ended because the Job succeeded": (
            {**INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}},
            job_cluster.by_index(i1=FOREVER),
            {("Indexed", "succeeded"): 1},
        ),
    },
)
@virtual()
async def test_pods_are_counted_when_the_job_has_counted_them(
    sim: Sim, spec: dict[str, Any], script: Script, want: Values
) -> None:
    async with JobCluster(sim, script) as cluster:
        await cluster.submit(**spec)
        await cluster.finished()
        assert counted(cluster, "job_pods_finished_total") == want


@pytest.mark.parametrize("action", ["FailJob", "FailIndex", "Ignore", "Count"])
@virtual()
async def test_what_a_policy_did_with_failures_is_counted(sim: Sim, action: str) -> None:
    per_index: dict[str, Any] = {"backoffLimitPerIndex": 1} if action == "FailIndex" else {}
    script = job_cluster.by_index(i0=EXITS_42) if per_index else job_cluster.in_turn(EXITS_42, OK)
    async with JobCluster(sim, script) as cluster:
        await cluster.submit(**INDEXED, **per_index, **rule(action))
        await cluster.finished()
        name = "pod_failures_handled_by_failure_policy_total"
        assert counted(cluster, name) == {(action,): 1 if per_index else 2}


@virtual(JobCluster, job_cluster.in_turn(FAILS, OK))
async def test_failures_that_no_rule_matches_are_not_the_policys(cluster: JobCluster) -> None:
    await cluster.submit(**rule("Ignore"))
    await cluster.finished()
    assert counted(cluster, "pod_failures_handled_by_failure_policy_total") == {}
    assert counted(cluster, "job_pods_finished_total")["NonIndexed", "failed"] == 1


@virtual(JobCluster, job_cluster.in_turn(FAILS, OK))
async def test_ends_that_are_tracked_and_no_longer_come_to_the_same(cluster: JobCluster) -> None:
    await cluster.submit(completions=3, parallelism=2)
    await cluster.finished()
    await cluster.sleep(10)
    name = "terminated_pods_tracking_finalizer_total"
    assert counted(cluster, name) == {("add",): 4, ("delete",): 4}


@virtual(JobCluster, job_cluster.in_turn(OK))
async def test_a_tracked_end_counts_though_the_pod_is_nobodys(cluster: JobCluster) -> None:
    """The pod ended while no controller was there to free it."""
    await cluster.stop()
    pod = {
        "metadata": {"name": "p", "finalizers": ["batch.kubernetes.io/job-tracking"]},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    await cluster.client.create(kinds.PODS, pod, namespace=NAMESPACE)
    await cluster.sleep(20)
    await cluster.restart()
    await cluster.sleep(5)
    name = "terminated_pods_tracking_finalizer_total"
    assert counted(cluster, name) == {("add",): 1, ("delete",): 1}


@cases(
    "spec script want",
    {
        "one limit for all": (INDEXED, job_cluster.in_turn(OK), {("succeeded", "global"): 2}),
        "a limit for each": (
            {**INDEXED, "backoffLimitPerIndex": 0},
            job_cluster.by_index(i0=FAILS),
            {("succeeded", "perIndex"): 1, ("failed", "perIndex"): 1},
        ),
        "no indexes without a Job that has them": ({"completions": 2}, job_cluster.in_turn(OK), {}),
    },
)
@virtual()
async def test_indexes_are_counted_when_they_end(
    sim: Sim, spec: dict[str, Any], script: Script, want: Values
) -> None:
    async with JobCluster(sim, script) as cluster:
        await cluster.submit(**spec)
        await cluster.finished()
        assert counted(cluster, "job_finished_indexes_total") == want


@cases(
    "spec again",
    {
        "by default": ({}, "recreate_terminating_or_failed"),
        "under Failed": ({"podReplacementPolicy": "Failed"}, "recreate_failed"),
        "with a failure policy": (rule("Count"), "recreate_failed"),
    },
)
@virtual(JobCluster, job_cluster.in_turn(FAILS, OK))
async def test_pods_are_new_or_replace_a_failed_one(
    cluster: JobCluster, spec: dict[str, Any], again: str
) -> None:
    """Behaviour A23.2."""
    await cluster.submit(**spec)
    await cluster.finished()
    want = {("new", "succeeded"): 1, (again, "succeeded"): 1}
    assert counted(cluster, "job_pods_creation_total") == want


@virtual(JobCluster)
async def test_a_creation_that_failed_counts_as_both(cluster: JobCluster) -> None:
    """Behaviour A23.3."""

    def refuse(request: Request, number: int) -> errors.ClientError | None:
        is_first = request.method == "POST" and "/pods" in request.path and number == 1
        return errors.Forbidden("no", code=403, reason="Forbidden") if is_first else None

    cluster.faulty.refuses = refuse
    await cluster.submit()
    await cluster.finished()
    want = {("new", "failed"): 1, ("new", "succeeded"): 2}
    assert counted(cluster, "job_pods_creation_total") == want


# -- syncs --------------------------------------------------------------------------


async def waits_for_backoff(cluster: JobCluster) -> None:
    """Pods are missing and will be created later: that counts as creating (A23.1)."""
    await cluster.submit()
    await cluster.sleep(9)


async def scales_down(cluster: JobCluster) -> None:
    await cluster.submit(parallelism=3, completions=9)
    await cluster.sleep(3)
    await cluster.change(parallelism=1)
    await cluster.sleep(3)


async def suspends(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.sleep(3)
    await cluster.change(suspend=True)
    await cluster.sleep(3)


async def deletes(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.sleep(3)
    await cluster.client.delete(kinds.JOBS, "job", namespace=NAMESPACE)
    await cluster.sleep(3)


ACTIONS: dict[str, tuple[Callable[[JobCluster], Any], Script, str, int]] = {
    "waits for a delay": (waits_for_backoff, job_cluster.in_turn(FAILS), "pods_created", 2),
    "scales down": (scales_down, job_cluster.in_turn(FOREVER), "pods_deleted", 1),
    "is suspended": (suspends, job_cluster.in_turn(FOREVER), "pods_deleted", 1),
    "is deleted": (deletes, job_cluster.in_turn(FOREVER), "reconciling", 1),
}


@pytest.mark.parametrize("what", ACTIONS)
@virtual()
async def test_a_sync_says_what_it_did(sim: Sim, what: str) -> None:
    act, script, action, least = ACTIONS[what]
    async with JobCluster(sim, script) as cluster:
        await act(cluster)
        counts = counted(cluster, "job_syncs_total")
        assert counts["NonIndexed", "success", "pods_created"] >= 1
        assert counts["NonIndexed", "success", action] >= least


@virtual(JobCluster, job_cluster.in_turn(FOREVER))
async def test_a_sync_that_has_nothing_to_do_tracks(cluster: JobCluster) -> None:
    await cluster.submit(**INDEXED)
    await cluster.sleep(20)
    counts = counted(cluster, "job_syncs_total")
    assert set(counts) == {
        ("Indexed", "success", "pods_created"),
        ("Indexed", "success", "tracking"),
    }
    assert counts["Indexed", "success", "pods_created"] == 1


@virtual(JobCluster)
async def test_a_sync_that_failed_is_an_error(cluster: JobCluster) -> None:
    def refuse(request: Request, _: int) -> errors.ClientError | None:
        if not request.path.partition("?")[0].endswith("/status"):
            return None
        return errors.Conflict("no", code=409, reason="Conflict")

    cluster.faulty.refuses = refuse
    await cluster.submit()
    await cluster.sleep(3)
    assert counted(cluster, "job_syncs_total")["NonIndexed", "error", "pods_created"] >= 1


@virtual(JobCluster)
async def test_each_sync_is_timed_in_kubernetes_buckets(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.finished()
    syncs = counted(cluster, "job_syncs_total")
    assert counted(cluster, "job_sync_duration_seconds_count") == syncs
    bounds = [labels[-1] for labels in counted(cluster, "job_sync_duration_seconds_bucket")]
    want = [str(0.004 * 2**power) for power in range(15)] + ["+Inf"]
    assert bounds == want * len(syncs)


@virtual(JobCluster)
async def test_jobs_of_other_controllers_are_counted(cluster: JobCluster) -> None:
    await cluster.submit("a", managedBy="example.com/other")
    await cluster.submit("b", managedBy="example.com/other")
    await cluster.submit("c", managedBy="refloat.dev/job-controller")
    await cluster.submit("d", managedBy="kubernetes.io/job-controller")
    await cluster.submit("e")
    for ours in ("c", "d", "e"):
        await cluster.finished(ours)
    await cluster.change("a", parallelism=3)
    await cluster.sleep(3)
    want = {("Other",): 2}
    assert counted(cluster, "jobs_by_external_controller_total") == want


@virtual(JobCluster, job_cluster.in_turn(FAILS, OK), seeds=3)
async def test_syncs_that_a_stale_cache_put_off_are_counted(cluster: JobCluster) -> None:
    cluster.watch_faults.lag = 5.0
    await cluster.submit(completions=3, parallelism=3)
    await cluster.finished()
    counts = counted(cluster, "stale_sync_skips_total")
    assert set(counts) <= {("batch", "jobs"), ("", "pods")}
    assert sum(counts.values()) > 0

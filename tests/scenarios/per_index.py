# SPDX-License-Identifier: Apache-2.0
"""Indexes that fail for themselves: backoffLimitPerIndex and maxFailedIndexes."""

from refloat.api.meta import Object
from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import (
    BACKOFF_LIMIT,
    FAILED_INDEXES,
    FOREVER,
    REACHED,
    TOO_MANY_FAILED_INDEXES,
    ends,
    in_turn,
    over,
    policy,
    rule,
    scenario,
)

FINALIZER = "batch.kubernetes.io/job-tracking"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def counts(pod: Object) -> tuple[str | None, str | None]:
    """What a pod knows of the failures of its index before it."""
    annotations = pod["metadata"]["annotations"]
    return annotations.get(FAILURES), annotations.get(IGNORED)


@scenario
async def an_index_that_fails_leaves_the_others_alone(ns: ScenarioNamespace) -> None:
    """behaviour A12.5, A12.11"""
    await ns.submit(
        completionMode="Indexed",
        completions=3,
        parallelism=3,
        backoffLimitPerIndex=0,
        simulate={"main": ends(seconds=3), "main/1": ends(1)},
    )
    await over(
        ns,
        "Failed",
        FAILED_INDEXES,
        failed=1,
        succeeded=2,
        failedIndexes="1",
        completedIndexes="0,2",
    )
    assert len(ns.pods) == 3


@scenario
async def an_index_has_its_own_retries(ns: ScenarioNamespace) -> None:
    """behaviour A12.5, A12.7, A12.8"""
    await ns.submit(
        completionMode="Indexed",
        completions=2,
        parallelism=2,
        backoffLimitPerIndex=1,
        simulate={"main": ends(), "main/1": ends(1)},
    )
    await over(
        ns,
        "Failed",
        FAILED_INDEXES,
        failed=2,
        succeeded=1,
        failedIndexes="1",
        completedIndexes="0",
    )
    assert [counts(ns.pod(1, number)) for number in (0, 1)] == [("0", None), ("1", None)]


@scenario
async def an_index_that_succeeds_in_the_end_is_no_failed_one(ns: ScenarioNamespace) -> None:
    """behaviour A5.6, A12.7"""
    await ns.submit(
        completionMode="Indexed",
        completions=2,
        parallelism=2,
        backoffLimitPerIndex=1,
        simulate={"main": ends(), "main/0": in_turn(1, 0)},
    )
    await over(
        ns,
        "Complete",
        REACHED,
        failed=1,
        succeeded=2,
        completedIndexes="0,1",
        failedIndexes="",
    )


def is_kept(ns: ScenarioNamespace) -> bool:
    """Is there a failed pod that the Job knows of, and has not counted?"""
    status = ns.status()
    return (
        len(ns.pods) == 1
        and ns.pod(0)["status"]["phase"] == "Failed"
        and ns.pod(0)["metadata"].get("finalizers") == [FINALIZER]
        and "startTime" in status
        and not (status.get("active") or status.get("failed"))
    )


@scenario
async def a_failed_pod_keeps_its_finalizer_until_its_index_has_another(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A12.9"""
    await ns.submit(
        completionMode="Indexed",
        completions=1,
        backoffLimitPerIndex=2,
        simulate={"main": [ends(1), FOREVER]},
    )
    await ns.wait_until(is_kept)
    await ns.runs(1)
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    await ns.wait_until(lambda state: "finalizers" not in state.pod(0, 0)["metadata"])


@scenario
async def one_failed_index_too_many_ends_the_job(ns: ScenarioNamespace) -> None:
    """behaviour A12.10"""
    await ns.submit(
        completionMode="Indexed",
        completions=4,
        parallelism=4,
        backoffLimitPerIndex=0,
        maxFailedIndexes=1,
        simulate={"main": FOREVER, "main/0": ends(1, seconds=2), "main/2": ends(1, seconds=5)},
    )
    await over(ns, "Failed", TOO_MANY_FAILED_INDEXES, failed=4, succeeded=0, failedIndexes="0,2")
    assert len(ns.pods) == 4


@scenario
async def no_failed_index_may_be_allowed(ns: ScenarioNamespace) -> None:
    """behaviour A12.10"""
    await ns.submit(
        completionMode="Indexed",
        completions=3,
        parallelism=3,
        backoffLimitPerIndex=0,
        maxFailedIndexes=0,
        simulate={"main": FOREVER, "main/2": ends(1, seconds=3)},
    )
    await over(ns, "Failed", TOO_MANY_FAILED_INDEXES, failed=3, failedIndexes="2")


@scenario
async def the_limit_of_the_job_still_counts_all_failures(ns: ScenarioNamespace) -> None:
    """behaviour A12.4"""
    await ns.submit(
        completionMode="Indexed",
        completions=4,
        parallelism=4,
        backoffLimit=1,
        backoffLimitPerIndex=0,
        simulate={"main": FOREVER, "main/0": ends(1, seconds=2), "main/1": ends(1, seconds=5)},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=4, failedIndexes="0,1")


@scenario
async def a_rule_fails_an_index_without_a_retry(ns: ScenarioNamespace) -> None:
    """behaviour A15.6, A12.5; KEP-3850's FailIndex as KEP-3329 has it"""
    await ns.submit(
        completionMode="Indexed",
        completions=2,
        parallelism=2,
        backoffLimitPerIndex=5,
        podFailurePolicy=policy(rule("FailIndex", 42)),
        simulate={"main": ends(seconds=3), "main/1": ends(42)},
    )
    await over(
        ns,
        "Failed",
        FAILED_INDEXES,
        failed=1,
        succeeded=1,
        failedIndexes="1",
        completedIndexes="0",
    )
    assert len(ns.pods) == 2


@scenario
async def an_ignored_failure_of_an_index_is_counted_apart(ns: ScenarioNamespace) -> None:
    """behaviour A8.9, A12.7, A15.6"""
    await ns.submit(
        completionMode="Indexed",
        completions=1,
        backoffLimitPerIndex=0,
        podFailurePolicy=policy(rule("Ignore", 7)),
        simulate={"main": in_turn(7, 0)},
    )
    await over(ns, "Complete", REACHED, failed=0, succeeded=1, completedIndexes="0")
    assert counts(ns.pod(0, 0)) == ("0", None)
    assert counts(ns.pod(0, 1)) == ("0", "1")


@scenario
async def an_index_in_back_off_holds_its_place(ns: ScenarioNamespace) -> None:
    """behaviour A7.7: with a parallelism of one, index 1 waits for the retry of index 0"""
    await ns.submit(
        completionMode="Indexed",
        completions=2,
        parallelism=1,
        backoffLimitPerIndex=1,
        simulate={"main": ends(), "main/0": in_turn(1, 0)},
    )
    await over(ns, "Complete", REACHED, failed=1, succeeded=2, completedIndexes="0,1")
    hostnames = [pod["spec"]["hostname"] for pod in ns.pods.values()]
    assert hostnames == ["job-0", "job-0", "job-1"]


@scenario
async def a_rule_that_fails_the_job_overrules_limits_of_indexes(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A4.11, A15.7"""
    await ns.submit(
        completionMode="Indexed",
        completions=3,
        parallelism=3,
        backoffLimitPerIndex=5,
        podFailurePolicy=policy(rule("FailJob", 42)),
        simulate={"main": FOREVER, "main/1": ends(42, seconds=3)},
    )
    await ns.finished()
    name = ns.pod(1)["metadata"]["name"]
    message = (
        f"Container main for pod {ns.name}/{name} failed with exit code 42 "
        "matching FailJob rule at index 0"
    )
    await over(ns, "Failed", ("PodFailurePolicy", message), failed=3, succeeded=0)

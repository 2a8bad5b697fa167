# SPDX-License-Identifier: Apache-2.0
"""What can happen to a Job, each as small as possible: tests run them hundreds of times.

Made so that a controller that forgot, counted or deleted something twice
would end otherwise: limits are tight, and pods that must not count would
exceed them.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.policy.job import attempts, pod_state
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run, Script
from tests.simulation.job_history import Checker, History

Ending: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[[JobCluster], Awaitable[None]]

LABELS = {"app": "x"}
IGNORED_CODE = 3


async def submit_and_wait(_: JobCluster) -> None:
    """Nothing else happens."""


async def ending(cluster: JobCluster) -> Ending:
    """How a Job ended, without the times."""
    job = await cluster.finished()
    status = job.status
    await cluster.sleep(10)
    assert not any(pod_state.is_tracked(pod) for pod in await cluster.pods())
    return {
        "conditions": [
            (each.type, each.reason, re.sub(r"default/\S+", "default/...", each.message))
            for each in status.conditions or ()
        ],
        "counts": (status.succeeded, status.failed, status.active, status.terminating),
        "indexes": (status.completed_indexes, status.failed_indexes),
        "attempts": sorted(map(_attempt, attempts.recorded(job.metadata.annotations))),
        "pods": len(cluster.kubelet.created),
    }


def _attempt(entry: Object) -> str:
    """What was decided about a failure; not when, and so not with which exit code, which a pod
    that is not waited for may have had by then."""
    fields = ("index", "action", "rule", "condition", "reason")
    return str({name: entry[name] for name in fields if name in entry})


async def gone(cluster: JobCluster) -> Ending:
    """How the pods of a Job ended that is gone, or will be as soon as they are."""
    await cluster.sleep(30)
    try:
        counts: object = (await cluster.job()).status.failed
    except errors.NotFound:
        counts = "none"
    pods = await cluster.pods()
    return {
        "counts": counts,
        "tracked": [pod.metadata.name for pod in pods if pod_state.is_tracked(pod)],
        "pods": len(cluster.kubelet.created),
    }


@dataclass(frozen=True)
class JobScenario:
    spec: Object
    script: Script = job_cluster.ALL_END_WELL
    act: Act = submit_and_wait
    ending: Callable[[JobCluster], Awaitable[Ending]] = ending
    prepare: Act = submit_and_wait
    """What is there before the Job."""

    def ignores(self, pod: Pod) -> bool:
        terminations = [each.state.terminated for each in pod.status.container_statuses or ()]
        return "podFailurePolicy" in self.spec and any(
            each is not None and each.exit_code == IGNORED_CODE for each in terminations
        )

    async def run(self, cluster: JobCluster) -> Ending:
        await self.prepare(cluster)
        await cluster.submit(**self.spec)
        await self.act(cluster)
        return await self.ending(cluster)


def of(
    *, script: Script = job_cluster.ALL_END_WELL, act: Act = submit_and_wait, **spec: Any
) -> JobScenario:
    return JobScenario(spec, script, act)


def indexed(completions: int, **more: Any) -> dict[str, Any]:
    spec = {"completionMode": "Indexed", "completions": completions, "parallelism": completions}
    return {**spec, **more}


def rule(action: str, code: int) -> Object:
    return {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}


def policy(*rules: Object) -> Object:
    return {"podFailurePolicy": {"rules": list(rules)}}


def replaces(when: str) -> Object:
    return {"podReplacementPolicy": when}


async def checked(cluster: JobCluster, scenario: JobScenario) -> Ending:
    """How the scenario ends; what must hold all along, held."""
    history = History(cluster.client)
    history.start()
    try:
        ending = await scenario.run(cluster)
        await cluster.sleep(1)
    finally:
        await history.close()
    Checker(scenario.ignores).walk(history)
    return ending


# -- what users do ----------------------------------------------------------------


async def suspend_and_resume(cluster: JobCluster) -> None:
    await cluster.sleep(3)
    await cluster.change(suspend=True)
    await cluster.sleep(20)
    await cluster.change(suspend=False)


def scale(parallelism: int) -> Act:
    async def act(cluster: JobCluster) -> None:
        await cluster.sleep(3)
        await cluster.change(parallelism=parallelism)

    return act


async def shrink(cluster: JobCluster) -> None:
    """Behaviour A7.5: indexes go, the completed ones among them."""
    await cluster.sleep(8)
    await cluster.change(completions=2, parallelism=2)


async def delete_a_pod(cluster: JobCluster) -> None:
    await cluster.sleep(3)
    await cluster.delete(cluster.kubelet.created[0].metadata.name)


def delete_pod_of(index: int | None, *, at: float) -> Act:
    """Of the first pods, that with this index; the first one of a Job without."""

    async def act(cluster: JobCluster) -> None:
        await cluster.sleep(at)
        pods = (p for p in cluster.kubelet.created if pod_state.completion_index(p) == index)
        await cluster.delete(next(pods).metadata.name)

    return act


def delete_as_another_ends(index: int | None) -> Act:
    async def act(cluster: JobCluster) -> None:
        while not any(pod.is_terminal for pod in await cluster.pods()):
            await cluster.sleep(0.1)
        await delete_pod_of(index, at=0)(cluster)

    return act


async def relabel_a_pod(cluster: JobCluster) -> None:
    await cluster.sleep(3)
    labels = {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": None}}}
    name = cluster.kubelet.created[0].metadata.name
    await cluster.client.patch(kinds.PODS, name, labels, namespace=NAMESPACE)


def delete_the_job(how: Any) -> Act:
    async def act(cluster: JobCluster) -> None:
        await cluster.sleep(3)
        options = DeleteOptions(propagation=how)
        await cluster.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=options)

    return act


async def a_stray_pod(cluster: JobCluster) -> None:
    spec = {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}
    pod = {"metadata": {"name": "stray", "labels": LABELS}, "spec": spec}
    await cluster.client.create(kinds.PODS, pod, namespace=NAMESPACE)
    await cluster.sleep(20)  # until every cache has the Job


# -- the scenarios ----------------------------------------------------------------

TWO: Object = {"completions": 2, "parallelism": 2}
STRAGGLER = job_cluster.in_turn(FAILS, FOREVER)
FIRST_TWO_STAY = job_cluster.in_turn(FOREVER, FOREVER, OK)
POLITE = Run(seconds=1e9, stop_seconds=20, stop_code=0)
PROMPT = Run(seconds=1e9, stop_seconds=0, stop_code=0)

ENOUGH: Object = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}

BOTH = ("Failed", "TerminatingOrFailed")

SCENARIOS: dict[str, JobScenario] = {
    "plain": of(**TWO),
    "plain, indexed": of(**indexed(2)),
    "a work queue": of(parallelism=2),
    "a retry": of(script=job_cluster.in_turn(FAILS, OK), completions=1, backoffLimit=1),
    "a rule that fails the Job": of(
        script=job_cluster.in_turn(Run(exit_code=42), FOREVER),
        **TWO,
        **policy(rule("Ignore", 143), rule("FailJob", 42)),
    ),
    "a rule that ignores": of(
        script=job_cluster.in_turn(Run(exit_code=IGNORED_CODE), OK),
        backoffLimit=0,
        **policy(rule("Ignore", IGNORED_CODE)),
    ),
    "a rule that counts": of(
        script=job_cluster.in_turn(FAILS, OK), backoffLimit=1, **policy(rule("Count", 1))
    ),
    "a rule that fails an index": of(
        script=job_cluster.by_index(i1=Run(exit_code=42)),
        **indexed(2, backoffLimitPerIndex=1),
        **policy(rule("FailIndex", 42)),
    ),
    "an index that fails": of(
        script=job_cluster.by_index(i1=FAILS), **indexed(2, backoffLimitPerIndex=1)
    ),
    "too many failed indexes": of(
        script=job_cluster.by_index(i0=FAILS, i1=FOREVER),
        **indexed(2, backoffLimitPerIndex=0, maxFailedIndexes=0),
    ),
    "a smaller number of indexes": of(
        script=job_cluster.by_index(i0=Run(seconds=30), i1=Run(seconds=30), i3=FOREVER),
        act=shrink,
        **indexed(4),
    ),
    "a larger parallelism": of(act=scale(3), completions=3, parallelism=1),
    "a pod of other labels": of(script=job_cluster.in_turn(FOREVER, OK), act=relabel_a_pod),
    "a Job deleted in the background": JobScenario(
        TWO, job_cluster.in_turn(FOREVER), delete_the_job("Background"), gone
    ),
    "a Job deleted in the foreground": JobScenario(
        TWO, job_cluster.in_turn(FOREVER), delete_the_job("Foreground"), gone
    ),
    "a Job deleted, its pods orphaned": JobScenario(
        TWO, job_cluster.in_turn(FOREVER), delete_the_job("Orphan"), gone
    ),
    "a stray pod": JobScenario(
        {"manualSelector": True, "selector": {"matchLabels": LABELS}, "labels": LABELS},
        prepare=a_stray_pod,
    ),
}

for _when in BOTH:
    SCENARIOS |= {
        f"a limit, {_when}": of(script=STRAGGLER, backoffLimit=0, **TWO, **replaces(_when)),
        f"a deadline, {_when}": of(
            script=job_cluster.in_turn(FOREVER),
            activeDeadlineSeconds=4,
            backoffLimit=0,
            **TWO,
            **replaces(_when),
        ),
        f"enough indexes, {_when}": of(
            script=job_cluster.by_index(i1=FOREVER),
            **indexed(2, backoffLimitPerIndex=0, **replaces(_when)),
            **ENOUGH,
        ),
        f"a deadline and pods that end well, {_when}": of(
            script=job_cluster.in_turn(PROMPT), activeDeadlineSeconds=4, **TWO, **replaces(_when)
        ),
        f"enough indexes and pods that end well, {_when}": of(
            script=job_cluster.by_index(i1=PROMPT), **indexed(2, **replaces(_when)), **ENOUGH
        ),
        f"a suspension, {_when}": of(
            script=FIRST_TWO_STAY, act=suspend_and_resume, backoffLimit=0, **TWO, **replaces(_when)
        ),
        f"a smaller parallelism, {_when}": of(
            script=job_cluster.in_turn(Run(seconds=60)),
            act=scale(1),
            completions=2,
            parallelism=2,
            backoffLimit=0,
            **replaces(_when),
        ),
        f"a pod deleted by hand, {_when}": of(
            script=job_cluster.in_turn(FOREVER, OK),
            act=delete_a_pod,
            backoffLimit=1,
            **replaces(_when),
        ),
        f"a pod of an index deleted by hand, {_when}": of(
            script=job_cluster.in_turn(POLITE, OK),
            act=delete_a_pod,
            **indexed(1),
            **replaces(_when),
        ),
    }

# -- what ends in the second before the controller decides that the Job is over -----

THREE: Object = {"completions": 3, "parallelism": 3}
FAILS_THEN = Run(seconds=7.2, exit_code=1)


def stopped(code: int) -> Run:
    """Deleted after 4 seconds, the pod ends after 8."""
    return Run(seconds=1e9, stop_seconds=4, stop_code=code)


RACES: dict[str, JobScenario] = {
    "a pod deleted by hand ends well as another fails": of(
        script=job_cluster.in_turn(stopped(0), FAILS_THEN, FOREVER),
        act=delete_pod_of(None, at=4),
        backoffLimit=0,
        **THREE,
        **replaces("Failed"),
    ),
    "a pod of an index deleted by hand ends well as another fails": of(
        script=job_cluster.by_index(i0=stopped(0), i1=FAILS_THEN, i2=FOREVER),
        act=delete_pod_of(0, at=4),
        backoffLimit=0,
        **indexed(3, **replaces("Failed")),
    ),
    "a pod deleted by hand ends with an ignored code as another fails": of(
        script=job_cluster.in_turn(stopped(IGNORED_CODE), FAILS_THEN, FOREVER),
        act=delete_pod_of(None, at=4),
        backoffLimit=0,
        **THREE,
        **policy(rule("Ignore", IGNORED_CODE)),
    ),
    "a pod deleted by hand ends with a code that fails the Job": of(
        script=job_cluster.in_turn(stopped(42), stopped(0), FOREVER),
        act=delete_pod_of(None, at=4),
        **THREE,
        **policy(rule("FailJob", 42)),
    ),
    "an evicted pod waits for its index, enough indexes": of(
        script=job_cluster.by_index(i0=Run(seconds=12), i1=stopped(1), i2=FOREVER),
        act=delete_pod_of(1, at=4),
        **indexed(3, backoffLimitPerIndex=3, **replaces("Failed")),
        **ENOUGH,
    ),
    "an evicted pod waits for its index, its code ignored, as another fails": of(
        script=job_cluster.by_index(
            i0=Run(seconds=12, exit_code=42), i1=stopped(IGNORED_CODE), i2=FOREVER
        ),
        act=delete_pod_of(1, at=4),
        **indexed(3, backoffLimitPerIndex=3),
        **policy(rule("Ignore", IGNORED_CODE), rule("FailJob", 42)),
    ),
}
"""A pod that a user deletes, and another that ends the Job. The end depends on which of both is
seen first, so they are not for caches that are behind."""

for _when in BOTH:
    RACES |= {
        f"a pod deleted by hand has not ended as another fails, {_when}": of(
            script=job_cluster.in_turn(POLITE, FAILS, FOREVER),
            act=delete_as_another_ends(None),
            backoffLimit=0,
            **THREE,
            **replaces(_when),
        ),
        f"a pod deleted by hand has not ended, enough indexes, {_when}": of(
            script=job_cluster.by_index(i0=OK, i1=POLITE, i2=FOREVER),
            act=delete_as_another_ends(1),
            **indexed(3, **replaces(_when)),
            **ENOUGH,
        ),
    }

# SPDX-License-Identifier: Apache-2.0
"""Jobs whose pods are all alike, and how they come to their end."""

from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import FOREVER, MEANWHILE, REACHED, ends, has, over, scenario

FINALIZER = "batch.kubernetes.io/job-tracking"


@scenario
async def one_pod_completes_a_job(ns: ScenarioNamespace) -> None:
    """behaviour A6.1, A18, A22"""
    await ns.submit()
    await over(ns, "Complete", REACHED, succeeded=1, failed=0, active=0)
    assert "completionTime" in ns.status()


@scenario
async def each_completion_takes_a_pod_of_its_own(ns: ScenarioNamespace) -> None:
    """behaviour A6.1, A8.1"""
    await ns.submit(completions=3, parallelism=2)
    await over(ns, "Complete", REACHED, succeeded=3)
    assert len(ns.pods) == 3
    assert ns.most_at_once() == 2


@scenario
async def no_more_pods_are_made_than_completions(ns: ScenarioNamespace) -> None:
    """behaviour A8.1"""
    await ns.submit(completions=2, parallelism=5)
    await over(ns, "Complete", REACHED, succeeded=2)
    assert len(ns.pods) == 2


@scenario
async def a_job_without_completions_to_reach_is_complete_at_once(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A6.1"""
    await ns.submit(completions=0)
    await over(ns, "Complete", REACHED, succeeded=0)
    assert ns.pods == {}


@scenario
async def a_job_without_parallelism_makes_no_pods_and_goes_on(ns: ScenarioNamespace) -> None:
    """behaviour A8.1"""
    await ns.submit(completions=1, parallelism=0)
    await ns.wait_until(lambda state: "startTime" in state.status())
    await ns.quiet()
    assert ns.pods == {}
    assert not ns.status().get("conditions")


@scenario
async def a_work_queue_is_done_when_one_succeeded_and_none_runs(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A6.2"""
    await ns.submit(
        parallelism=2, completions=None, simulate={"main": [ends(), ends(seconds=MEANWHILE)]}
    )
    await ns.wait_until(lambda state: state.status().get("succeeded") == 1)
    assert ns.condition("Complete") is None
    await over(ns, "Complete", REACHED, succeeded=2)
    assert len(ns.pods) == 2


@scenario
async def a_work_queue_makes_no_pods_after_a_success_though_one_fails(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A6.2"""
    await ns.submit(
        parallelism=2, completions=None, simulate={"main": [ends(), ends(1, seconds=8)]}
    )
    await over(ns, "Complete", REACHED, succeeded=1, failed=1)
    assert len(ns.pods) == 2


@scenario
async def a_running_job_counts_its_active_and_ready_pods(ns: ScenarioNamespace) -> None:
    """behaviour A3.1, A3.3, A5.14"""
    await ns.submit(completions=3, parallelism=2, simulate={"main": FOREVER})
    await ns.runs(2)
    await ns.wait_until(lambda state: state.status().get("ready") == 2)
    has(ns.status(), active=2, ready=2, terminating=0, succeeded=0, failed=0)


@scenario
async def pods_carry_what_the_template_says_and_the_finalizer(ns: ScenarioNamespace) -> None:
    """behaviour A8.4, A1.1"""
    await ns.submit(
        simulate={"main": FOREVER},
        labels={"team": "blue"},
        annotations={"example.com/note": "kept"},
    )
    (pod,) = await ns.runs(1)
    meta = pod["metadata"]
    assert meta["finalizers"] == [FINALIZER]
    assert meta["labels"]["team"] == "blue"
    assert meta["annotations"]["example.com/note"] == "kept"
    (owner,) = meta["ownerReferences"]
    assert owner["uid"] == ns.jobs["job"]["metadata"]["uid"]
    assert owner["controller"] is owner["blockOwnerDeletion"] is True


@scenario
async def names_of_pods_begin_with_the_jobs_and_stay_short(ns: ScenarioNamespace) -> None:
    """behaviour A8.5"""
    long = "j" * 62
    await ns.submit(long)
    await ns.finished(long)
    (pod,) = ns.pods.values()
    name = pod["metadata"]["name"]
    assert len(name) == 63
    assert name[:58] == long[:58]
    assert pod["metadata"]["generateName"] == f"{long}-"


@scenario
async def finalizers_of_the_template_stay_when_a_pod_is_counted(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A8.4, A5.9"""
    await ns.submit(finalizers=["example.com/hold"])
    await over(ns, "Complete", REACHED, succeeded=1)
    await ns.wait_until(
        lambda state: (
            [pod["metadata"]["finalizers"] for pod in state.present] == [["example.com/hold"]]
        )
    )


@scenario
async def more_successes_than_completions_are_told_of(ns: ScenarioNamespace) -> None:
    """behaviour A6.3, A22: pods that succeeded before the Job was there, and are adopted"""
    labels = {"team": "blue"}
    for name in ("one", "two"):
        await ns.create_pod(name, {"labels": dict(labels)}, {"main": ends()})
    await ns.wait_until(lambda state: len(state.pods) == 2 and not state.unfinished)
    await ns.submit(manualSelector=True, selector={"matchLabels": labels}, labels=labels)
    await over(ns, "Complete", REACHED, succeeded=2)
    assert len(ns.pods) == 2


@scenario
async def a_pod_that_cannot_be_made_is_told_of(ns: ScenarioNamespace) -> None:
    """behaviour A8.10, A22"""
    await ns.submit(template={"priorityClassName": "nobodys"})
    await ns.wait_until(lambda state: "startTime" in state.status())
    await ns.quiet()
    has(ns.status(), active=0, failed=0)
    assert ns.pods == {}
    event = await ns.event("FailedCreate")
    refusal = 'pods "job-" is forbidden: no PriorityClass with name nobodys was found'
    assert event["note"] == f"Error creating: {refusal}"

# SPDX-License-Identifier: Apache-2.0
"""Jobs whose pods are all alike, and how they come to their end."""

from tests.scenarios.scenario import FOREVER, MEANWHILE, REACHED, ends, has, over, scenario
from tests.scenarios.stage import Stage

FINALIZER = "batch.kubernetes.io/job-tracking"


@scenario
async def one_pod_completes_a_job(stage: Stage) -> None:
    """behaviour A6.1, A18, A22"""
    await stage.submit()
    await over(stage, "Complete", REACHED, succeeded=1, failed=0, active=0)
    assert "completionTime" in stage.status()


@scenario
async def each_completion_takes_a_pod_of_its_own(stage: Stage) -> None:
    """behaviour A6.1, A8.1"""
    await stage.submit(completions=3, parallelism=2)
    await over(stage, "Complete", REACHED, succeeded=3)
    assert len(stage.pods) == 3
    assert stage.most_unfinished == 2


@scenario
async def no_more_pods_are_made_than_completions(stage: Stage) -> None:
    """behaviour A8.1"""
    await stage.submit(completions=2, parallelism=5)
    await over(stage, "Complete", REACHED, succeeded=2)
    assert len(stage.pods) == 2


@scenario
async def a_job_without_completions_to_reach_is_complete_at_once(stage: Stage) -> None:
    """behaviour A6.1"""
    await stage.submit(completions=0)
    await over(stage, "Complete", REACHED, succeeded=0)
    assert stage.pods == {}


@scenario
async def a_job_without_parallelism_makes_no_pods_and_goes_on(stage: Stage) -> None:
    """behaviour A8.1"""
    await stage.submit(completions=1, parallelism=0)
    await stage.wait_until(lambda seen: "startTime" in seen.status())
    await stage.quiet()
    assert stage.pods == {}
    assert not stage.status().get("conditions")


@scenario
async def a_work_queue_is_done_when_one_succeeded_and_none_runs(stage: Stage) -> None:
    """behaviour A6.2"""
    await stage.submit(
        parallelism=2, completions=None, simulate={"main": [ends(), ends(seconds=MEANWHILE)]}
    )
    await stage.wait_until(lambda seen: seen.status().get("succeeded") == 1)
    assert stage.condition("Complete") is None
    await over(stage, "Complete", REACHED, succeeded=2)
    assert len(stage.pods) == 2


@scenario
async def a_work_queue_makes_no_pods_after_a_success_though_one_fails(stage: Stage) -> None:
    """behaviour A6.2"""
    await stage.submit(
        parallelism=2, completions=None, simulate={"main": [ends(), ends(1, seconds=8)]}
    )
    await over(stage, "Complete", REACHED, succeeded=1, failed=1)
    assert len(stage.pods) == 2


@scenario
async def a_running_job_counts_its_active_and_ready_pods(stage: Stage) -> None:
    """behaviour A3.1, A3.3, A5.14"""
    await stage.submit(completions=3, parallelism=2, simulate={"main": FOREVER})
    await stage.runs(2)
    await stage.wait_until(lambda seen: seen.status().get("ready") == 2)
    has(stage.status(), active=2, ready=2, terminating=0, succeeded=0, failed=0)


@scenario
async def pods_carry_what_the_template_says_and_the_finalizer(stage: Stage) -> None:
    """behaviour A8.4, A1.1"""
    await stage.submit(
        simulate={"main": FOREVER},
        labels={"team": "blue"},
        annotations={"example.com/note": "kept"},
    )
    (pod,) = await stage.runs(1)
    meta = pod["metadata"]
    assert meta["finalizers"] == [FINALIZER]
    assert meta["labels"]["team"] == "blue"
    assert meta["annotations"]["example.com/note"] == "kept"
    (owner,) = meta["ownerReferences"]
    assert owner["uid"] == stage.jobs["job"]["metadata"]["uid"]
    assert owner["controller"] is owner["blockOwnerDeletion"] is True


@scenario
async def names_of_pods_begin_with_the_jobs_and_stay_short(stage: Stage) -> None:
    """behaviour A8.5"""
    long = "j" * 62
    await stage.submit(long)
    await stage.finished(long)
    (pod,) = stage.pods.values()
    name = pod["metadata"]["name"]
    assert len(name) == 63
    assert name[:58] == long[:58]
    assert pod["metadata"]["generateName"] == f"{long}-"


@scenario
async def finalizers_of_the_template_stay_when_a_pod_is_counted(stage: Stage) -> None:
    """behaviour A8.4, A5.9"""
    await stage.submit(finalizers=["example.com/hold"])
    await over(stage, "Complete", REACHED, succeeded=1)
    await stage.wait_until(
        lambda seen: (
            [pod["metadata"]["finalizers"] for pod in seen.present] == [["example.com/hold"]]
        )
    )


@scenario
async def more_successes_than_completions_are_told_of(stage: Stage) -> None:
    """behaviour A6.3, A22: pods that succeeded before the Job was there, and are adopted"""
    labels = {"team": "blue"}
    for name in ("one", "two"):
        await stage.create_pod(name, {"labels": dict(labels)}, {"main": ends()})
    await stage.wait_until(lambda seen: len(seen.pods) == 2 and not seen.unfinished)
    await stage.submit(manualSelector=True, selector={"matchLabels": labels}, labels=labels)
    await over(stage, "Complete", REACHED, succeeded=2)
    assert len(stage.pods) == 2


@scenario
async def a_pod_that_cannot_be_made_is_told_of(stage: Stage) -> None:
    """behaviour A8.10, A22"""
    await stage.submit(template={"priorityClassName": "nobodys"})
    await stage.wait_until(lambda seen: "startTime" in seen.status())
    await stage.quiet()
    has(stage.status(), active=0, failed=0)
    assert stage.pods == {}
    event = await stage.told("FailedCreate")
    refusal = 'pods "job-" is forbidden: no PriorityClass with name nobodys was found'
    assert event["note"] == f"Error creating: {refusal}"

# SPDX-License-Identifier: Apache-2.0
"""Jobs that are put to sleep and woken."""

import asyncio

from refloat.client import errors
from tests.scenarios.scenario import (
    DEADLINE,
    FOREVER,
    PATIENT,
    REACHED,
    ends,
    has,
    let_end,
    over,
    scenario,
    waits,
)
from tests.scenarios.stage import JOB, Stage


def suspended(stage: Stage) -> tuple[str, str, str]:
    """The condition Suspended: its status, reason and message."""
    for each in stage.status().get("conditions") or ():
        if each["type"] == "Suspended":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


SUSPENDED = ("True", "JobSuspended", "Job suspended")
RESUMED = ("False", "JobResumed", "Job resumed")


@scenario
async def a_job_made_asleep_makes_no_pods(stage: Stage) -> None:
    """behaviour A14.3"""
    await stage.submit(suspend=True)
    await stage.wait_until(lambda seen: suspended(seen) == SUSPENDED)
    await stage.quiet()
    assert stage.pods == {}
    assert "startTime" not in stage.status()


@scenario
async def a_job_that_is_woken_runs(stage: Stage) -> None:
    """behaviour A14.4"""
    await stage.submit(suspend=True)
    await stage.wait_until(lambda seen: suspended(seen) == SUSPENDED)
    await stage.resume()
    await over(stage, "Complete", REACHED, succeeded=1)
    assert suspended(stage) == RESUMED


@scenario
async def a_job_that_never_slept_has_no_such_condition(stage: Stage) -> None:
    """behaviour A14.4"""
    await stage.submit(suspend=False, simulate={"main": FOREVER})
    await stage.runs(1)
    assert suspended(stage) == ("", "", "")


@scenario
async def sleep_takes_the_pods_and_counts_none(stage: Stage) -> None:
    """behaviour A14.1, A14.2, G8"""
    await stage.submit(completions=3, parallelism=2, simulate={"main": FOREVER})
    await stage.runs(2)
    await stage.suspend()
    await stage.wait_until(lambda seen: suspended(seen) == SUSPENDED and not seen.present)
    await stage.quiet()
    has(stage.status(), active=0, ready=0, terminating=0, failed=0, succeeded=0)
    assert "startTime" not in stage.status()


@scenario
async def sleep_and_waking_begin_with_new_pods(stage: Stage) -> None:
    """behaviour A14.4, A14.5: without a back-off"""
    await stage.submit(simulate={"main": [FOREVER, ends()]})
    await stage.runs(1)
    await stage.suspend()
    await stage.wait_until(lambda seen: suspended(seen) == SUSPENDED and not seen.present)
    await stage.resume()
    await over(stage, "Complete", REACHED, succeeded=1, failed=0)
    assert len(stage.pods) == 2


@scenario
async def counts_outlive_sleep(stage: Stage) -> None:
    """behaviour A14.5"""
    await stage.submit(
        completions=2,
        parallelism=2,
        simulate={"main": [ends(), FOREVER, ends()]},
    )
    await stage.wait_until(lambda seen: seen.status().get("succeeded") == 1 and seen.running)
    await stage.suspend()
    await stage.wait_until(lambda seen: suspended(seen) == SUSPENDED)
    has(stage.status(), succeeded=1)
    await stage.resume()
    await over(stage, "Complete", REACHED, succeeded=2, failed=0)


@scenario
async def a_sleeping_job_can_be_complete(stage: Stage) -> None:
    """behaviour A14.6"""
    await stage.submit(suspend=True, completions=0)
    await over(stage, "Complete", REACHED, succeeded=0)


@scenario
async def a_deadline_does_not_run_while_a_job_sleeps(stage: Stage) -> None:
    """behaviour A13.1, A14.3"""
    await stage.submit(suspend=True, activeDeadlineSeconds=10, simulate={"main": FOREVER})
    await stage.wait_until(lambda seen: suspended(seen) == SUSPENDED)
    await asyncio.sleep(12)
    assert stage.condition("FailureTarget") is None
    await stage.resume()
    await over(stage, "Failed", DEADLINE, failed=1)


@scenario
async def a_woken_job_waits_for_its_old_pods(stage: Stage) -> None:
    """behaviour A14.7"""
    await stage.submit(
        podReplacementPolicy="Failed", template=PATIENT, simulate={"main": [waits(), FOREVER]}
    )
    (pod,) = await stage.runs(1)
    await stage.suspend()
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    await stage.resume()
    await let_end(stage, pod)
    await stage.runs(1)
    assert stage.most_unfinished == 1
    has(stage.status(), failed=0)


@scenario
async def a_woken_job_does_not_wait_without_the_policy(stage: Stage) -> None:
    """behaviour A8.2"""
    await stage.submit(template=PATIENT, simulate={"main": [waits(), FOREVER]})
    (pod,) = await stage.runs(1)
    await stage.suspend()
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    await stage.resume()
    await stage.wait_until(lambda seen: seen.most_unfinished == 2)
    await let_end(stage, pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 0)


@scenario
async def a_sleeping_jobs_template_may_say_where_pods_go(stage: Stage) -> None:
    """behaviour B4.5, B4.7"""
    await stage.submit(suspend=True)
    await stage.wait_until(lambda seen: suspended(seen) == SUSPENDED)
    template = {
        "metadata": {"labels": {"zone": "a"}},
        "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}},
    }
    await stage.change(template=template, suspend=False)
    await stage.wait_until(lambda seen: seen.pods)
    (pod,) = stage.pods.values()
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["metadata"]["labels"]["zone"] == "a"
    await stage.finished()


@scenario
async def a_waking_jobs_template_is_closed(stage: Stage) -> None:
    """behaviour B4.2, B4.6"""
    await stage.submit(simulate={"main": FOREVER})
    await stage.runs(1)
    try:
        await stage.change(JOB, template={"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}})
    except errors.Invalid as error:
        stage.note(str(error).rpartition("}")[2])  # the object before it has ids in it
    else:
        raise AssertionError("accepted")
    assert "field is immutable" in stage.notes[0]

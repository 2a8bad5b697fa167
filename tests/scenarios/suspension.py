# SPDX-License-Identifier: Apache-2.0
"""Jobs that are put to sleep and woken."""

from refloat.client import errors
from refloat.scenario.namespace import JOB, ScenarioNamespace
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


def suspended(ns: ScenarioNamespace) -> tuple[str, str, str]:
    """The condition Suspended: its status, reason and message."""
    for each in ns.status().get("conditions") or ():
        if each["type"] == "Suspended":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


SUSPENDED = ("True", "JobSuspended", "Job suspended")
RESUMED = ("False", "JobResumed", "Job resumed")


@scenario
async def a_job_made_asleep_makes_no_pods(ns: ScenarioNamespace) -> None:
    """behaviour A14.3"""
    await ns.submit(suspend=True)
    await ns.wait_until(lambda state: suspended(state) == SUSPENDED)
    await ns.quiet()
    assert ns.pods == {}
    assert "startTime" not in ns.status()


@scenario
async def a_job_that_is_woken_runs(ns: ScenarioNamespace) -> None:
    """behaviour A14.4"""
    await ns.submit(suspend=True)
    await ns.wait_until(lambda state: suspended(state) == SUSPENDED)
    await ns.resume()
    await over(ns, "Complete", REACHED, succeeded=1)
    assert suspended(ns) == RESUMED


@scenario
async def a_job_that_never_slept_has_no_such_condition(ns: ScenarioNamespace) -> None:
    """behaviour A14.4"""
    await ns.submit(suspend=False, simulate={"main": FOREVER})
    await ns.runs(1)
    assert suspended(ns) == ("", "", "")


@scenario
async def sleep_takes_the_pods_and_counts_none(ns: ScenarioNamespace) -> None:
    """behaviour A14.1, A14.2, G8"""
    await ns.submit(completions=3, parallelism=2, simulate={"main": FOREVER})
    await ns.runs(2)
    await ns.suspend()
    await ns.wait_until(lambda state: suspended(state) == SUSPENDED and not state.present)
    await ns.quiet()
    has(ns.status(), active=0, ready=0, terminating=0, failed=0, succeeded=0)
    assert "startTime" not in ns.status()


@scenario
async def sleep_and_waking_begin_with_new_pods(ns: ScenarioNamespace) -> None:
    """behaviour A14.4, A14.5: without a back-off"""
    await ns.submit(simulate={"main": [FOREVER, ends()]})
    await ns.runs(1)
    await ns.suspend()
    await ns.wait_until(lambda state: suspended(state) == SUSPENDED and not state.present)
    await ns.resume()
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)
    assert len(ns.pods) == 2


@scenario
async def counts_outlive_sleep(ns: ScenarioNamespace) -> None:
    """behaviour A14.5"""
    await ns.submit(
        completions=2,
        parallelism=2,
        simulate={"main": [ends(), FOREVER, ends()]},
    )
    await ns.wait_until(lambda state: state.status().get("succeeded") == 1 and state.running)
    await ns.suspend()
    await ns.wait_until(lambda state: suspended(state) == SUSPENDED)
    has(ns.status(), succeeded=1)
    await ns.resume()
    await over(ns, "Complete", REACHED, succeeded=2, failed=0)


@scenario
async def a_sleeping_job_can_be_complete(ns: ScenarioNamespace) -> None:
    """behaviour A14.6"""
    await ns.submit(suspend=True, completions=0)
    await over(ns, "Complete", REACHED, succeeded=0)


@scenario
async def a_deadline_does_not_run_while_a_job_sleeps(ns: ScenarioNamespace) -> None:
    """behaviour A13.1, A14.3"""
    await ns.submit(suspend=True, activeDeadlineSeconds=10, simulate={"main": FOREVER})
    await ns.wait_until(lambda state: suspended(state) == SUSPENDED)
    await ns.sleep(12)
    assert ns.condition("FailureTarget") is None
    await ns.resume()
    await over(ns, "Failed", DEADLINE, failed=1)


@scenario
async def a_woken_job_waits_for_its_old_pods(ns: ScenarioNamespace) -> None:
    """behaviour A14.7"""
    await ns.submit(
        podReplacementPolicy="Failed", template=PATIENT, simulate={"main": [waits(), FOREVER]}
    )
    (pod,) = await ns.runs(1)
    await ns.suspend()
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    await ns.resume()
    await let_end(ns, pod)
    await ns.runs(1)
    assert ns.most_at_once() == 1
    has(ns.status(), failed=0)


@scenario
async def a_woken_job_does_not_wait_without_the_policy(ns: ScenarioNamespace) -> None:
    """behaviour A8.2"""
    await ns.submit(template=PATIENT, simulate={"main": [waits(), FOREVER]})
    (pod,) = await ns.runs(1)
    await ns.suspend()
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    await ns.resume()
    await ns.wait_until(lambda state: state.most_at_once() == 2)
    await let_end(ns, pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 0)


@scenario
async def a_sleeping_jobs_template_may_say_where_pods_go(ns: ScenarioNamespace) -> None:
    """behaviour B4.5, B4.7"""
    await ns.submit(suspend=True)
    await ns.wait_until(lambda state: suspended(state) == SUSPENDED)
    template = {
        "metadata": {"labels": {"zone": "a"}},
        "spec": {"nodeSelector": {"kubernetes.io/os": "linux"}},
    }
    await ns.change(template=template, suspend=False)
    await ns.wait_until(lambda state: state.pods)
    (pod,) = ns.pods.values()
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["metadata"]["labels"]["zone"] == "a"
    await ns.finished()


@scenario
async def a_waking_jobs_template_is_closed(ns: ScenarioNamespace) -> None:
    """behaviour B4.2, B4.6"""
    await ns.submit(simulate={"main": FOREVER})
    await ns.runs(1)
    try:
        await ns.change(JOB, template={"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}})
    except errors.Invalid as error:
        ns.notes.append(str(error).rpartition("}")[2])  # the object before the text has ids
    else:
        raise AssertionError("accepted")
    assert "field is immutable" in ns.notes[0]

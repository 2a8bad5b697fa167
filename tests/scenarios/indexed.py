# SPDX-License-Identifier: Apache-2.0
"""Jobs whose pods have a number each."""

from refloat.client import errors
from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import FOREVER, REACHED, ends, has, over, scenario

INDEX = "batch.kubernetes.io/job-completion-index"
VARIABLE = "JOB_COMPLETION_INDEX"


@scenario
async def each_index_succeeds_once(ns: ScenarioNamespace) -> None:
    """behaviour A7.1, A7.2"""
    await ns.submit(completionMode="Indexed", completions=4, parallelism=4)
    await over(ns, "Complete", REACHED, succeeded=4, completedIndexes="0-3")
    await ns.quiet()
    assert len(ns.present) == 4
    assert {pod["status"]["phase"] for pod in ns.present} == {"Succeeded"}
    assert not any(pod["metadata"].get("finalizers") for pod in ns.present)


@scenario
async def an_indexed_pod_knows_its_index(ns: ScenarioNamespace) -> None:
    """behaviour A8.6-A8.8"""
    init = {"name": "init", "image": "busybox:1"}
    await ns.submit(
        completionMode="Indexed",
        completions=1,
        template={"initContainers": [init]},
        simulate={"init": ends(), "main": FOREVER},
    )
    await ns.runs(1)
    pod = ns.pod(0)
    meta, spec = pod["metadata"], pod["spec"]
    assert meta["annotations"][INDEX] == meta["labels"][INDEX] == "0"
    assert meta["generateName"] == "job-0-"
    assert spec["hostname"] == "job-0"
    for container in (*spec["initContainers"], *spec["containers"]):
        (variable,) = container["env"]
        source = variable["valueFrom"]["fieldRef"]["fieldPath"]
        assert (variable["name"], source) == (VARIABLE, f"metadata.labels['{INDEX}']")


@scenario
async def a_variable_of_the_indexes_name_is_kept(ns: ScenarioNamespace) -> None:
    """behaviour A8.8"""
    own = {"name": "main", "image": "busybox:1", "env": [{"name": VARIABLE, "value": "mine"}]}
    await ns.submit(
        completionMode="Indexed", completions=1, template={"containers": [own], "hostname": "other"}
    )
    await ns.finished()
    spec = ns.pod(0)["spec"]
    assert spec["containers"][0]["env"] == own["env"]
    assert spec["hostname"] == "job-0"


@scenario
async def completed_indexes_are_told_in_runs(ns: ScenarioNamespace) -> None:
    """behaviour A7.2"""
    await ns.submit(
        completionMode="Indexed",
        completions=9,
        parallelism=9,
        simulate={"main": ends(), "main/2": FOREVER, "main/4": FOREVER, "main/8": FOREVER},
    )
    await ns.wait_until(lambda state: state.status().get("succeeded") == 6)
    has(ns.status(), completedIndexes="0,1,3,5-7")


@scenario
async def the_lowest_open_index_comes_first(ns: ScenarioNamespace) -> None:
    """behaviour A7.6"""
    await ns.submit(completionMode="Indexed", completions=3, parallelism=1)
    await over(ns, "Complete", REACHED, succeeded=3, completedIndexes="0-2")
    indexes = [pod["metadata"]["annotations"][INDEX] for pod in ns.pods.values()]
    assert indexes == ["0", "1", "2"]


@scenario
async def an_indexed_job_grows(ns: ScenarioNamespace) -> None:
    """behaviour B4.3, A7.6"""
    await ns.submit(
        completionMode="Indexed", completions=2, parallelism=2, simulate={"main": FOREVER}
    )
    await ns.runs(2)
    await ns.change(completions=4, parallelism=4)
    await ns.runs(4)
    assert [ns.pod(index)["spec"]["hostname"] for index in range(4)] == [
        f"job-{index}" for index in range(4)
    ]


@scenario
async def an_indexed_job_shrinks_from_the_end(ns: ScenarioNamespace) -> None:
    """behaviour A7.8, A9.1, A9.4"""
    await ns.submit(
        completionMode="Indexed", completions=4, parallelism=4, simulate={"main": FOREVER}
    )
    await ns.runs(4)
    await ns.change(completions=2, parallelism=2)
    await ns.runs(2)
    await ns.quiet()
    indexes = sorted(pod["metadata"]["annotations"][INDEX] for pod in ns.present)
    assert indexes == ["0", "1"]
    has(ns.status(), failed=0, succeeded=0, terminating=0)


@scenario
async def a_job_that_shrinks_forgets_indexes_beyond_its_end(ns: ScenarioNamespace) -> None:
    """behaviour A7.5"""
    await ns.submit(
        completionMode="Indexed",
        completions=3,
        parallelism=3,
        simulate={"main": FOREVER, "main/2": ends()},
    )
    await ns.wait_until(lambda state: state.status().get("completedIndexes") == "2")
    await ns.change(completions=2, parallelism=2)
    await ns.wait_until(lambda state: not state.status().get("succeeded"))
    has(ns.status(), completedIndexes="", active=2)


@scenario
async def completions_change_only_with_parallelism(ns: ScenarioNamespace) -> None:
    """behaviour B4.3"""
    await ns.submit(completionMode="Indexed", completions=2, simulate={"main": FOREVER})
    await ns.runs(1)
    try:
        await ns.change(completions=3)
    except errors.Invalid as error:
        ns.notes.append(str(error))
    else:
        raise AssertionError("accepted")
    assert "can only be modified in tandem with spec.parallelism" in ns.notes[0]

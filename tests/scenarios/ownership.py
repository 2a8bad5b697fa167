# SPDX-License-Identifier: Apache-2.0
"""Which pods are a Job's: selectors, adoption, release, and Jobs of other controllers."""

from refloat.api.meta import Object
from refloat.client.contract import DeleteOptions
from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import FOREVER, MEANWHILE, REACHED, ends, has, over, scenario

FINALIZER = "batch.kubernetes.io/job-tracking"
BLUE = {"team": "blue"}


def by_hand(**spec: object) -> Object:
    """A Job with a selector of its own."""
    return {
        "manualSelector": True,
        "selector": {"matchLabels": BLUE},
        "labels": BLUE,
        **spec,
    }


def owners(pod: Object) -> list[str]:
    return [each["name"] for each in pod["metadata"].get("ownerReferences") or ()]


@scenario
async def a_selector_by_hand_adds_no_labels(ns: ScenarioNamespace) -> None:
    """behaviour B2.1"""
    await ns.submit(**by_hand(simulate={"main": FOREVER}))
    (pod,) = await ns.runs(1)
    assert pod["metadata"]["labels"] == BLUE


@scenario
async def a_pod_that_matches_is_adopted_and_counted(ns: ScenarioNamespace) -> None:
    """behaviour A2.5, A2.6"""
    await ns.create_pod("stray", {"labels": dict(BLUE)}, {"main": ends(seconds=MEANWHILE)})
    await ns.wait_until(lambda state: state.running)
    await ns.submit(**by_hand())
    await ns.wait_until(lambda state: owners(next(iter(state.pods.values()))) == ["job"])
    (pod,) = ns.pods.values()
    assert pod["metadata"]["finalizers"] == [FINALIZER]
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)
    assert len(ns.pods) == 1


@scenario
async def a_pod_that_does_not_match_is_left_alone(ns: ScenarioNamespace) -> None:
    """behaviour A2.1"""
    await ns.create_pod("stray", {"labels": {"team": "red"}}, {"main": FOREVER})
    await ns.wait_until(lambda state: state.running)
    await ns.submit(**by_hand())
    await over(ns, "Complete", REACHED, succeeded=1)
    stray = next(iter(ns.pods.values()))
    assert owners(stray) == []
    assert "finalizers" not in stray["metadata"]


@scenario
async def a_pod_that_matches_no_more_is_released_and_replaced(ns: ScenarioNamespace) -> None:
    """behaviour A2.4"""
    await ns.submit(**by_hand(simulate={"main": FOREVER}))
    (pod,) = await ns.runs(1)
    await ns.patch_pod(pod, {"metadata": {"labels": {"team": "red"}}})
    await ns.wait_until(lambda state: len(state.running) == 2)
    await ns.quiet()
    released, replacement = ns.pods.values()
    assert (owners(released), owners(replacement)) == ([], ["job"])
    assert "finalizers" not in released["metadata"]
    has(ns.status(), active=1, failed=0)


@scenario
async def a_pod_of_an_index_that_is_not_there_is_taken_away(ns: ScenarioNamespace) -> None:
    """behaviour A7.8"""
    stray = {"batch.kubernetes.io/job-completion-index": "7"}
    await ns.create_pod("stray", {"labels": dict(BLUE), "annotations": stray}, {"main": FOREVER})
    await ns.wait_until(lambda state: state.running)
    await ns.submit(**by_hand(completionMode="Indexed", completions=1, simulate={"main": FOREVER}))
    await ns.wait_until(
        lambda state: [pod["spec"].get("hostname") for pod in state.present] == ["job-0"]
    )
    await ns.quiet()
    has(ns.status(), active=1, failed=0, succeeded=0)


@scenario
async def a_job_of_another_controller_is_left_alone(ns: ScenarioNamespace) -> None:
    """behaviour A4.3, A21.1"""
    await ns.submit(managedBy="example.com/somebody")
    await ns.quiet()
    assert ns.pods == {}
    assert not ns.status()


@scenario
async def a_finalizer_without_a_job_is_removed(ns: ScenarioNamespace) -> None:
    """behaviour A20.3"""
    await ns.create_pod("stray", {"finalizers": [FINALIZER]}, {"main": FOREVER})
    await ns.wait_until(
        lambda state: state.running and not state.present[0]["metadata"].get("finalizers")
    )


@scenario
async def a_job_that_is_deleted_in_the_foreground_lets_its_pods_go(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A20.1"""
    await ns.submit(simulate={"main": FOREVER})
    await ns.runs(1)
    await ns.delete_job(options=DeleteOptions(propagation="Foreground"))
    await ns.wait_until(lambda state: not state.jobs and not state.present)


@scenario
async def a_released_pod_that_matches_again_is_taken_back(ns: ScenarioNamespace) -> None:
    """behaviour A2.5, A9.3: then there is one too many, and the older one stays"""
    await ns.submit(**by_hand(simulate={"main": FOREVER}))
    (pod,) = await ns.runs(1)
    await ns.patch_pod(pod, {"metadata": {"labels": {"team": "red"}}})
    await ns.wait_until(lambda state: len(state.running) == 2)
    await ns.sleep(1.1)  # ready times are in seconds
    await ns.patch_pod(pod, {"metadata": {"labels": BLUE}})
    await ns.wait_until(lambda state: len(state.present) == 1)
    await ns.quiet()
    assert ns.present[0]["metadata"]["uid"] == pod["metadata"]["uid"]
    assert owners(ns.present[0]) == ["job"]
    has(ns.status(), active=1, failed=0)


@scenario
async def a_finalizer_that_is_put_back_is_removed_when_its_finished_job_is_seen(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A20.3, A20.4, A25.2"""
    await ns.submit()
    await over(ns, "Complete", REACHED, succeeded=1)
    (pod,) = ns.present
    patched = await ns.patch_pod(pod, {"metadata": {"finalizers": [FINALIZER]}})
    assert patched["metadata"]["finalizers"] == [FINALIZER]
    # A late sync of the Job may remove the finalizer before the watch shows the pod with it.
    await ns.wait_until(lambda state: _version(state.present[0]) >= _version(patched))
    for parallelism in range(2, 12):  # until the controller has state the finalizer too
        await ns.change(parallelism=parallelism)
        await ns.sleep(2)
        if not ns.present[0]["metadata"].get("finalizers"):
            break
    assert "finalizers" not in ns.present[0]["metadata"]
    has(ns.status(), succeeded=1)


def _version(pod: Object) -> int:
    return int(pod["metadata"]["resourceVersion"])

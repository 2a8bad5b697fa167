# SPDX-License-Identifier: Apache-2.0
"""Which pods are a Job's: selectors, adoption, release, and Jobs of other controllers."""

import asyncio

from refloat.api.meta import Object
from refloat.client.contract import DeleteOptions
from tests.scenarios.scenario import FOREVER, MEANWHILE, REACHED, ends, has, over, scenario
from tests.scenarios.stage import Stage

FINALIZER = "batch.kubernetes.io/job-tracking"
BLUE = {"team": "blue"}


def by_hand(**spec: object) -> Object:
    """A Job that says itself which pods are its own."""
    return {
        "manualSelector": True,
        "selector": {"matchLabels": BLUE},
        "labels": BLUE,
        **spec,
    }


def owners(pod: Object) -> list[str]:
    return [each["name"] for each in pod["metadata"].get("ownerReferences") or ()]


@scenario
async def a_selector_by_hand_adds_no_labels(stage: Stage) -> None:
    """behaviour B2.1"""
    await stage.submit(**by_hand(simulate={"main": FOREVER}))
    (pod,) = await stage.runs(1)
    assert pod["metadata"]["labels"] == BLUE


@scenario
async def a_pod_that_matches_is_adopted_and_counted(stage: Stage) -> None:
    """behaviour A2.5, A2.6"""
    await stage.create_pod("stray", {"labels": dict(BLUE)}, {"main": ends(seconds=MEANWHILE)})
    await stage.wait_until(lambda seen: seen.running)
    await stage.submit(**by_hand())
    await stage.wait_until(lambda seen: owners(next(iter(seen.pods.values()))) == ["job"])
    (pod,) = stage.pods.values()
    assert pod["metadata"]["finalizers"] == [FINALIZER]
    await over(stage, "Complete", REACHED, succeeded=1, failed=0)
    assert len(stage.pods) == 1


@scenario
async def a_pod_that_does_not_match_is_left_alone(stage: Stage) -> None:
    """behaviour A2.1"""
    await stage.create_pod("stray", {"labels": {"team": "red"}}, {"main": FOREVER})
    await stage.wait_until(lambda seen: seen.running)
    await stage.submit(**by_hand())
    await over(stage, "Complete", REACHED, succeeded=1)
    stray = next(iter(stage.pods.values()))
    assert owners(stray) == []
    assert "finalizers" not in stray["metadata"]


@scenario
async def a_pod_that_matches_no_more_is_released_and_replaced(stage: Stage) -> None:
    """behaviour A2.4"""
    await stage.submit(**by_hand(simulate={"main": FOREVER}))
    (pod,) = await stage.runs(1)
    await stage.patch_pod(pod, {"metadata": {"labels": {"team": "red"}}})
    await stage.wait_until(lambda seen: len(seen.running) == 2)
    await stage.quiet()
    released, replacement = stage.pods.values()
    assert (owners(released), owners(replacement)) == ([], ["job"])
    assert "finalizers" not in released["metadata"]
    has(stage.status(), active=1, failed=0)


@scenario
async def a_pod_of_an_index_that_is_not_there_is_taken_away(stage: Stage) -> None:
    """behaviour A7.8"""
    stray = {"batch.kubernetes.io/job-completion-index": "7"}
    await stage.create_pod("stray", {"labels": dict(BLUE), "annotations": stray}, {"main": FOREVER})
    await stage.wait_until(lambda seen: seen.running)
    await stage.submit(
        **by_hand(completionMode="Indexed", completions=1, simulate={"main": FOREVER})
    )
    await stage.wait_until(
        lambda seen: [pod["spec"].get("hostname") for pod in seen.present] == ["job-0"]
    )
    await stage.quiet()
    has(stage.status(), active=1, failed=0, succeeded=0)


@scenario
async def a_job_of_another_controller_is_left_alone(stage: Stage) -> None:
    """behaviour A4.3, A21.1"""
    await stage.submit(managedBy="example.com/somebody")
    await stage.quiet()
    assert stage.pods == {}
    assert not stage.status()


@scenario
async def a_finalizer_without_a_job_is_removed(stage: Stage) -> None:
    """behaviour A20.3"""
    await stage.create_pod("stray", {"finalizers": [FINALIZER]}, {"main": FOREVER})
    await stage.wait_until(
        lambda seen: seen.running and not seen.present[0]["metadata"].get("finalizers")
    )


@scenario
async def a_job_that_is_deleted_in_the_foreground_lets_its_pods_go(stage: Stage) -> None:
    """behaviour A20.1"""
    await stage.submit(simulate={"main": FOREVER})
    await stage.runs(1)
    await stage.delete_job(options=DeleteOptions(propagation="Foreground"))
    await stage.wait_until(lambda seen: not seen.jobs and not seen.present)


@scenario
async def a_released_pod_that_matches_again_is_taken_back(stage: Stage) -> None:
    """behaviour A2.5, A9.3: then there is one too many, and the older one stays"""
    await stage.submit(**by_hand(simulate={"main": FOREVER}))
    (pod,) = await stage.runs(1)
    await stage.patch_pod(pod, {"metadata": {"labels": {"team": "red"}}})
    await stage.wait_until(lambda seen: len(seen.running) == 2)
    await asyncio.sleep(1.1)  # ready times are in seconds
    await stage.patch_pod(pod, {"metadata": {"labels": BLUE}})
    await stage.wait_until(lambda seen: len(seen.present) == 1)
    await stage.quiet()
    assert stage.present[0]["metadata"]["uid"] == pod["metadata"]["uid"]
    assert owners(stage.present[0]) == ["job"]
    has(stage.status(), active=1, failed=0)


@scenario
async def a_finalizer_that_is_put_back_is_removed_when_its_finished_job_is_seen(
    stage: Stage,
) -> None:
    """behaviour A20.3, A20.4, A25.2"""
    await stage.submit()
    await over(stage, "Complete", REACHED, succeeded=1)
    (pod,) = stage.present
    await stage.patch_pod(pod, {"metadata": {"finalizers": [FINALIZER]}})
    await stage.wait_until(lambda seen: seen.present[0]["metadata"].get("finalizers"))
    for parallelism in range(2, 12):  # until the controller has seen the finalizer too
        await stage.change(parallelism=parallelism)
        await asyncio.sleep(2)
        if not stage.present[0]["metadata"].get("finalizers"):
            break
    assert "finalizers" not in stage.present[0]["metadata"]
    has(stage.status(), succeeded=1)

# SPDX-License-Identifier: Apache-2.0
"""More pods at once, and fewer."""

from datetime import datetime

from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import FOREVER, PATIENT, has, let_end, scenario, waits


@scenario
async def more_parallelism_makes_more_pods(ns: ScenarioNamespace) -> None:
    """behaviour A8.2"""
    await ns.submit(completions=6, parallelism=1, simulate={"main": FOREVER})
    await ns.runs(1)
    await ns.change(parallelism=4)
    await ns.runs(4)
    assert len(ns.pods) == 4


@scenario
async def less_parallelism_takes_away_the_pods_that_are_ready_for_the_shortest_time(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A9.3: times are in seconds, so the pods are made seconds apart"""
    await ns.submit(completions=6, parallelism=1, simulate={"main": FOREVER})
    for count in (1, 2, 3):
        await ns.change(parallelism=count)
        await ns.runs(count)
        await ns.sleep(1.1)
    uids = list(ns.pods)
    await ns.change(parallelism=1)
    await ns.wait_until(lambda state: len(state.present) == 1)
    assert uids[0] not in ns.gone
    await ns.quiet()
    has(ns.status(), active=1, failed=0, succeeded=0, terminating=0)


@scenario
async def without_parallelism_all_pods_go_and_none_is_counted(ns: ScenarioNamespace) -> None:
    """behaviour A9.1"""
    await ns.submit(completions=2, parallelism=2, simulate={"main": FOREVER})
    await ns.runs(2)
    await ns.change(parallelism=0)
    await ns.wait_until(lambda state: not state.present)
    await ns.quiet()
    has(ns.status(), active=0, failed=0, succeeded=0, terminating=0)
    assert not ns.status().get("conditions")


@scenario
async def pods_that_were_taken_away_are_terminating_until_they_have_ended(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A9.1, A3.2: they have no finalizer any more, and still count as terminating"""
    await ns.submit(completions=2, parallelism=2, template=PATIENT, simulate={"main": waits()})
    pods = await ns.runs(2)
    await ns.change(parallelism=0)
    await ns.wait_until(lambda state: state.status().get("terminating") == 2)
    has(ns.status(), active=0, ready=0)
    await ns.wait_until(
        lambda state: not any(pod["metadata"].get("finalizers") for pod in state.present)
    )
    await let_end(ns, *pods)
    await ns.wait_until(lambda state: state.status().get("terminating") == 0)


@scenario
async def parallelism_that_comes_back_waits_for_no_back_off(ns: ScenarioNamespace) -> None:
    """behaviour A9.1, A11.2: pods that were taken away are no failures"""
    await ns.submit(completions=2, parallelism=2, simulate={"main": FOREVER})
    await ns.runs(2)
    await ns.change(parallelism=1)
    await ns.runs(1)
    changed = ns.cluster.clock.now()
    await ns.change(parallelism=2)
    await ns.runs(2)
    *_, last = ns.pods.values()
    assert len(ns.pods) == 3
    created_at = datetime.fromisoformat(last["metadata"]["creationTimestamp"])
    assert (created_at - changed).total_seconds() < 9.5

# SPDX-License-Identifier: Apache-2.0
"""More pods at once, and fewer."""

import asyncio
from datetime import UTC, datetime

from tests.scenarios.scenario import FOREVER, PATIENT, has, let_end, scenario, waits
from tests.scenarios.stage import Stage


@scenario
async def more_parallelism_makes_more_pods(stage: Stage) -> None:
    """behaviour A8.2"""
    await stage.submit(completions=6, parallelism=1, simulate={"main": FOREVER})
    await stage.runs(1)
    await stage.change(parallelism=4)
    await stage.runs(4)
    assert len(stage.pods) == 4


@scenario
async def less_parallelism_takes_away_the_pods_that_are_ready_for_the_shortest_time(
    stage: Stage,
) -> None:
    """behaviour A9.3: times are in seconds, so the pods are made seconds apart"""
    await stage.submit(completions=6, parallelism=1, simulate={"main": FOREVER})
    for count in (1, 2, 3):
        await stage.change(parallelism=count)
        await stage.runs(count)
        await asyncio.sleep(1.1)
    made = list(stage.pods)
    await stage.change(parallelism=1)
    await stage.wait_until(lambda seen: len(seen.present) == 1)
    assert made[0] not in stage.gone
    await stage.quiet()
    has(stage.status(), active=1, failed=0, succeeded=0, terminating=0)


@scenario
async def without_parallelism_all_pods_go_and_none_is_counted(stage: Stage) -> None:
    """behaviour A9.1"""
    await stage.submit(completions=2, parallelism=2, simulate={"main": FOREVER})
    await stage.runs(2)
    await stage.change(parallelism=0)
    await stage.wait_until(lambda seen: not seen.present)
    await stage.quiet()
    has(stage.status(), active=0, failed=0, succeeded=0, terminating=0)
    assert not stage.status().get("conditions")


@scenario
async def pods_that_were_taken_away_are_terminating_until_they_have_ended(stage: Stage) -> None:
    """behaviour A9.1, A3.2: they have no finalizer any more, and still count as terminating"""
    await stage.submit(completions=2, parallelism=2, template=PATIENT, simulate={"main": waits()})
    pods = await stage.runs(2)
    await stage.change(parallelism=0)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 2)
    has(stage.status(), active=0, ready=0)
    await stage.wait_until(
        lambda seen: not any(pod["metadata"].get("finalizers") for pod in seen.present)
    )
    await let_end(stage, *pods)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 0)


@scenario
async def parallelism_that_comes_back_waits_for_no_back_off(stage: Stage) -> None:
    """behaviour A9.1, A11.2: pods that were taken away are no failures"""
    await stage.submit(completions=2, parallelism=2, simulate={"main": FOREVER})
    await stage.runs(2)
    await stage.change(parallelism=1)
    await stage.runs(1)
    changed = datetime.now(UTC)
    await stage.change(parallelism=2)
    await stage.runs(2)
    *_, last = stage.pods.values()
    assert len(stage.pods) == 3
    made = datetime.fromisoformat(last["metadata"]["creationTimestamp"])
    assert (made - changed).total_seconds() < 9.5

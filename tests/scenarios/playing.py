# SPDX-License-Identifier: Apache-2.0
"""Plays scenarios on a cluster, all at once, and keeps how each ended.

Most of a scenario is waiting: for ten seconds of back-off, for a pod to end.
So all of them together take hardly longer than the longest one.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterable

import msgspec

from refloat.api.meta import Object
from refloat.scenario.cluster import ScenarioCluster
from refloat.scenario.namespace import ScenarioNamespace, opened
from tests.scenarios import outcome
from tests.scenarios.scenario import Scenario
from tests.scenarios.setting import Setting

# Starting all of them in one instant would measure how many namespaces a
# server can make; so many begin a second.
STARTS_PER_SECOND = 20.0

# How many are played at once. On a cluster with a controller of five workers,
# more of them only wait for each other.
AT_ONCE = 40


class ScenarioResult(msgspec.Struct):
    """How a scenario ended on one cluster."""

    name: str
    error: str = ""
    """What was not as claimed; empty: all was."""
    outcome: Object | None = None
    seconds: float = 0.0


async def play(
    setting: Setting,
    scenarios: Iterable[Scenario],
    done: Callable[[ScenarioResult], object] = lambda _: None,
    *,
    at_once: int = AT_ONCE,
) -> dict[str, ScenarioResult]:
    """Run scenarios on the cluster of a setting; call `done` with each result."""
    async with setting.connect() as cluster:
        return await play_on(cluster, scenarios, done, at_once=at_once)


async def play_on(
    cluster: ScenarioCluster,
    scenarios: Iterable[Scenario],
    done: Callable[[ScenarioResult], object] = lambda _: None,
    *,
    at_once: int = AT_ONCE,
) -> dict[str, ScenarioResult]:
    """Run scenarios on an open cluster."""
    places = asyncio.Semaphore(at_once)

    async def take_place(scenario: Scenario) -> ScenarioResult:
        async with places:
            result = await _play(cluster, scenario)
        done(result)
        return result

    async with asyncio.TaskGroup() as group:
        tasks = []
        for each in scenarios:
            tasks.append(group.create_task(take_place(each)))
            await cluster.clock.sleep(1 / STARTS_PER_SECOND)
    return {task.result().name: task.result() for task in tasks}


async def _play(cluster: ScenarioCluster, scenario: Scenario) -> ScenarioResult:
    began = cluster.clock.monotonic()
    result = ScenarioResult(scenario.name)
    try:
        async with opened(cluster, scenario.name) as ns:
            await _claim(ns, scenario, result)
    except Exception:  # whatever the error, it concerns only this scenario
        result.error = traceback.format_exc(limit=-4)
    result.seconds = cluster.clock.monotonic() - began
    return result


async def _claim(ns: ScenarioNamespace, scenario: Scenario, result: ScenarioResult) -> None:
    try:
        await scenario.play(ns)
    except AssertionError:
        result.error = f"{traceback.format_exc(limit=-3)}\n{ns.summary()}"
        return
    await ns.quiet()
    result.outcome = await outcome.observe(ns)

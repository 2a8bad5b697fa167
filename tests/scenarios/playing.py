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
from tests.scenarios import house
from tests.scenarios.house import House
from tests.scenarios.scenario import Scenario
from tests.scenarios.setting import Setting
from tests.scenarios.stage import Stage, staged

# Starting all of them in one instant would measure how many namespaces a
# server can make; so many begin a second.
STARTS_PER_SECOND = 20.0

# How many are played at once. On a cluster with a controller of five workers,
# more of them only wait for each other.
AT_ONCE = 40


class Result(msgspec.Struct):
    """How a scenario ended on one cluster."""

    name: str
    error: str = ""
    """What was not as claimed; empty: all was."""
    outcome: Object | None = None
    seconds: float = 0.0


async def play(
    setting: Setting,
    scenarios: Iterable[Scenario],
    done: Callable[[Result], object] = lambda _: None,
    *,
    at_once: int = AT_ONCE,
) -> dict[str, Result]:
    """Many of them at once; tells of each when it is done."""
    places = asyncio.Semaphore(at_once)

    async def take_place(each: Scenario) -> Result:
        async with places:
            return await _play(here, each, done)

    async with house.opened(setting) as here:
        runs = []
        for each in scenarios:
            runs.append(asyncio.ensure_future(take_place(each)))
            await asyncio.sleep(1 / STARTS_PER_SECOND)
        return {result.name: result for result in await asyncio.gather(*runs)}


async def _play(here: House, scenario: Scenario, done: Callable[[Result], object]) -> Result:
    loop = asyncio.get_running_loop()
    began = loop.time()
    result = Result(scenario.name)
    try:
        async with staged(here, scenario.name) as stage:
            await _claim(stage, scenario, result)
    except Exception:  # whatever it is, it is this scenario's alone
        result.error = traceback.format_exc(limit=-4)
    result.seconds = loop.time() - began
    done(result)
    return result


async def _claim(stage: Stage, scenario: Scenario, result: Result) -> None:
    try:
        await scenario.play(stage)
    except AssertionError:
        result.error = f"{traceback.format_exc(limit=-3)}\n{stage.brief()}"
        return
    await stage.quiet()
    result.outcome = await stage.outcome()

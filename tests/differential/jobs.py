# SPDX-License-Identifier: Apache-2.0
"""Random Jobs on several clusters, and how they end compared with the reference.

A case is a scenario that chance has written. It is played as the scenarios
are, and compared by the same rules. Where another cluster ends it differently,
it is played a second time: a case that the reference does not end twice in one
way says nothing of the others, and is dropped and listed. One that only another
ends in two ways is played more often: what comes twice is a difference, and what
came once in all these plays is dropped and listed, too.
"""

import asyncio
import functools
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refloat.api import times
from refloat.api.meta import Object
from refloat.client import errors
from refloat.client.contract import DeleteOptions, EventType
from tests.differential.plans import Act, Plan
from tests.scenarios import comparing, house, outcome, playing
from tests.scenarios.comparing import Difference
from tests.scenarios.playing import Result
from tests.scenarios.scenario import Scenario
from tests.scenarios.setting import Setting
from tests.scenarios.stage import Stage

REFERENCE = "reference"

# The first delay of a Job's back-off; each further failure doubles it.
BACKOFF_SECONDS = 10.0

# A controller may be late by this much.
LATE_SECONDS = 2.0

# Of fewer waits the shortest may be a late one, too.
FEWEST_WAITS = 5

# So often a case is played again that the reference ends in one way and another in two.
MORE_PLAYS = 2

# If more of the cases than this are dropped, too little was compared.
MOST_DROPPED = 0.1

Results = Mapping[str, Mapping[str, Result]]
"""By setting and case."""

Waits = dict[str, list[float]]
"""By setting: seconds from the end of a first failed pod to its replacement."""


@dataclass
class Verdict:
    """What a run has shown."""

    differences: list[Difference] = field(default_factory=list)
    meant: list[Difference] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dropped: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By setting and case: what is ended in two ways."""
    cases: int = 0

    @property
    def is_bad(self) -> bool:
        too_few = len(self.dropped) > max(1, self.cases * MOST_DROPPED)
        return bool(self.differences or self.errors or too_few)


class Run:
    """Plans on settings, one setting after the other."""

    def __init__(
        self, settings: Iterable[Setting], plans: Iterable[Plan], tell: Callable[[str], object]
    ) -> None:
        self._settings = list(settings)
        self._plans = {each.name: each for each in plans}
        self._tell = tell
        self.waits: Waits = {}

    def play(self, at_once: int) -> Verdict:
        plays = [self._all(self._plans, at_once)]
        found = differences(plays[0])
        names = {each.scenario for each in found if not each.meant} | broken(plays[0])
        plays += self._again(names, at_once, 1)
        plays += self._again(doubtful(names, plays), at_once, MORE_PLAYS)
        for each in self._settings:
            asyncio.run(house.sweep(each))
        verdict = judged(found, plays)
        verdict.differences += list(wait_differences(self.waits))
        return verdict

    def _again(self, names: set[str], at_once: int, times: int) -> list[Results]:
        plans = {name: plan for name, plan in self._plans.items() if name in names}
        return [self._all(plans, at_once) for _ in range(times if plans else 0)]

    def _all(self, plans: Mapping[str, Plan], at_once: int) -> Results:
        return {each.name: self._played(each, plans, at_once) for each in self._settings}

    def _played(
        self, setting: Setting, plans: Mapping[str, Plan], at_once: int
    ) -> dict[str, Result]:
        began, waits = time.monotonic(), self.waits.setdefault(setting.name, [])
        scenarios = [
            Scenario(name, functools.partial(play, plan=each, waits=waits), "")
            for name, each in plans.items()
        ]
        results = asyncio.run(playing.play(setting, scenarios, at_once=at_once))
        seconds = time.monotonic() - began
        self._tell(f"{setting.name}: {len(results)} cases, {seconds:.0f} s")
        return results


def differences(results: Results) -> list[Difference]:
    """How the others end what the reference ends too."""
    others = {name: each for name, each in results.items() if name != REFERENCE}
    return list(comparing.differences(results[REFERENCE], others, comparing.meant()))


def broken(results: Results) -> set[str]:
    """Cases that could not be played to their end."""
    return {name for each in results.values() for name, result in each.items() if result.error}


def unsteady(plays: Sequence[Results]) -> dict[tuple[str, str], str]:
    """What a setting ends in two ways, and what of it."""
    found: dict[tuple[str, str], str] = {}
    first, *others = plays
    for setting, results in (pair for play in others for pair in play.items()):
        for each in comparing.differences(first[setting], {"again": results}, ()):
            told = f"{each.field}: {each.expected} or {each.found}"
            found.setdefault((setting, each.scenario), told)
        for name, result in results.items():
            if bool(result.error) != bool(first[setting][name].error):
                error = result.error or first[setting][name].error
                found[setting, name] = error.strip().splitlines()[-1]
    return found


def doubtful(names: Iterable[str], plays: Sequence[Results]) -> set[str]:
    """Cases that the reference ends in one way, and another was once not as it."""
    unclear = unsteady(plays)
    others = [each for each in plays[0] if each != REFERENCE]
    return {
        name
        for name in names
        if (REFERENCE, name) not in unclear
        and any(strikes(plays, each, name) == 1 for each in others)
    }


def strikes(plays: Sequence[Results], setting: str, name: str) -> int:
    """In how many plays a setting did not end a case as the reference did."""
    lines = comparing.meant()
    return sum(_is_struck(play, setting, name, lines) for play in plays if name in play[setting])


def _is_struck(play: Results, setting: str, name: str, lines: list[comparing.Meant]) -> bool:
    result = play[setting][name]
    expected, others = {name: play[REFERENCE][name]}, {setting: {name: result}}
    found = comparing.differences(expected, others, lines)
    return bool(result.error) or any(not each.meant for each in found)


def judged(found: Iterable[Difference], plays: Sequence[Results]) -> Verdict:
    """Differences and errors, without those that say nothing."""
    first, unclear = plays[0], unsteady(plays)
    dropped: dict[tuple[str, str], str] = {}

    def is_dropped(setting: str, name: str) -> bool:
        for who in (REFERENCE, setting):
            once = who == REFERENCE or strikes(plays, who, name) == 1
            if once and (who, name) in unclear:
                dropped[who, name] = unclear[who, name]
                return True
        return False

    verdict = Verdict(dropped=dropped, cases=len(first[REFERENCE]))
    for each in found:
        if each.meant:
            verdict.meant.append(each)
        elif not is_dropped(each.setting, each.scenario):
            verdict.differences.append(each)
    for setting, outcomes in first.items():
        for name, result in outcomes.items():
            if result.error and not is_dropped(setting, name):
                verdict.errors.append(f"{setting}: {name}: {result.error}")
    return verdict


def wait_differences(waits: Waits) -> Iterable[Difference]:
    """Whether the shortest wait of a setting is another one, in whole seconds.

    A single wait may be longer, on a busy machine by seconds. Of many, the
    shortest is the back-off itself: the time of a pod's end has whole seconds,
    and a controller that waits from there is never early.
    """
    expected = waits.get(REFERENCE)
    for setting, found in waits.items():
        if setting == REFERENCE or not expected:
            continue
        if min(len(expected), len(found)) >= FEWEST_WAITS:
            want, have = math.floor(min(expected)), math.floor(min(found))
            if want != have:
                yield Difference(
                    "all cases", "shortest back-off", setting, f"{want} s", f"{have} s"
                )


def replay(seed: int, case: str, settings: Iterable[Setting]) -> str:
    """The command that plays one case again."""
    number = case.rpartition("_")[2]
    told = " ".join(f"--setting {each.name}={each.kubeconfig}" for each in settings)
    only = f"--case {number} " if number.isdigit() else ""
    return f"python -m tests.differential jobs --seed {seed} {only}{told}"


def shown(verdict: Verdict, plans: Mapping[str, Plan], replayed: Callable[[str], str]) -> str:
    """All that is wrong, each case with its plan and how to play it again."""
    lines = [*verdict.errors]
    for name in dict.fromkeys(each.scenario for each in verdict.differences):
        lines.append(comparing.table(each for each in verdict.differences if each.scenario == name))
        if name in plans:
            lines.append(f"    plan: {json.dumps(plans[name].told())}")
        lines.append(f"    replay: {replayed(name)}")
    for (setting, name), why in verdict.dropped.items():
        lines.append(f"{name}: dropped, {setting} ends it in two ways: {why}")
    return "\n".join(lines)


# -- playing one case -----------------------------------------------------------


async def play(stage: Stage, *, plan: Plan, waits: list[float]) -> None:
    """Submit the Job, and do what the plan says whenever all is quiet."""
    stage.house.listen(stage.namespace, _Watch(stage, waits).saw)
    try:
        await stage.submit(simulate=plan.simulate, template=plan.template, **plan.spec)
        await _settle(stage, plan)
        for act in plan.acts:
            await _do(stage, act)
            await _settle(stage, plan)
    except errors.ClientError as refused:
        stage.notes.append(f"refused: {refused}")


class _Watch:
    """Sees what the stage sees, and measures the wait after a first failure."""

    def __init__(self, stage: Stage, waits: list[float]) -> None:
        self._stage = stage
        self._waits = waits

    def saw(self, plural: str, what: EventType, obj: Object) -> None:
        if plural == "pods" and obj["metadata"]["uid"] not in self._stage.pods:
            before = list(self._stage.pods.values())
            if len(before) == 1 and failed_by_itself(before[0]):
                self._waits.append(time.time() - ends_at(before[0]))
        self._stage.saw(plural, what, obj)


def failed_by_itself(pod: Object) -> bool:
    """Has a pod failed that nobody deleted, and that no other index stands beside?"""
    failed = pod.get("status", {}).get("phase") == "Failed"
    alone = outcome.index_of(pod) is None and "deletionTimestamp" not in pod["metadata"]
    return failed and alone


def failures(stage: Stage) -> list[float]:
    """When pods have failed, the first of each first."""
    ended = [
        ends_at(pod)
        for pod in stage.pods.values()
        if pod.get("status", {}).get("phase") == "Failed"
    ]
    return sorted(each for each in ended if each)


def ends_at(pod: Object) -> float:
    """When the last container of a pod ended; 0 where that is not told."""
    states = [each.get("state", {}) for each in pod["status"].get("containerStatuses") or ()]
    stamps = [state["terminated"].get("finishedAt") for state in states if "terminated" in state]
    return max(map(_moment, stamps), default=0.0)


async def _settle(stage: Stage, plan: Plan) -> None:
    """Until nothing happens any more, and nothing is awaited."""
    await stage.quiet()
    while (left := awaited(stage, plan, time.time())) > 0:
        await asyncio.sleep(left)
        await stage.quiet()


def awaited(stage: Stage, plan: Plan, now: float) -> float:
    """For how many seconds a pod, its node or a controller may still wait before it acts."""
    job = stage.jobs.get("job")
    if job is None or stage.condition("Complete") or stage.condition("Failed"):
        return 0.0
    moments = [_next_end(stage, plan, pod) for pod in stage.active]
    if not job["spec"].get("suspend") and len(stage.active) < job["spec"].get("parallelism", 1):
        moments.append(_next_start(stage))
    return max(moments, default=0.0) + LATE_SECONDS - now


def _next_start(stage: Stage) -> float:
    """When a replacement is made at the latest; 0 if nothing delays it."""
    ended = failures(stage)
    return ended[-1] + BACKOFF_SECONDS * float(2 ** (len(ended) - 1)) if ended else 0.0


def _next_end(stage: Stage, plan: Plan, pod: Object) -> float:
    """When a pod's container ends or starts by itself; 0 if it does not."""
    status: Object = next(iter(pod.get("status", {}).get("containerStatuses") or ()), {})
    state = status.get("state", {})
    ended = state.get("terminated") or status.get("lastState", {}).get("terminated") or {}
    if "running" not in state:
        return _moment(ended.get("finishedAt")) + BACKOFF_SECONDS if ended else 0.0
    index = outcome.index_of(pod)
    before = [each for each in stage.pods.values() if outcome.index_of(each) == index].index(pod)
    seconds = plan.attempt(index, before + status.get("restartCount", 0))["seconds"]
    return 0.0 if seconds is None else _moment(state["running"].get("startedAt")) + seconds


def _moment(stamp: str | None) -> float:
    return times.parse(stamp).timestamp() if stamp else 0.0


async def _do(stage: Stage, act: Act) -> None:
    if "job" not in stage.jobs:
        return
    if act.verb == "suspend":
        await stage.suspend()
    elif act.verb == "resume":
        await stage.resume()
    elif act.verb == "parallelism":
        await stage.change(parallelism=act.value)
    elif act.verb == "scale":
        await stage.change(parallelism=act.value, completions=act.value)
    elif act.verb == "delete_job":
        await _delete_job(stage, act.value)
    elif stage.running:
        await _end_pod(stage, act)


async def _delete_job(stage: Stage, propagation: Any) -> None:
    """Until nothing is left to be done by the collector of garbage, which is not in a hurry."""
    keeps_pods = propagation in (None, "Orphan")
    await stage.delete_job(options=DeleteOptions(propagation=propagation))
    await stage.wait_until(lambda seen: not seen.jobs, what="the Job is still there")
    await stage.wait_until(
        lambda seen: all(keeps_pods and _is_free(pod) for pod in seen.present),
        what="pods are not let go" if keeps_pods else "pods are still there",
    )


def _is_free(pod: Object) -> bool:
    meta = pod["metadata"]
    return not meta.get("ownerReferences") and not meta.get("finalizers")


async def _end_pod(stage: Stage, act: Act) -> None:
    running = sorted(stage.running, key=lambda pod: outcome.index_of(pod) or 0)
    pod = running[act.value % len(running)]
    if act.verb == "evict":
        await stage.evict(pod)
    else:
        grace = 0 if act.verb == "force" else None
        await stage.delete_pod(pod, DeleteOptions(grace_seconds=grace))

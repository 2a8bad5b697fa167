# SPDX-License-Identifier: Apache-2.0
"""Random Jobs on several clusters, and how they end compared with the reference.

A case is a random scenario. The clusters play cases like scenarios, with the same
comparison. If another cluster ends a case differently, all play the case a second time.
A case that the reference ends in two ways proves nothing: the run drops and lists the
case. If only another cluster ends the case in two ways, all play more often: an end that
comes twice is a difference, and an end that came once is dropped and listed.
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
from refloat.client.contract import DeleteOptions
from refloat.scenario.namespace import ScenarioNamespace, index_of
from tests.differential.plans import Act, Plan
from tests.scenarios import comparing, playing
from tests.scenarios.comparing import OutcomeDifference
from tests.scenarios.playing import ScenarioResult
from tests.scenarios.scenario import Scenario
from tests.scenarios.setting import Setting

REFERENCE = "reference"

# The first delay of a Job's back-off; each further failure doubles the delay.
BACKOFF_SECONDS = 10.0

# A controller may be late by this much.
LATE_SECONDS = 2.0

# Of fewer waits the shortest may be a late one, too.
FEWEST_WAITS = 5

# So often a case is played again that the reference ends in one way and another in two.
MORE_PLAYS = 2

# If more of the cases than this are dropped, too little was compared.
MOST_DROPPED = 0.1

Results = Mapping[str, Mapping[str, ScenarioResult]]
"""By setting and case."""

Waits = dict[str, list[float]]
"""By setting: seconds from the end of a first failed pod to the replacement."""


@dataclass
class JobsVerdict:
    """What a run has shown."""

    differences: list[OutcomeDifference] = field(default_factory=list)
    meant: list[OutcomeDifference] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dropped: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By setting and case: what is ended in two ways."""
    cases: int = 0

    @property
    def is_bad(self) -> bool:
        too_few = len(self.dropped) > max(1, self.cases * MOST_DROPPED)
        return bool(self.differences or self.errors or too_few)


class JobsRun:
    """Plans on settings, one setting after the other."""

    def __init__(
        self, settings: Iterable[Setting], plans: Iterable[Plan], tell: Callable[[str], object]
    ) -> None:
        self._settings = list(settings)
        self._plans = {each.name: each for each in plans}
        self._tell = tell
        self.waits: Waits = {}

    def play(self, at_once: int) -> JobsVerdict:
        plays = [self._all(self._plans, at_once)]
        changes = differences(plays[0])
        names = {each.scenario for each in changes if not each.meant} | broken(plays[0])
        plays += self._again(names, at_once, 1)
        plays += self._again(doubtful(names, plays), at_once, MORE_PLAYS)
        for each in self._settings:
            each.sweep()
        verdict = judged(changes, plays)
        verdict.differences += list(wait_differences(self.waits))
        return verdict

    def _again(self, names: set[str], at_once: int, times: int) -> list[Results]:
        plans = {name: plan for name, plan in self._plans.items() if name in names}
        return [self._all(plans, at_once) for _ in range(times if plans else 0)]

    def _all(self, plans: Mapping[str, Plan], at_once: int) -> Results:
        return {each.role: self._played(each, plans, at_once) for each in self._settings}

    def _played(
        self, setting: Setting, plans: Mapping[str, Plan], at_once: int
    ) -> dict[str, ScenarioResult]:
        began, waits = time.monotonic(), self.waits.setdefault(setting.role, [])
        scenarios = [scenario(each, waits) for each in plans.values()]
        results = asyncio.run(playing.play(setting, scenarios, at_once=at_once))
        seconds = time.monotonic() - began
        self._tell(f"{setting.role}: {len(results)} cases, {seconds:.0f} s")
        return results


def differences(results: Results) -> list[OutcomeDifference]:
    """How the others end what the reference ends too."""
    others = {name: each for name, each in results.items() if name != REFERENCE}
    return list(comparing.differences(results[REFERENCE], others, comparing.meant()))


def broken(results: Results) -> set[str]:
    """Cases that could not be played to their end."""
    return {name for each in results.values() for name, result in each.items() if result.error}


def unsteady(plays: Sequence[Results]) -> dict[tuple[str, str], str]:
    """The cases that a setting ends in two ways, and the field that differs."""
    flaky: dict[tuple[str, str], str] = {}
    first, *others = plays
    for setting, results in (pair for play in others for pair in play.items()):
        for each in comparing.differences(first[setting], {"again": results}, ()):
            change = f"{each.field}: {each.expected} or {each.found}"
            flaky.setdefault((setting, each.scenario), change)
        for name, result in results.items():
            if bool(result.error) != bool(first[setting][name].error):
                error = result.error or first[setting][name].error
                flaky[setting, name] = error.strip().splitlines()[-1]
    return flaky


def doubtful(names: Iterable[str], plays: Sequence[Results]) -> set[str]:
    """Cases that the reference ends in one way, and another setting once in another way."""
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


def _is_struck(
    play: Results, setting: str, name: str, lines: list[comparing.ExpectedDifference]
) -> bool:
    result = play[setting][name]
    expected, others = {name: play[REFERENCE][name]}, {setting: {name: result}}
    changes = comparing.differences(expected, others, lines)
    return bool(result.error) or any(not each.meant for each in changes)


def judged(changes: Iterable[OutcomeDifference], plays: Sequence[Results]) -> JobsVerdict:
    """Differences and errors of the steady cases."""
    first, unclear = plays[0], unsteady(plays)
    dropped: dict[tuple[str, str], str] = {}

    def is_dropped(setting: str, name: str) -> bool:
        for who in (REFERENCE, setting):
            once = who == REFERENCE or strikes(plays, who, name) == 1
            if once and (who, name) in unclear:
                dropped[who, name] = unclear[who, name]
                return True
        return False

    verdict = JobsVerdict(dropped=dropped, cases=len(first[REFERENCE]))
    for each in changes:
        if each.meant:
            verdict.meant.append(each)
        elif not is_dropped(each.setting, each.scenario):
            verdict.differences.append(each)
    for setting, outcomes in first.items():
        for name, result in outcomes.items():
            if result.error and not is_dropped(setting, name):
                verdict.errors.append(f"{setting}: {name}: {result.error}")
    return verdict


def wait_differences(waits: Waits) -> Iterable[OutcomeDifference]:
    """Whether the shortest wait of a setting is another one, in whole seconds.

    A single wait may be longer, on a busy machine by seconds. Of many, the
    shortest is the back-off itself: the time of a pod's end has whole seconds,
    and a controller that waits from there is never early.
    """
    expected = waits.get(REFERENCE)
    for setting, seconds in waits.items():
        if setting == REFERENCE or not expected:
            continue
        if min(len(expected), len(seconds)) >= FEWEST_WAITS:
            want, have = math.floor(min(expected)), math.floor(min(seconds))
            if want != have:
                yield OutcomeDifference(
                    "all cases", "shortest back-off", setting, f"{want} s", f"{have} s"
                )


def replay(seed: int, case: str, settings: Iterable[Setting]) -> str:
    """The command that plays one case again."""
    number = case.rpartition("_")[2]
    options = " ".join(f"--setting {each.role}={each.kubeconfig}" for each in settings)
    only = f"--case {number} " if number.isdigit() else ""
    return f"python -m tests.differential jobs --seed {seed} {only}{options}"


def shown(verdict: JobsVerdict, plans: Mapping[str, Plan], replayed: Callable[[str], str]) -> str:
    """All failures, each case with the plan and the command that plays the case again."""
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


def scenario(plan: Plan, waits: list[float]) -> Scenario:
    """The plan as a scenario, which runs on any cluster."""
    return Scenario(plan.name, functools.partial(play, plan=plan, waits=waits), "")


async def play(ns: ScenarioNamespace, *, plan: Plan, waits: list[float]) -> None:
    """Submit the Job, and do the acts of the plan whenever all is quiet."""
    ns.cluster.listen(ns.name, _BackoffTimer(ns, waits).saw)
    try:
        await ns.submit(simulate=plan.simulate, template=plan.template, **plan.spec)
        await _settle(ns, plan)
        for act in plan.acts:
            await _do(ns, act)
            await _settle(ns, plan)
    except errors.ClientError as error:
        ns.notes.append(f"refused: {error}")


class _BackoffTimer:
    """Measures the wait from a first failure to the replacement."""

    def __init__(self, ns: ScenarioNamespace, waits: list[float]) -> None:
        self._namespace = ns
        self._waits = waits
        self._is_over = False

    def saw(self, *_: object) -> None:
        pods = list(self._namespace.pods.values())
        if len(pods) == 2 and not self._is_over:
            self._is_over = True
            if failed_by_itself(pods[0]):
                self._waits.append(_now(self._namespace) - ends_at(pods[0]))


def failed_by_itself(pod: Object) -> bool:
    """Has a pod failed that was not deleted, and that no other index stands beside?"""
    failed = pod.get("status", {}).get("phase") == "Failed"
    alone = index_of(pod) is None and "deletionTimestamp" not in pod["metadata"]
    return failed and alone


def failures(ns: ScenarioNamespace) -> list[float]:
    """When pods have failed, the first of each first."""
    ends = [
        ends_at(pod) for pod in ns.pods.values() if pod.get("status", {}).get("phase") == "Failed"
    ]
    return sorted(each for each in ends if each)


def ends_at(pod: Object) -> float:
    """When the last container of a pod ended; 0 if the pod has no such time."""
    states = [each.get("state", {}) for each in pod["status"].get("containerStatuses") or ()]
    stamps = [state["terminated"].get("finishedAt") for state in states if "terminated" in state]
    return max(map(_moment, stamps), default=0.0)


async def _settle(ns: ScenarioNamespace, plan: Plan) -> None:
    """Until nothing happens any more, and nothing is awaited."""
    await ns.quiet()
    while (remaining := awaited(ns, plan, _now(ns))) > 0:
        await ns.sleep(remaining)
        await ns.quiet()


def _now(ns: ScenarioNamespace) -> float:
    return ns.cluster.clock.now().timestamp()


def awaited(ns: ScenarioNamespace, plan: Plan, now: float) -> float:
    """For how many seconds a pod, its node or a controller may still wait."""
    job = ns.jobs.get("job")
    if job is None or ns.condition("Complete") or ns.condition("Failed"):
        return 0.0
    moments = [_next_end(ns, plan, pod) for pod in ns.active]
    if not job["spec"].get("suspend") and len(ns.active) < job["spec"].get("parallelism", 1):
        moments.append(_next_start(ns))
    return max(moments, default=0.0) + LATE_SECONDS - now


def _next_start(ns: ScenarioNamespace) -> float:
    """When a replacement is made at the latest; 0 without a delay."""
    ends = failures(ns)
    return ends[-1] + BACKOFF_SECONDS * float(2 ** (len(ends) - 1)) if ends else 0.0


def _next_end(ns: ScenarioNamespace, plan: Plan, pod: Object) -> float:
    """When a pod's container ends or starts by itself; 0 without such an end."""
    status: Object = next(iter(pod.get("status", {}).get("containerStatuses") or ()), {})
    state = status.get("state", {})
    termination = state.get("terminated") or status.get("lastState", {}).get("terminated") or {}
    if "running" not in state:
        return _moment(termination.get("finishedAt")) + BACKOFF_SECONDS if termination else 0.0
    index = index_of(pod)
    before = [each for each in ns.pods.values() if index_of(each) == index].index(pod)
    seconds = plan.attempt(index, before + status.get("restartCount", 0))["seconds"]
    return 0.0 if seconds is None else _moment(state["running"].get("startedAt")) + seconds


def _moment(stamp: str | None) -> float:
    return times.parse(stamp).timestamp() if stamp else 0.0


async def _do(ns: ScenarioNamespace, act: Act) -> None:
    if "job" not in ns.jobs:
        return
    if act.verb == "suspend":
        await ns.suspend()
    elif act.verb == "resume":
        await ns.resume()
    elif act.verb == "parallelism":
        await ns.change(parallelism=act.value)
    elif act.verb == "scale":
        await ns.change(parallelism=act.value, completions=act.value)
    elif act.verb == "delete_job":
        await _delete_job(ns, act.value)
    elif ns.running:
        await _end_pod(ns, act)


async def _delete_job(ns: ScenarioNamespace, propagation: Any) -> None:
    """Until nothing is left to be done by the collector of garbage, which is not in a hurry."""
    keeps_pods = propagation in (None, "Orphan")
    await ns.delete_job(options=DeleteOptions(propagation=propagation))
    await ns.wait_until(lambda state: not state.jobs, "the Job is still there")
    await ns.wait_until(
        lambda state: all(keeps_pods and _is_free(pod) for pod in state.present),
        "pods are not let go" if keeps_pods else "pods are still there",
    )


def _is_free(pod: Object) -> bool:
    meta = pod["metadata"]
    return not meta.get("ownerReferences") and not meta.get("finalizers")


async def _end_pod(ns: ScenarioNamespace, act: Act) -> None:
    running = sorted(ns.running, key=lambda pod: index_of(pod) or 0)
    pod = running[act.value % len(running)]
    if act.verb == "evict":
        await ns.evict(pod)
    else:
        grace = 0 if act.verb == "force" else None
        await ns.delete_pod(pod, DeleteOptions(grace_seconds=grace))

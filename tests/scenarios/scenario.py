# SPDX-License-Identifier: Apache-2.0
"""A scenario: a claim as its name, and a function that acts in a namespace of its own.

A scenario must end the same way in every run, or it cannot be compared: pods
that end at once end alike, and what ends differently ends seconds apart. What
it says itself are the few things that matter; all the rest of its outcome is
compared with the reference.
"""

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from refloat.api.meta import Object
from refloat.client.contract import DeleteOptions
from refloat.scenario.namespace import ScenarioNamespace

Play: TypeAlias = Callable[[ScenarioNamespace], Awaitable[None]]

MODULES = (
    "completion",
    "indexed",
    "scaling",
    "retries",
    "per_index",
    "failure_policy",
    "failure_conditions",
    "ranges_and_reasons",
    "replacement",
    "suspension",
    "success_policy",
    "ownership",
    "endings",
)

# The interim condition that precedes each terminal one (behaviour A18.1).
_INTERIM = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}

BACKOFF_LIMIT = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
REACHED = ("CompletionsReached", "Reached expected number of succeeded pods")
DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")
FAILED_INDEXES = ("FailedIndexes", "Job has failed indexes")
TOO_MANY_FAILED_INDEXES = (
    "MaxFailedIndexesExceeded",
    "Job has exceeded the specified maximal number of failed indexes",
)

FOREVER: Object = {"seconds": None}

# How long something lasts that is waited for and then ends by itself. Controllers
# gather changes, and on a busy machine they are late: what is over sooner may
# never be reported.
MEANWHILE = 15.0

# A pod that terminates until `let_end`: no clock decides what a controller sees
# meanwhile. Its preStop hook takes an hour, unless a second delete has less grace.
HOUR = 3600
PATIENT: Object = {"terminationGracePeriodSeconds": HOUR}


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    play: Play
    told: str
    """The docstring of the function: the ids of its facts."""


_known: dict[str, Scenario] = {}


def scenario(play: Play) -> Play:
    """Enter a function as a scenario."""
    name: str = play.__name__
    assert name not in _known, f"two scenarios named {name}"
    _known[name] = Scenario(name, play, play.__doc__ or "")
    return play


def every() -> list[Scenario]:
    """All of them, in the order of the modules."""
    for module in MODULES:
        importlib.import_module(f"tests.scenarios.{module}")
    return list(_known.values())


def ends(code: int = 0, seconds: float = 0.5, **more: Any) -> Object:
    """A container that runs for a while and ends with this code."""
    return {"seconds": seconds, "exitCode": code, **more}


def in_turn(*codes: int) -> list[Object]:
    """The nth attempt of a Job or index ends with the nth code, the others as the last."""
    return [ends(code) for code in codes]


def stops(after: float, code: int = 143) -> Object:
    """A container that runs until the kubelet stops it, and then for some seconds more."""
    return {"seconds": None, "stopSeconds": after, "stopExitCode": code}


def waits(code: int = 143) -> Object:
    """A container that runs until `let_end`, also when the kubelet stops it; with PATIENT."""
    return {"seconds": None, "preStopSeconds": HOUR, "stopExitCode": code}


async def let_end(ns: ScenarioNamespace, *pods: Object) -> None:
    """Let pods end that are being deleted: a second delete may only shorten the grace."""
    for pod in pods:
        await ns.delete_pod(pod, DeleteOptions(grace_seconds=1))


def rule(action: str, *codes: int, operator: str = "In", container: str = "") -> Object:
    """A rule of a podFailurePolicy for exit codes."""
    requirement: Object = {"operator": operator, "values": list(codes)}
    if container:
        requirement["containerName"] = container
    return {"action": action, "onExitCodes": requirement}


def on_condition(action: str, kind: str = "DisruptionTarget", status: str = "") -> Object:
    """A rule of a podFailurePolicy for a pod condition."""
    pattern = {"type": kind, **({"status": status} if status else {})}
    return {"action": action, "onPodConditions": [pattern]}


def policy(*rules: Object) -> Object:
    return {"rules": list(rules)}


async def over(
    ns: ScenarioNamespace, kind: str, expected: tuple[str, str], **counts: int | str
) -> None:
    """The Job ends so, with both conditions in these words, and with these counts."""
    status = await ns.finished()
    reason, message = expected
    for each in (_INTERIM[kind], kind):
        condition = ns.condition(each)
        assert condition is not None, f"no {each}: {status}"
        assert (condition["reason"], condition["message"]) == (reason, message)
    assert status["uncountedTerminatedPods"] == {}, status
    has(status, **counts)


def has(status: Object, **counts: int | str) -> None:
    """A status with these fields; a count that is missing is 0, a text is empty."""
    for field, want in counts.items():
        value = status.get(field, 0 if isinstance(want, int) else "")
        assert value == want, f"{field} is {value!r}, not {want!r}: {status}"

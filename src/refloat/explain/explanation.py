# SPDX-License-Identifier: Apache-2.0
"""What explain answers: a verdict with its code, the next step, commands, attempts, evidence.

Plain values. `cli` renders them, `as_object` is the published form (`schema.json`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from refloat.api import durations, times
from refloat.api.meta import Object
from refloat.explain.codes import Cause, Code

API_VERSION = "explain.refloat.dev/v1"

JOB_CONTROLLER = "the Job controller"
SCHEDULER = "the scheduler"
KUBELET = "the kubelet"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What happens next. Without a component, nothing acts by itself."""

    text: str
    component: str = ""
    at: datetime | None = None
    """None: as soon as something changes."""

    def as_object(self) -> Object:
        at = {} if self.at is None else {"at": times.format_time(self.at)}
        return {"text": self.text, "component": self.component, **at}


@dataclass(frozen=True, slots=True)
class Command:
    """Something that the user can do."""

    text: str
    command: str = ""

    def as_object(self) -> Object:
        return {"text": self.text, "command": self.command}


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact, and the object or event that shows it."""

    source: str
    text: str

    def as_object(self) -> Object:
        return {"source": self.source, "text": self.text}


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one object, and what follows."""

    code: Code
    verdict: str
    next: tuple[NextStep, ...] = ()
    commands: tuple[Command, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def with_evidence(self, evidence: Iterable[Evidence]) -> "Finding":
        return replace(self, evidence=(*self.evidence, *evidence))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One pod of a Job: where and when it ran, how it ended, what the Job made of that."""

    pod: str
    index: int | None = None
    number: int = 1
    """Counts the pods of the index, or of the Job if it is not Indexed, from 1."""
    node: str = ""
    start: datetime | None = None
    end: datetime | None = None
    cause: Cause | None = None
    """None while the pod has not ended."""
    how: str = ""
    rule: str = ""
    """The rule that matched and its action; empty if none did."""
    counted: bool | None = None
    """Whether the failure counts towards a limit; None if it is no failure, or open."""
    exists: bool = True
    """Whether the pod still exists, or the record of attempts alone."""
    log: str = ""
    """The last lines of the container's log, where the record has them."""

    def as_object(self) -> Object:
        values: Object = {
            "pod": self.pod,
            "index": self.index,
            "number": self.number,
            "node": self.node or None,
            "start": _text(self.start),
            "end": _text(self.end),
            "cause": None if self.cause is None else str(self.cause),
            "how": self.how,
            "rule": self.rule or None,
            "counted": self.counted,
            "exists": self.exists,
            "log": self.log or None,
        }
        return {key: value for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole answer for one object."""

    kind: str
    namespace: str
    name: str
    time: datetime
    finding: Finding
    attempts: tuple[Attempt, ...] = ()
    budget: str = ""
    """How many failures the Job has left."""
    limits: tuple[str, ...] = ()
    """What explain could not read, and which right is missing."""

    @property
    def subject(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind.lower()} {place}{self.name}"

    def as_object(self) -> Object:
        """For `-o json` and `-o yaml`."""
        finding = self.finding
        namespace = {"namespace": self.namespace} if self.namespace else {}
        return {
            "apiVersion": API_VERSION,
            "kind": "Explanation",
            "object": {"kind": self.kind, **namespace, "name": self.name},
            "time": times.format_time(self.time),
            "code": str(finding.code),
            "verdict": finding.verdict,
            "next": [each.as_object() for each in finding.next],
            "commands": [each.as_object() for each in finding.commands],
            "budget": self.budget,
            "attempts": [each.as_object() for each in self.attempts],
            "evidence": [each.as_object() for each in finding.evidence],
            "limits": list(self.limits),
        }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else times.format_time(moment)


def age(moment: datetime, now: datetime) -> str:
    """How long ago, as `3m0s`; never negative."""
    return durations.show(times.span(max(0, round((now - moment).total_seconds()))))


def count(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    ending = "" if number == 1 else "es" if noun.endswith("x") else "s"
    return f"{number} {noun}{ending}"

# SPDX-License-Identifier: Apache-2.0
"""What a write of a Job's status must keep to, whoever the Job's controller is.

Most rules hold only when what they speak of changes in this very write, so
that a status from older times can still be written on.
"""

from dataclasses import dataclass
from typing import Any

from refloat.api import fields, internal, intervals
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta, rules

_STARTED_ONCE = "field is immutable for unsuspended job once set"
_TERMINAL = ("Failed", "Complete", "FailureTarget")


@dataclass(frozen=True, slots=True)
class _Side:
    """A status, with the questions that the rules ask of it."""

    status: Object

    def get(self, name: str) -> Any:
        return self.status.get(name)

    def count(self, name: str) -> int:
        return self.status.get(name) or 0

    def has(self, condition: str, value: str = "True") -> bool:
        """Any condition of this type with this status, not only the first."""
        return any(
            each.get("type") == condition and each.get("status") == value
            for each in self.status.get("conditions") or ()
        )

    @property
    def complete(self) -> bool:
        return self.has("Complete")

    @property
    def failed(self) -> bool:
        return self.has("Failed")

    @property
    def failing(self) -> bool:
        return self.has("FailureTarget")

    @property
    def succeeding(self) -> bool:
        return self.has("SuccessCriteriaMet")

    @property
    def finished(self) -> bool:
        return self.complete or self.failed


@dataclass(frozen=True, slots=True)
class _Write:
    """One write of a status."""

    new: _Side
    old: _Side
    spec: Object

    def changes(self, *what: str) -> bool:
        """Whether any of these fields or answers is not what it was."""
        return any(_value(self.new, name) != _value(self.old, name) for name in what)

    @property
    def indexed(self) -> bool:
        return self.spec.get("completionMode") == "Indexed"


def _value(side: _Side, name: str) -> Any:
    if name == "active":
        return side.count(name)
    if name == "completedIndexes":
        return side.get(name) or ""
    if name == "uncountedTerminatedPods":
        return _uncounted(side)
    if name in ("complete", "failed", "failing", "succeeding", "finished"):
        return getattr(side, name)
    return side.get(name)


def _uncounted(side: _Side) -> tuple[list[str], list[str]] | None:
    pods = side.get("uncountedTerminatedPods")
    if pods is None:
        return None
    return pods.get("succeeded") or [], pods.get("failed") or []


def validate_update(new: Object, old: Object) -> list[FieldError]:
    write = _Write(
        _Side(new.get("status") or {}), _Side(old.get("status") or {}), new.get("spec") or {}
    )
    return [
        *meta.validate_update(new["metadata"], old["metadata"]),
        *_counters(write.new),
        *_uncounted_pods(write.new),
        *_completion(write),
        *_ending(write),
        *_indexes(write),
        *_pods(write),
        *_success(write),
        *_steps_back(write),
        *_start(write),
        *_success_changes(write),
    ]


def _conflict(detail: str) -> FieldError:
    return fields.invalid("status.conditions", fields.OMITTED, detail)


def _counters(new: _Side) -> list[FieldError]:
    mistakes = []
    for name in ("active", "succeeded", "failed", "ready", "terminating"):
        mistakes += rules.nonnegative(new.get(name), f"status.{name}")
    return mistakes


def _uncounted_pods(new: _Side) -> list[FieldError]:
    mistakes = []
    seen: set[str] = set()
    pods = _uncounted(new) or ([], [])
    for name, uids in zip(("succeeded", "failed"), pods, strict=True):
        for i, uid in enumerate(uids):
            path = f"status.uncountedTerminatedPods.{name}[{i}]"
            if not uid:
                mistakes.append(fields.invalid(path, uid, "must not be empty"))
            elif uid in seen:
                mistakes.append(fields.duplicate(path, internal.typed(uid)))
            seen.add(uid)
    return mistakes


def _completion(write: _Write) -> list[FieldError]:
    new = write.new
    mistakes = []
    if write.changes("complete", "failed") and new.complete and new.failed:
        mistakes.append(_conflict("cannot set Complete=True and Failed=true conditions"))
    if write.changes("complete", "failing") and new.complete and new.failing:
        mistakes.append(_conflict("cannot set Complete=True and FailureTarget=true conditions"))
    return mistakes + _completion_time(write)


def _completion_time(write: _Write) -> list[FieldError]:
    new, path = write.new, "status.completionTime"
    start, end = new.get("startTime"), new.get("completionTime")
    mistakes = []
    if write.changes("complete", "completionTime"):
        if end is not None and not new.complete:
            detail = "cannot set completionTime when there is no Complete=True condition"
            mistakes.append(fields.invalid(path, end, detail))
        if end is None and new.complete:
            detail = "completionTime is required for Complete jobs"
            mistakes.append(fields.required(path, detail))
    # Times are written in one form, so that their texts sort as they do.
    if write.changes("startTime", "completionTime") and start and end and end < start:
        mistakes.append(fields.invalid(path, end, "must be equal to or after `startTime`"))
    return mistakes


def _ending(write: _Write) -> list[FieldError]:
    new = write.new
    mistakes = []
    if write.changes("failed", "failedIndexes") and new.failed and not new.failing:
        detail = "cannot set Failed=True condition without the FailureTarget=true condition"
        mistakes.append(_conflict(detail))
    if write.changes("complete", "succeeding") and new.complete and not new.succeeding:
        detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        mistakes.append(_conflict(detail))
    return mistakes + (_finished(write) if new.finished else [])


def _finished(write: _Write) -> list[FieldError]:
    new, spec = write.new, write.spec
    mistakes = []
    if write.changes("finished", "active") and new.count("active") > 0:
        detail = "active>0 is invalid for finished job"
        mistakes.append(fields.invalid("status.active", new.get("active"), detail))
    never_ran = spec.get("suspend") is True and spec.get("completions") == 0
    if write.changes("finished", "startTime") and not never_ran and new.get("startTime") is None:
        mistakes.append(
            fields.required("status.startTime", "startTime is required for finished job")
        )
    if write.changes("finished", "uncountedTerminatedPods") and any(_uncounted(new) or ()):
        path = "status.uncountedTerminatedPods"
        shown = internal.shown("batch.UncountedTerminatedPods", new.get("uncountedTerminatedPods"))
        mistakes.append(fields.invalid(path, shown, "must be empty for finished job"))
    return mistakes


def _indexes(write: _Write) -> list[FieldError]:
    return [
        *_index_formats(write),
        *_index_owners(write),
        *_index_overlap(write),
    ]


def _index_formats(write: _Write) -> list[FieldError]:
    completions = write.spec.get("completions")
    if completions is None:
        return []
    mistakes = []
    if write.changes("completedIndexes"):
        mistakes += _format(write, "completedIndexes", completions)
    if write.changes("failedIndexes") and write.spec.get("backoffLimitPerIndex") is not None:
        mistakes += _format(write, "failedIndexes", completions)
    return mistakes


def _format(write: _Write, name: str, completions: int) -> list[FieldError]:
    text = write.new.get(name) or ""
    try:
        intervals.check(text, completions)
    except intervals.BadIndexes as complaint:
        # Kubernetes has failedIndexes behind a pointer, and so shows them as JSON.
        shown = internal.typed(text) if name == "failedIndexes" else text
        return [fields.invalid(f"status.{name}", shown, f"error parsing {name}: {complaint}")]
    return []


def _index_owners(write: _Write) -> list[FieldError]:
    new = write.new
    mistakes = []
    completed, failed = new.get("completedIndexes"), new.get("failedIndexes")
    if write.changes("completedIndexes") and completed and not write.indexed:
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        mistakes.append(fields.invalid("status.completedIndexes", completed, detail))
    per_index = write.spec.get("backoffLimitPerIndex") is not None
    if write.changes("failedIndexes") and failed is not None and not per_index:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        mistakes.append(fields.invalid("status.failedIndexes", failed, detail))
    return mistakes


def _index_overlap(write: _Write) -> list[FieldError]:
    completions, failed = write.spec.get("completions"), write.new.get("failedIndexes")
    if completions is None or failed is None:
        return []
    if not write.changes("failedIndexes", "completedIndexes"):
        return []
    common = intervals.first_common(write.new.get("completedIndexes") or "", failed, completions)
    if common is None:
        return []
    detail = f"failedIndexes and completedIndexes overlap at index: {common}"
    return [fields.invalid("status.failedIndexes", failed, detail)]


def _pods(write: _Write) -> list[FieldError]:
    new = write.new
    mistakes = []
    terminating = new.count("terminating")
    if write.changes("finished", "terminating") and terminating > 0 and new.finished:
        detail = "terminating>0 is invalid for finished job"
        mistakes.append(fields.invalid("status.terminating", terminating, detail))
    ready = new.get("ready")
    if write.changes("ready", "active") and ready is not None and ready > new.count("active"):
        detail = "cannot set more ready pods than active"
        mistakes.append(fields.invalid("status.ready", ready, detail))
    return mistakes


def _success(write: _Write) -> list[FieldError]:
    new = write.new
    mistakes = []
    if new.succeeding and new.failed:
        mistakes.append(_conflict("cannot set SuccessCriteriaMet=True and Failed=true conditions"))
    if new.succeeding and new.failing:
        detail = "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"
        mistakes.append(_conflict(detail))
    if write.spec.get("successPolicy") is not None and new.complete and not new.succeeding:
        detail = (
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        )
        mistakes.append(_conflict(detail))
    return mistakes


def _steps_back(write: _Write) -> list[FieldError]:
    """What has been reached stays reached."""
    new, old = write.new, write.old
    mistakes = [
        _conflict(f"cannot disable the terminal {name}=True condition")
        for name in _TERMINAL
        if old.has(name) and not new.has(name)
    ]
    names = ["failed"]
    if not write.indexed or write.spec.get("completions") != write.spec.get("parallelism"):
        names.append("succeeded")
    for name in names:
        if new.count(name) < old.count(name):
            detail = f"cannot decrease the {name} counter"
            mistakes.append(fields.invalid(f"status.{name}", new.count(name), detail))
    end, before = new.get("completionTime"), old.get("completionTime")
    if end is not None and before is not None and end != before:
        mistakes.append(fields.invalid("status.completionTime", end, meta.IMMUTABLE))
    return mistakes


def _start(write: _Write) -> list[FieldError]:
    new, old = write.new, write.old
    resuming = old.has("Suspended") and new.has("Suspended", "False")
    if not write.changes("startTime") or resuming or write.spec.get("suspend"):
        return []
    if old.get("startTime") is None:
        return []
    return [fields.invalid("status.startTime", new.get("startTime"), _STARTED_ONCE)]


def _success_changes(write: _Write) -> list[FieldError]:
    new, old = write.new, write.old
    mistakes = []
    if old.succeeding and not new.succeeding:
        mistakes.append(_conflict("cannot disable the SuccessCriteriaMet=True condition"))
    if old.complete and not old.succeeding and new.succeeding:
        detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        mistakes.append(_conflict(detail))
    return mistakes

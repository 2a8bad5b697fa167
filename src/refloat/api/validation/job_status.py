# SPDX-License-Identifier: Apache-2.0
"""The rules of a write to a Job's status, for every controller of Jobs.

Most rules hold only if this write changes the fields that they name, so that
a controller can still write to an older status.
"""

from dataclasses import dataclass
from typing import Any

from refloat.api import fields, go_internal_types, index_intervals
from refloat.api.fields import FieldError
from refloat.api.meta import Object
from refloat.api.validation import meta
from refloat.api.validation.rules import Errors

_STARTED_ONCE = "field is immutable for unsuspended job once set"
_END = "status.completionTime"
_TERMINAL = ("Failed", "Complete", "FailureTarget")


@dataclass(frozen=True, slots=True)
class _Side:
    """A status, with the answers that the rules need."""

    status: Object

    def get(self, name: str) -> Any:
        return self.status.get(name)

    def count(self, name: str) -> int:
        return self.status.get(name) or 0

    def has(self, condition: str, value: str = "True") -> bool:
        """Whether any condition of this type has this status, not only the first."""
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
        """Whether the write changes any of these fields or answers."""
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
    errors = meta.validate_update(new["metadata"], old["metadata"])
    for name in ("active", "succeeded", "failed", "ready", "terminating"):
        errors.not_negative(f"status.{name}", write.new.get(name))
    uids_so_far: set[str] = set()
    pods = _uncounted(write.new) or ([], [])
    for name, uids in zip(("succeeded", "failed"), pods, strict=True):
        for i, uid in enumerate(uids):
            path = f"status.uncountedTerminatedPods.{name}[{i}]"
            if not uid:
                errors.invalid(path, uid, "must not be empty")
            elif uid in uids_so_far:
                errors.duplicate(path, go_internal_types.typed(uid))
            uids_so_far.add(uid)
    _check_end(write, errors)
    _check_indexes(write, errors)
    _check_counts_and_conditions(write, errors)
    return errors


def _check_conflicts(errors: Errors, *conflicts: tuple[bool, str]) -> None:
    """Conditions that exclude each other, each with its message."""
    for is_conflict, detail in conflicts:
        if is_conflict:
            errors.invalid("status.conditions", fields.OMITTED, detail)


def _check_end(write: _Write, errors: Errors) -> None:
    new, spec = write.new, write.spec
    start, end = new.get("startTime"), new.get("completionTime")
    _check_conflicts(
        errors,
        (
            write.changes("complete", "failed") and new.complete and new.failed,
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            write.changes("complete", "failing") and new.complete and new.failing,
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
    )
    if write.changes("complete", "completionTime") and (end is not None) != new.complete:
        if new.complete:
            errors.required(_END, "completionTime is required for Complete jobs")
        else:
            detail = "cannot set completionTime when there is no Complete=True condition"
            errors.invalid(_END, end, detail)
    # Times have one form, so their texts are in the order of the times.
    if write.changes("startTime", "completionTime") and start and end and end < start:
        errors.invalid(_END, end, "must be equal to or after `startTime`")
    _check_conflicts(
        errors,
        (
            write.changes("failed", "failedIndexes") and new.failed and not new.failing,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            write.changes("complete", "succeeding") and new.complete and not new.succeeding,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
    )
    if new.finished and write.changes("finished", "active") and new.count("active") > 0:
        errors.invalid("status.active", new.get("active"), "active>0 is invalid for finished job")
    is_started = start is not None or (spec.get("suspend") is True and spec.get("completions") == 0)
    if new.finished and write.changes("finished", "startTime") and not is_started:
        errors.required("status.startTime", "startTime is required for finished job")
    name = "uncountedTerminatedPods"
    if new.finished and write.changes("finished", name) and any(_uncounted(new) or ()):
        value_text = go_internal_types.shown("batch.UncountedTerminatedPods", new.get(name))
        errors.invalid(f"status.{name}", value_text, "must be empty for finished job")


def _check_indexes(write: _Write, errors: Errors) -> None:
    completions = write.spec.get("completions")
    per_index = write.spec.get("backoffLimitPerIndex") is not None
    completed, failed = write.new.get("completedIndexes"), write.new.get("failedIndexes")
    changed = [each for each in ("completedIndexes", "failedIndexes") if write.changes(each)]
    for name in changed:
        if completions is not None and (name == "completedIndexes" or per_index):
            text = write.new.get(name) or ""
            # In Kubernetes failedIndexes is a pointer, so messages show JSON.
            value_text = go_internal_types.typed(text) if name == "failedIndexes" else text
            errors.indexes(f"status.{name}", text, completions, value_text)
    if "completedIndexes" in changed and completed and not write.indexed:
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errors.invalid("status.completedIndexes", completed, detail)
    if "failedIndexes" in changed and failed is not None and not per_index:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errors.invalid("status.failedIndexes", failed, detail)
    if changed and completions is not None and failed is not None:
        common = index_intervals.first_common(completed or "", failed, completions)
        if common is not None:
            detail = f"failedIndexes and completedIndexes overlap at index: {common}"
            errors.invalid("status.failedIndexes", failed, detail)


def _check_counts_and_conditions(write: _Write, errors: Errors) -> None:
    """They fit together, and a Job does not go back to an earlier state."""
    new, old = write.new, write.old
    terminating, ready = new.count("terminating"), new.get("ready")
    if write.changes("finished", "terminating") and terminating > 0 and new.finished:
        detail = "terminating>0 is invalid for finished job"
        errors.invalid("status.terminating", terminating, detail)
    if write.changes("ready", "active") and ready is not None and ready > new.count("active"):
        errors.invalid("status.ready", ready, "cannot set more ready pods than active")
    has_policy = write.spec.get("successPolicy") is not None
    _check_conflicts(
        errors,
        (
            new.succeeding and new.failed,
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ),
        (
            new.succeeding and new.failing,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            has_policy and new.complete and not new.succeeding,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
        *(
            (
                old.has(each) and not new.has(each),
                f"cannot disable the terminal {each}=True condition",
            )
            for each in _TERMINAL
        ),
    )
    may_shrink = write.spec.get("completions") == write.spec.get("parallelism")
    for name in ("failed",) if write.indexed and may_shrink else ("failed", "succeeded"):
        if new.count(name) < old.count(name):
            errors.invalid(f"status.{name}", new.count(name), f"cannot decrease the {name} counter")
    end, before = new.get("completionTime"), old.get("completionTime")
    if end is not None and before is not None:
        errors.immutable(_END, end, before)
    resuming = old.has("Suspended") and new.has("Suspended", "False")
    start, before = new.get("startTime"), old.get("startTime")
    if start != before and before is not None and not resuming and not write.spec.get("suspend"):
        errors.invalid("status.startTime", start, _STARTED_ONCE)
    _check_conflicts(
        errors,
        (
            old.succeeding and not new.succeeding,
            "cannot disable the SuccessCriteriaMet=True condition",
        ),
        (
            old.complete and not old.succeeding and new.succeeding,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ),
    )

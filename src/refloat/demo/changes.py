# SPDX-License-Identifier: Apache-2.0
"""The change between two versions of an object, in a few words.

Pure. The words name the changes that matter in a demo; for other changes they are
the names of the fields.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
Phrases: TypeAlias = Callable[[Object, Object], Iterator[str]]

# The counters in a status, and their names in the output.
_COUNTS = {
    "active": "active",
    "succeeded": "succeeded",
    "failed": "failed",
    "disruptionsAllowed": "disruptions allowed",
}


def describe(old: Object | None, new: Object) -> str:
    """The change from the old version to the new one; None for a new object."""
    if old is None:
        return ", ".join(_first(new)) or "new"
    phrases = [text for phrase in _PHRASES for text in phrase(old, new)]
    return ", ".join(phrases) or _fields(old, new)


def _first(new: Object) -> Iterator[str]:
    if (completions := new.get("spec", {}).get("completions")) is not None:
        yield f"{completions} completions wanted"
    if phase := new.get("status", {}).get("phase"):
        yield phase
    if node := new.get("spec", {}).get("nodeName"):
        yield f"on {node}"


def _phase(old: Object, new: Object) -> Iterator[str]:
    before, after = (version.get("status", {}).get("phase") for version in (old, new))
    if after != before:
        yield f"{before} -> {after}"


def _node(old: Object, new: Object) -> Iterator[str]:
    before, after = (version.get("spec", {}).get("nodeName") for version in (old, new))
    if after and after != before:
        yield f"bound to {after}"


def _counts(old: Object, new: Object) -> Iterator[str]:
    before, after = old.get("status", {}), new.get("status", {})
    for field, text in _COUNTS.items():
        if after.get(field, 0) != before.get(field, 0):
            yield f"{text} {before.get(field, 0)} -> {after.get(field, 0)}"


def _conditions(old: Object, new: Object) -> Iterator[str]:
    before, after = (version.get("status", {}).get("conditions") or () for version in (old, new))
    statuses = {condition["type"]: condition["status"] for condition in before}
    for condition in after:
        name, status = condition["type"], condition["status"]
        if statuses.get(name) != status:
            label = name if status == "True" else f"{name}={status}"
            reason = condition.get("reason")
            yield f"{label} ({reason})" if reason else label


def _deletion(old: Object, new: Object) -> Iterator[str]:
    """The deletion, and the finalizers that may hold it up."""
    before, after = old["metadata"], new["metadata"]
    if after.get("deletionTimestamp") != before.get("deletionTimestamp"):
        grace = after.get("deletionGracePeriodSeconds")
        yield "being deleted" if grace is None else f"being deleted, grace {grace} s"
    held, holds = before.get("finalizers") or [], after.get("finalizers") or []
    for name in held:
        if name not in holds:
            yield f"finalizer {name.rpartition('/')[2]} gone"
    for name in holds:
        if name not in held:
            yield f"finalizer {name.rpartition('/')[2]} set"


_PHRASES: tuple[Phrases, ...] = (_node, _phase, _counts, _conditions, _deletion)

# Fields that change with each write or mean nothing to a reader.
_HIDDEN_FIELDS = frozenset({"resourceVersion", "managedFields", "generation"})


def _fields(old: Object, new: Object) -> str:
    """The names of the fields that differ, two levels deep."""
    names: list[str] = []
    for part in dict.fromkeys((*old, *new)):
        before, after = old.get(part), new.get(part)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            fields = (name for name in {**before, **after} if name not in _HIDDEN_FIELDS)
            names += [f"{part}.{name}" for name in fields if before.get(name) != after.get(name)]
        else:
            names.append(part)
    return ", ".join(names) or "no change"

# SPDX-License-Identifier: Apache-2.0
"""What changed between two versions of an object, in a few words.

Pure: two objects in, one phrase out. It says what a person who follows a
story looks for; a change of which it knows no better words is told by the
names of the fields.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
Phrases: TypeAlias = Callable[[Object, Object], Iterator[str]]

# What is counted on in a status, and how it is called here.
_COUNTS = {
    "active": "active",
    "succeeded": "succeeded",
    "failed": "failed",
    "disruptionsAllowed": "disruptions allowed",
}


def describe(old: Object | None, new: Object) -> str:
    """What a watch event means to somebody who knows the version before it."""
    if old is None:
        return ", ".join(_first(new)) or "new"
    phrases = [text for each in _PHRASES for text in each(old, new)]
    return ", ".join(phrases) or _fields(old, new)


def _first(new: Object) -> Iterator[str]:
    """A new object, told by what it is to become."""
    if (wanted := new.get("spec", {}).get("completions")) is not None:
        yield f"{wanted} completions wanted"
    if phase := new.get("status", {}).get("phase"):
        yield phase
    if node := new.get("spec", {}).get("nodeName"):
        yield f"on {node}"


def _phase(old: Object, new: Object) -> Iterator[str]:
    before, after = (each.get("status", {}).get("phase") for each in (old, new))
    if after != before:
        yield f"{before} -> {after}"


def _node(old: Object, new: Object) -> Iterator[str]:
    before, after = (each.get("spec", {}).get("nodeName") for each in (old, new))
    if after and after != before:
        yield f"bound to {after}"


def _counts(old: Object, new: Object) -> Iterator[str]:
    before, after = old.get("status", {}), new.get("status", {})
    for field, text in _COUNTS.items():
        if after.get(field, 0) != before.get(field, 0):
            yield f"{text} {before.get(field, 0)} -> {after.get(field, 0)}"


def _conditions(old: Object, new: Object) -> Iterator[str]:
    known = {each["type"]: each["status"] for each in old.get("status", {}).get("conditions") or ()}
    for each in new.get("status", {}).get("conditions") or ():
        if known.get(each["type"]) != each["status"]:
            name = each["type"] if each["status"] == "True" else f"{each['type']}={each['status']}"
            reason = each.get("reason")
            yield f"{name} ({reason})" if reason else name


def _deletion(old: Object, new: Object) -> Iterator[str]:
    before, after = old["metadata"], new["metadata"]
    if after.get("deletionTimestamp") == before.get("deletionTimestamp"):
        return
    grace = after.get("deletionGracePeriodSeconds")
    yield "being deleted" if grace is None else f"being deleted, grace {grace} s"


def _finalizers(old: Object, new: Object) -> Iterator[str]:
    before, after = (each["metadata"].get("finalizers") or [] for each in (old, new))
    for name in before:
        if name not in after:
            yield f"finalizer {name.rpartition('/')[2]} gone"
    for name in after:
        if name not in before:
            yield f"finalizer {name.rpartition('/')[2]} set"


_PHRASES: tuple[Phrases, ...] = (_node, _phase, _counts, _conditions, _deletion, _finalizers)

# They change with every write, or say nothing to a reader.
_UNTOLD = frozenset({"resourceVersion", "managedFields", "generation"})


def _fields(old: Object, new: Object) -> str:
    """The names of the fields that differ, two levels deep."""
    names: list[str] = []
    for part in dict.fromkeys((*old, *new)):
        before, after = old.get(part), new.get(part)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            fields = (name for name in {**before, **after} if name not in _UNTOLD)
            names += [f"{part}.{name}" for name in fields if before.get(name) != after.get(name)]
        else:
            names.append(part)
    return ", ".join(names) or "no change"

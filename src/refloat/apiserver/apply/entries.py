# SPDX-License-Identifier: Apache-2.0
"""metadata.managedFields: reading and writing it, the managers' names, the bound.

An entry says which paths a manager owns, through which operation, version and
subresource. Managers are told apart by all of these but one: an applier is
the same manager in every version.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from refloat.api.meta import Object
from refloat.apiserver.apply import sets
from refloat.apiserver.apply.sets import PathSet

Operation: TypeAlias = Literal["Apply", "Update"]

BEFORE_FIRST_APPLY = "before-first-apply"
ANCIENT_CHANGES = "ancient-changes"
UNKNOWN = "unknown"

# Kubernetes' bound on managers that update: beyond it the oldest are merged,
# so that an object written by ever new clients does not grow for ever.
MAX_UPDATERS = 10

# Kubernetes' bound on a manager's name, in bytes.
MAX_NAME = 128


class Malformed(Exception):
    """An entry that cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one manager owns."""

    manager: str
    operation: Operation
    api_version: str
    paths: PathSet
    subresource: str = ""
    time: str | None = None

    @property
    def identity(self) -> str:
        """Equal for entries of one manager; sorts as Kubernetes' own identities do."""
        version = "" if self.operation == "Apply" else self.api_version
        parts = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": version,
            "subresource": self.subresource,
        }
        known = {name: each for name, each in parts.items() if each}
        return json.dumps(known, ensure_ascii=False, separators=(",", ":"))

    def owning(self, paths: PathSet) -> "Entry":
        return replace(self, paths=paths)

    def at(self, time: str | None) -> "Entry":
        return replace(self, time=time)


Owners: TypeAlias = dict[str, Entry]
"""Entries under their identities."""


def of(entries: Iterable[Entry]) -> Owners:
    return {entry.identity: entry for entry in entries}


def decode(encoded: list[dict[str, Any]] | None) -> Owners:
    """The entries of an object; `Malformed` when one makes no sense."""
    return of(_decode(index, each) for index, each in enumerate(encoded or ()))


def _decode(index: int, encoded: dict[str, Any]) -> Entry:
    operation = encoded.get("operation")
    if operation not in ("Apply", "Update"):
        raise Malformed("operation must be `Apply` or `Update`")
    if not encoded.get("apiVersion"):
        raise Malformed("apiVersion must not be empty")
    fields_type = encoded.get("fieldsType", "")
    if not fields_type:
        raise Malformed(f"missing fieldsType in managed fields entry {index}")
    if fields_type != "FieldsV1":
        raise Malformed(f'invalid fieldsType "{fields_type}" in managed fields entry {index}')
    return Entry(
        manager=encoded.get("manager", ""),
        operation=cast("Operation", operation),
        api_version=encoded["apiVersion"],
        paths=_paths(encoded.get("fieldsV1")),
        subresource=encoded.get("subresource", ""),
        time=encoded.get("time"),
    )


def _paths(fields: Any) -> PathSet:
    """The set of a fieldsV1, which may be any JSON: no type says what it is."""
    if fields is None:
        return sets.PathSet()
    if not isinstance(fields, dict):
        raise Malformed(f"fieldsV1: expected an object, got {type(fields).__name__}")
    try:
        return sets.decode(fields)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"fieldsV1: {error}") from error


def encode(owners: Owners) -> list[dict[str, Any]]:
    """The entries for an object, in Kubernetes' order."""
    return [_encode(entry) for entry in sorted(owners.values(), key=_order)]


def _order(entry: Entry) -> tuple[str, ...]:
    return (
        entry.operation,
        entry.time or "",
        entry.manager,
        entry.api_version,
        entry.subresource,
    )


def _encode(entry: Entry) -> dict[str, Any]:
    encoded = {
        "manager": entry.manager,
        "operation": entry.operation,
        "apiVersion": entry.api_version,
        "time": entry.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": sets.encode(entry.paths),
        "subresource": entry.subresource,
    }
    return {name: each for name, each in encoded.items() if each or name == "fieldsV1"}


def without(obj: Object) -> Object:
    """The object without its managedFields."""
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    bare = {name: each for name, each in metadata.items() if name != "managedFields"}
    return {**obj, "metadata": bare}


def put(obj: Object, owners: Owners) -> Object:
    """The object with these entries, or without any."""
    bare = without(obj)
    if not owners:
        return bare
    return {**bare, "metadata": {**bare["metadata"], "managedFields": encode(owners)}}


def is_reset(encoded: Any) -> bool:
    """Whether managedFields as written ask to forget all owners."""
    return encoded in ([], [{}])


def manager_name(field_manager: str, user_agent: str) -> str:
    """Who writes: as the request says, else by its user agent."""
    if field_manager:
        return field_manager
    name = ""
    for character in user_agent.partition("/")[0]:
        if len((name + character).encode()) > MAX_NAME:
            break
        if character.isprintable():
            name += character
    return name or UNKNOWN


def capped(owners: Owners) -> Owners:
    """At most `MAX_UPDATERS` updaters: the oldest of a version become one."""
    updaters = [entry for entry in owners.values() if entry.operation == "Update"]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return owners
    kept = dict(owners)
    firsts: dict[str, Entry] = {}
    for entry in sorted(updaters, key=lambda each: (each.time or "", each.identity)):
        if excess <= 0:
            break
        first = firsts.setdefault(entry.api_version, entry)
        if first is not entry:
            _bury(kept, first, entry)
            excess -= 1
    return kept


def _bury(owners: Owners, first: Entry, entry: Entry) -> None:
    """Merge an entry into the bucket of its version, which starts as the first."""
    bucket = Entry(ANCIENT_CHANGES, "Update", entry.api_version, entry.paths, time=entry.time)
    old = owners.get(bucket.identity)
    if old is None:
        old = owners.pop(first.identity)
    owners[bucket.identity] = bucket.owning(entry.paths.union(old.paths))
    if entry.identity != bucket.identity:
        owners.pop(entry.identity, None)

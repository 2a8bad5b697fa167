# SPDX-License-Identifier: Apache-2.0
"""metadata.managedFields: reading and writing it, the managers' names, the bound.

An entry has the paths of a manager for one operation, version and subresource.
These four identify the entry, except that an applier has one entry for all versions.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from refloat.api.meta import Object
from refloat.apiserver.apply import field_sets
from refloat.apiserver.apply.field_sets import PathSet

Operation: TypeAlias = Literal["Apply", "Update"]

BEFORE_FIRST_APPLY = "before-first-apply"
ANCIENT_CHANGES = "ancient-changes"
UNKNOWN = "unknown"

# Kubernetes' bound on managers that update. Beyond the bound the server merges the
# oldest, so that an object with ever new writers does not grow for ever.
MAX_UPDATERS = 10

# Kubernetes' bound on a manager's name, in bytes.
MAX_NAME = 128


class MalformedEntry(Exception):
    """An unreadable entry; the message has the reason."""


@dataclass(frozen=True, slots=True)
class ManagerEntry:
    """The fields of one manager."""

    manager: str
    operation: Operation
    api_version: str
    paths: PathSet
    subresource: str = ""
    time: str | None = None

    @property
    def identity(self) -> str:
        """The identity of the manager, in the order of Kubernetes' own identities."""
        version = "" if self.operation == "Apply" else self.api_version
        parts = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": version,
            "subresource": self.subresource,
        }
        fields = {name: each for name, each in parts.items() if each}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))

    def with_paths(self, paths: PathSet) -> "ManagerEntry":
        return replace(self, paths=paths)

    def with_time(self, time: str | None) -> "ManagerEntry":
        return replace(self, time=time)


Owners: TypeAlias = dict[str, ManagerEntry]
"""Entries under their identities."""


def decode(encoded: list[dict[str, Any]] | None) -> Owners:
    """The entries of an object; raises `MalformedEntry`."""
    owners: Owners = {}
    for index, each in enumerate(encoded or ()):
        operation, fields_type = each.get("operation"), each.get("fieldsType", "")
        if operation not in ("Apply", "Update"):
            raise MalformedEntry("operation must be `Apply` or `Update`")
        if not each.get("apiVersion"):
            raise MalformedEntry("apiVersion must not be empty")
        where = f"in managed fields entry {index}"
        if not fields_type:
            raise MalformedEntry(f"missing fieldsType {where}")
        if fields_type != "FieldsV1":
            raise MalformedEntry(f'invalid fieldsType "{fields_type}" {where}')
        entry = ManagerEntry(
            manager=each.get("manager", ""),
            operation=cast("Operation", operation),
            api_version=each["apiVersion"],
            paths=_paths(each.get("fieldsV1")),
            subresource=each.get("subresource", ""),
            time=each.get("time"),
        )
        owners[entry.identity] = entry
    return owners


def _paths(fields: Any) -> PathSet:
    """The set of a fieldsV1, which may be any JSON."""
    if fields is None:
        return field_sets.PathSet()
    if not isinstance(fields, dict):
        raise MalformedEntry(f"fieldsV1: expected an object, got {type(fields).__name__}")
    try:
        return field_sets.decode(fields)
    except (ValueError, RecursionError) as error:
        raise MalformedEntry(f"fieldsV1: {error}") from error


def encode(owners: Owners) -> list[dict[str, Any]]:
    """The entries for an object, in Kubernetes' order."""
    return [_encode(entry) for entry in sorted(owners.values(), key=_order)]


def _order(entry: ManagerEntry) -> tuple[str, ...]:
    return (entry.operation, entry.time or "", entry.manager, entry.api_version, entry.subresource)


def _encode(entry: ManagerEntry) -> dict[str, Any]:
    encoded = {
        "manager": entry.manager,
        "operation": entry.operation,
        "apiVersion": entry.api_version,
        "time": entry.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": field_sets.encode(entry.paths),
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
    """Whether a write with these managedFields removes all owners."""
    return encoded in ([], [{}])


def manager_name(field_manager: str, user_agent: str) -> str:
    """The manager's name: from the request, or else from the user agent."""
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
    rest = dict(owners)
    firsts: dict[str, ManagerEntry] = {}
    for entry in sorted(updaters, key=lambda each: (each.time or "", each.identity)):
        if excess <= 0:
            break
        first = firsts.setdefault(entry.api_version, entry)
        if first is entry:
            continue
        # Merge the entry into the bucket of its version, which starts as the first entry.
        bucket = ManagerEntry(
            ANCIENT_CHANGES, "Update", entry.api_version, entry.paths, time=entry.time
        )
        old = rest.get(bucket.identity) or rest.pop(first.identity)
        rest[bucket.identity] = bucket.with_paths(entry.paths.union(old.paths))
        if entry.identity != bucket.identity:
            rest.pop(entry.identity, None)
        excess -= 1
    return rest

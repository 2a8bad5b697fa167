# SPDX-License-Identifier: Apache-2.0
"""The rules of ownership: conflicts, changes of owners, pruning."""

from typing import Any

from refloat.api import errors
from refloat.apiserver.apply import field_sets, managed_fields, structure
from refloat.apiserver.apply.field_sets import Path, PathSet
from refloat.apiserver.apply.managed_fields import ManagerEntry, Owners
from refloat.apiserver.apply.shapes import Shape
from refloat.apiserver.apply.structure import Comparison

# Fields that identify an object, or that only the server writes, have no owner.
UNOWNED = field_sets.of(
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    ),
)

_STATUS = field_sets.of(("f:status",))
_SPEC = field_sets.of(("f:spec",))
_RESET = {
    ("Pod", "status"): field_sets.of(
        ("f:spec",), ("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")
    ),
    ("VolumeAttachment", "status"): field_sets.of(("f:spec",), ("f:metadata",)),
}


def reset(kind: str, subresource: str) -> PathSet:
    """The fields that a write through this address cannot change, and so not own."""
    return _RESET.get((kind, subresource)) or (_SPEC if subresource == "status" else _STATUS)


class Conflicts(Exception):
    """The configuration changes fields of other managers."""

    def __init__(self, conflicts: list[tuple[ManagerEntry, Path]]) -> None:
        super().__init__(message(conflicts))
        self.conflicts = conflicts

    def status(self) -> errors.StatusError:
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {_shown(entry)}",
                "field": field_sets.show(path),
            }
            for entry, path in self.conflicts[: errors.MAX_CAUSES]
        ]
        return errors.StatusError(409, "Conflict", str(self), details={"causes": causes})


def message(conflicts: list[tuple[ManagerEntry, Path]]) -> str:
    if len(conflicts) == 1:
        entry, path = conflicts[0]
        return (
            f"Apply failed with 1 conflict: conflict with {_shown(entry)}: {field_sets.show(path)}"
        )
    lines: list[str] = []
    identity = ""
    for entry, path in conflicts[: errors.MAX_CAUSES]:
        if entry.identity != identity:
            identity = entry.identity
            lines.append(f"conflicts with {_shown(entry)}:")
        lines.append(f"- {field_sets.show(path)}")
    if (more := len(conflicts) - errors.MAX_CAUSES) > 0:
        lines.append(f"- and {more} more")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def _shown(entry: ManagerEntry) -> str:
    text = f'"{entry.manager}"'
    if entry.subresource:
        text += f' with subresource "{entry.subresource}"'
    return f"{text} using {entry.api_version}" if entry.operation == "Update" else text


def settle(
    owners: Owners, comparison: Comparison, *, writer: str, api_version: str, force: bool
) -> Owners:
    """The owners after a write; raises `Conflicts` without `force`."""
    changes = comparison.written
    conflicts = {
        identity: conflict
        for identity, entry in owners.items()
        if identity != writer and entry.api_version == api_version
        if not (conflict := entry.paths.intersection(changes)).empty
    }
    if conflicts and not force:
        raise Conflicts(
            [(owners[each], path) for each in sorted(conflicts) for path in conflicts[each].paths()]
        )
    others: Owners = {}
    for identity, entry in owners.items():
        if identity != writer and entry.api_version == api_version:
            entry = entry.with_paths(
                entry.paths.difference(conflicts.get(identity, PathSet())).difference(
                    comparison.removed
                )
            )
        if not entry.paths.empty:
            others[identity] = entry
    return others


def prune(merged: Any, shape: Shape, owners: Owners, last: PathSet) -> Any:
    """The merged object without fields that the manager owned before and has now left."""
    owned = PathSet()
    for entry in owners.values():
        owned = owned.union(entry.paths)
    if last.difference(owned).empty:
        return merged
    before = structure.with_named(last, shape)
    present = structure.with_named(structure.paths_of(merged, shape), shape)
    owned = structure.with_named(owned, shape)
    # First remove all former fields of the manager, then restore owned fields, then
    # restore fields below the removed ones that were never this manager's.
    pruned = structure.remove(merged, shape, before)
    pruned = structure.remove(
        merged, shape, present.difference(_present(pruned, shape).union(owned))
    )
    surplus = present.difference(_present(pruned, shape)).intersection(before)
    return structure.remove(merged, shape, surplus)


def _present(value: Any, shape: Shape) -> PathSet:
    return structure.with_named(structure.paths_of(value, shape), shape)


def stripped(owners: Owners, writer: str) -> Owners:
    """The owners, after removing fields without owner from the writer."""
    entry = owners.get(writer)
    if entry is None:
        return owners
    rest = {identity: each for identity, each in owners.items() if identity != writer}
    paths = entry.paths.difference(UNOWNED)
    if not paths.empty:
        rest[writer] = entry.with_paths(paths)
    return rest


def updated(owners: Owners, comparison: Comparison, *, writer: ManagerEntry) -> Owners:
    """The owners after an update: the writer takes what it changed.

    The writer's entry has its time and no paths. A writer that changed nothing keeps
    its old entry and time.
    """
    owners = settle(owners, comparison, writer="", api_version=writer.api_version, force=True)
    paths = comparison.written.difference(UNOWNED)
    if paths.empty:
        return owners
    previous = owners.get(writer.identity)
    if previous is not None:
        paths = paths.union(previous.paths)
    owners[writer.identity] = writer.with_paths(paths)
    return managed_fields.capped(owners)

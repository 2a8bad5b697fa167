# SPDX-License-Identifier: Apache-2.0
"""The rules of ownership: who conflicts, who takes over, what is pruned."""

from typing import Any

from refloat.api import errors
from refloat.apiserver.apply import entries, sets, structure
from refloat.apiserver.apply.entries import Entry, Owners
from refloat.apiserver.apply.sets import Path, PathSet
from refloat.apiserver.apply.shapes import Shape
from refloat.apiserver.apply.structure import Comparison

# What identifies an object, or is the server's to write, has no owner.
UNOWNED = sets.of(
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

_STATUS = sets.of(("f:status",))
_SPEC = sets.of(("f:spec",))
_RESET = {
    ("Pod", "status"): sets.of(
        ("f:spec",),
        ("f:metadata", "f:deletionTimestamp"),
        ("f:metadata", "f:ownerReferences"),
    ),
    ("VolumeAttachment", "status"): sets.of(("f:spec",), ("f:metadata",)),
}


def reset(kind: str, subresource: str) -> PathSet:
    """What a write through this address cannot change, and so cannot own."""
    return _RESET.get((kind, subresource)) or (_SPEC if subresource == "status" else _STATUS)


class Conflicts(Exception):
    """Others own what the configuration wants to change."""

    def __init__(self, found: list[tuple[Entry, Path]]) -> None:
        super().__init__(message(found))
        self.found = found

    def status(self) -> errors.StatusError:
        causes = [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {_shown(entry)}",
                "field": sets.show(path),
            }
            for entry, path in self.found[: errors.MAX_CAUSES]
        ]
        return errors.StatusError(409, "Conflict", str(self), details={"causes": causes})


def message(found: list[tuple[Entry, Path]]) -> str:
    if len(found) == 1:
        entry, path = found[0]
        return f"Apply failed with 1 conflict: conflict with {_shown(entry)}: {sets.show(path)}"
    lines: list[str] = []
    shown = ""
    for entry, path in found[: errors.MAX_CAUSES]:
        if entry.identity != shown:
            shown = entry.identity
            lines.append(f"conflicts with {_shown(entry)}:")
        lines.append(f"- {sets.show(path)}")
    if (left := len(found) - errors.MAX_CAUSES) > 0:
        lines.append(f"- and {left} more")
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)


def _shown(entry: Entry) -> str:
    text = f'"{entry.manager}"'
    if entry.subresource:
        text += f' with subresource "{entry.subresource}"'
    return f"{text} using {entry.api_version}" if entry.operation == "Update" else text


def settle(
    owners: Owners, comparison: Comparison, *, writer: str, api_version: str, force: bool
) -> Owners:
    """The others' ownership after a write; `Conflicts` unless it is by force."""
    written = comparison.written
    lost = {
        identity: conflict
        for identity, entry in owners.items()
        if identity != writer and entry.api_version == api_version
        if not (conflict := entry.paths.intersection(written)).empty
    }
    if lost and not force:
        raise Conflicts(
            [(owners[each], path) for each in sorted(lost) for path in lost[each].paths()]
        )
    settled: Owners = {}
    for identity, entry in owners.items():
        if identity != writer and entry.api_version == api_version:
            entry = entry.owning(
                entry.paths.difference(lost.get(identity, PathSet())).difference(comparison.removed)
            )
        if not entry.paths.empty:
            settled[identity] = entry
    return settled


def prune(merged: Any, shape: Shape, owners: Owners, last: PathSet) -> Any:
    """The merged object without what its manager owned last time, and nobody owns now."""
    owned = PathSet()
    for entry in owners.values():
        owned = owned.union(entry.paths)
    if last.difference(owned).empty:
        return merged
    before = structure.with_named(last, shape)
    present = structure.with_named(structure.paths_of(merged, shape), shape)
    owned = structure.with_named(owned, shape)
    # First everything of last time goes, then what is owned comes back, then
    # what went along with it and was never this manager's.
    pruned = structure.remove(merged, shape, before)
    pruned = structure.remove(
        merged, shape, present.difference(_present(pruned, shape).union(owned))
    )
    gone = present.difference(_present(pruned, shape)).intersection(before)
    return structure.remove(merged, shape, gone)


def _present(value: Any, shape: Shape) -> PathSet:
    return structure.with_named(structure.paths_of(value, shape), shape)


def stripped(owners: Owners, writer: str) -> Owners:
    """The owners, where the writer owns nothing that has no owner."""
    entry = owners.get(writer)
    if entry is None:
        return owners
    kept = {identity: each for identity, each in owners.items() if identity != writer}
    paths = entry.paths.difference(UNOWNED)
    if not paths.empty:
        kept[writer] = entry.owning(paths)
    return kept


def updated(owners: Owners, comparison: Comparison, *, writer: Entry) -> Owners:
    """The ownership after an update: the writer takes what it changed.

    The writer's entry has its time and no paths; who changed nothing keeps
    the entry and the time it had.
    """
    settled = settle(owners, comparison, writer="", api_version=writer.api_version, force=True)
    taken = comparison.written.difference(UNOWNED)
    if taken.empty:
        return settled
    previous = settled.get(writer.identity)
    if previous is not None:
        taken = taken.union(previous.paths)
    settled[writer.identity] = writer.owning(taken)
    return entries.capped(settled)

# SPDX-License-Identifier: Apache-2.0
"""The two operations: apply a configuration, and track any other write.

Ownership is tracked from an object's first apply on. What is there before it
then belongs to the manager `before-first-apply`.
"""

import json
from datetime import datetime
from typing import Any

from refloat.api import schema, times
from refloat.api.meta import Object
from refloat.api.validation import meta as validation
from refloat.apiserver.apply import checks, elements, entries, ownership, shapes, structure
from refloat.apiserver.apply.entries import Entry, Owners
from refloat.apiserver.apply.sets import PathSet
from refloat.apiserver.patch import rejected

# kubectl keeps what it applied from the client's side in this annotation; when
# it changes over to the server's side, it may take over what stands there.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"


def apply(
    live: Object | None,
    config: Any,
    *,
    manager: str,
    force: bool,
    struct: schema.Struct,
    api_version: str,
    subresource: str,
    now: datetime,
) -> Object:
    """The live object (None: a new one) with the configuration applied.

    Its managedFields are up to date; it is neither defaulted nor validated.
    Raises 409 when others own what would change, 400 and 500 for what cannot
    be applied at all.
    """
    if live is not None and "managedFields" not in live["metadata"]:
        checks.check_live(live, struct)
    checks.check(config, struct)
    try:
        owners = entries.decode(((live or {}).get("metadata") or {}).get("managedFields"))
    except entries.Malformed as error:
        raise rejected.plain(f"failed to decode managed fields: {error}") from error
    work = _Work(live, config, struct, api_version, subresource, times.format_time(now))
    try:
        applied = work.applied(owners, manager, force=force)
    except ownership.Conflicts as conflicts:
        if manager != KUBECTL:
            raise conflicts.status() from None
        applied = _taken_over(work, owners, conflicts)
    if manager == KUBECTL and _last_applied(applied):
        return _with_last_applied(applied, config)
    return applied


def _taken_over(work: "_Work", owners: Owners, conflicts: ownership.Conflicts) -> Object:
    """Apply by force when kubectl itself had applied all that conflicts."""
    allowed = work.still_as_last_applied()
    rest = [each for each in conflicts.found if allowed is None or not allowed.has(each[1])]
    if rest:
        raise ownership.Conflicts(rest).status() from None
    return work.applied(owners, KUBECTL, force=True)


class _Work:
    """One apply."""

    def __init__(
        self,
        live: Object | None,
        config: Object,
        struct: schema.Struct,
        api_version: str,
        subresource: str,
        now: str,
    ) -> None:
        self._struct = struct
        self._shape = shapes.of(struct)
        self._live = entries.without(live) if live is not None else shapes.blank(struct)
        self._config = entries.without(config)
        self._version = api_version
        self._subresource = subresource
        self._now = now

    def applied(self, owners: Owners, manager: str, *, force: bool) -> Object:
        owners = owners or self._before_first_apply()
        entry = self._entry(manager, "Apply")
        last = owners.get(entry.identity)
        reset = ownership.reset(self._struct.kind, self._subresource)
        wanted = structure.paths_of(self._config, self._shape).without(reset)
        owners = {**owners, entry.identity: entry.owning(wanted).at(last.time if last else None)}
        merged = structure.merge(self._live, self._config, self._shape)
        if last is not None and last.api_version == self._version:
            merged = ownership.prune(merged, self._shape, owners, last.paths)
        comparison = structure.compare(self._live, merged, self._shape).without(reset)
        owners = ownership.settle(
            owners,
            comparison,
            writer=entry.identity,
            api_version=self._version,
            force=force,
        )
        owners = ownership.stripped(owners, entry.identity)
        if merged != self._live and entry.identity in owners:
            owners[entry.identity] = owners[entry.identity].at(self._now)
        return entries.put(merged, owners)

    def _entry(self, manager: str, operation: entries.Operation) -> Entry:
        return Entry(
            manager, operation, self._version, PathSet(), self._subresource, time=self._now
        )

    def _before_first_apply(self) -> Owners:
        reset = ownership.reset(self._struct.kind, self._subresource)
        blank = shapes.blank(self._struct)
        comparison = structure.compare(blank, self._live, self._shape).without(reset)
        entry = self._entry(entries.BEFORE_FIRST_APPLY, "Update")
        return ownership.updated({}, comparison, writer=entry)

    def still_as_last_applied(self) -> PathSet | None:
        """What kubectl applied last from the client's side and nobody changed since."""
        try:
            former = json.loads(_last_applied(self._live))
        except ValueError:
            return None
        if not isinstance(former, dict) or former.get("apiVersion") != self._version:
            return None
        comparison = structure.compare(former, self._live, self._shape)
        paths = structure.paths_of(former, self._shape)
        for changed in (comparison.modified, comparison.added, comparison.removed):
            paths = paths.difference(changed)
        return paths


def _last_applied(obj: Object) -> str:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    return annotations.get(LAST_APPLIED) or ""


def _with_last_applied(obj: Object, config: Object) -> Object:
    """The object with what kubectl applied now in the annotation that it had already."""
    metadata = dict(config.get("metadata") or {})
    if "annotations" in metadata:
        metadata["annotations"] = _without_last_applied(metadata["annotations"] or {})
    annotations = {
        **obj["metadata"]["annotations"],
        LAST_APPLIED: elements.encoded({**config, "metadata": metadata}) + "\n",
    }
    if sum(len(name.encode()) + len(each.encode()) for name, each in annotations.items()) > (
        validation.ANNOTATIONS_LIMIT
    ):
        annotations = _without_last_applied(annotations)
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _without_last_applied(annotations: dict[str, str]) -> dict[str, str]:
    return {name: each for name, each in annotations.items() if name != LAST_APPLIED}


def track_update(
    live: Object | None,
    new: Object,
    *,
    manager: str,
    struct: schema.Struct,
    api_version: str,
    subresource: str,
    now: datetime,
) -> Object:
    """The new object with the ownership that a create, update or patch leads to.

    `live` is what it replaces, None for a create. Managed fields in the new
    object count when they can be read; an empty list, or one empty entry,
    ends the tracking, and so does an item that nobody could own, because its
    keys are absent. Kubernetes starts it with the object's creation; here
    the first apply does.
    """
    owners = _owners_to_update(live, new, subresource)
    bare = entries.without(new)
    if not owners:
        return bare
    old = entries.without(live) if live is not None else shapes.blank(struct)
    shape = shapes.of(struct)
    if structure.has_nameless_items(bare, shape):
        return bare
    reset = ownership.reset(struct.kind, subresource)
    comparison = structure.compare(old, bare, shape).without(reset)
    writer = Entry(
        manager or entries.UNKNOWN,
        "Update",
        api_version,
        PathSet(),
        subresource,
        times.format_time(now),
    )
    return entries.put(bare, ownership.updated(owners, comparison, writer=writer))


def is_same_but_for_times(new: Object, old: Object) -> bool:
    """Is the time at which a manager wrote all that a write would change?

    Entries are in the order of their times: one that moves is a change.
    """
    entries_new = new["metadata"].get("managedFields")
    entries_old = old["metadata"].get("managedFields")
    if not entries_new or not entries_old or len(entries_new) != len(entries_old):
        return False
    pairs = zip(entries_new, entries_old, strict=True)
    if any({**one, "time": ""} != {**other, "time": ""} for one, other in pairs):
        return False
    return entries.without(new) == entries.without(old)


def _owners_to_update(live: Object | None, new: Object, subresource: str) -> Owners:
    held = ((live or {}).get("metadata") or {}).get("managedFields")
    given = (new.get("metadata") or {}).get("managedFields")
    if not subresource:
        if given is not None and entries.is_reset(given):
            return {}
        if owners := _readable(given):
            return owners
    return _readable(held)


def _readable(encoded: Any) -> Owners:
    try:
        return entries.decode(encoded)
    except entries.Malformed:
        return {}

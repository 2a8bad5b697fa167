# SPDX-License-Identifier: Apache-2.0
"""The two operations: apply a configuration, and track any other write.

The server tracks ownership from an object's first apply on. All earlier fields then
belong to the manager `before-first-apply`.
"""

import json
from datetime import datetime
from typing import Any

from refloat.api import schema, times
from refloat.api.meta import Object
from refloat.api.validation import meta as validation
from refloat.apiserver.apply import checks, elements, managed_fields, ownership, shapes, structure
from refloat.apiserver.apply.field_sets import PathSet
from refloat.apiserver.apply.managed_fields import ManagerEntry, Owners
from refloat.apiserver.patch import rejections

# Client-side kubectl apply keeps its configuration in this annotation. On the first
# server-side apply, kubectl may take over the fields in there.
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

    The result has new managedFields, but neither defaults nor validation. Raises 409
    for conflicts with other managers, 400 and 500 for configurations that no apply
    accepts.
    """
    if live is not None and "managedFields" not in live["metadata"]:
        checks.check_live(live, struct)
    checks.check(config, struct)
    try:
        owners = managed_fields.decode(((live or {}).get("metadata") or {}).get("managedFields"))
    except managed_fields.MalformedEntry as error:
        raise rejections.plain(f"failed to decode managed fields: {error}") from error
    work = _ApplyRun(live, config, struct, api_version, subresource, times.format_time(now))
    try:
        applied = work.applied(owners, manager, force=force)
    except ownership.Conflicts as error:
        # kubectl takes over what it applied from the client's side.
        allowed = work.still_as_last_applied() if manager == KUBECTL else None
        rest = [each for each in error.conflicts if allowed is None or not allowed.has(each[1])]
        if rest:
            raise ownership.Conflicts(rest).status() from None
        applied = work.applied(owners, KUBECTL, force=True)
    if manager == KUBECTL and _last_applied(applied):
        return _with_last_applied(applied, config)
    return applied


class _ApplyRun:
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
        self._live = managed_fields.without(live) if live is not None else shapes.blank(struct)
        self._config = managed_fields.without(config)
        self._version = api_version
        self._subresource = subresource
        self._now = now

    def applied(self, owners: Owners, manager: str, *, force: bool) -> Object:
        reset = ownership.reset(self._struct.kind, self._subresource)
        if not owners:
            blank = shapes.blank(self._struct)
            comparison = structure.compare(blank, self._live, self._shape).without(reset)
            former = self._entry(managed_fields.BEFORE_FIRST_APPLY, "Update")
            owners = ownership.updated({}, comparison, writer=former)
        entry = self._entry(manager, "Apply")
        last = owners.get(entry.identity)
        paths = structure.paths_of(self._config, self._shape).without(reset)
        owners = {
            **owners,
            entry.identity: entry.with_paths(paths).with_time(last.time if last else None),
        }
        merged = structure.merge(self._live, self._config, self._shape)
        if last is not None and last.api_version == self._version:
            merged = ownership.prune(merged, self._shape, owners, last.paths)
        comparison = structure.compare(self._live, merged, self._shape).without(reset)
        owners = ownership.settle(
            owners, comparison, writer=entry.identity, api_version=self._version, force=force
        )
        owners = ownership.stripped(owners, entry.identity)
        if merged != self._live and entry.identity in owners:
            owners[entry.identity] = owners[entry.identity].with_time(self._now)
        return managed_fields.put(merged, owners)

    def _entry(self, manager: str, operation: managed_fields.Operation) -> ManagerEntry:
        return ManagerEntry(
            manager, operation, self._version, PathSet(), self._subresource, time=self._now
        )

    def still_as_last_applied(self) -> PathSet | None:
        """The fields of the last client-side apply that are still unchanged."""
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
    """The object with this configuration in the annotation of client-side apply."""
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

    `live` is the old object, None for a create. Readable managed fields in the new object
    count. An empty list, or one empty entry, ends the tracking, and so does a list item
    without its keys, because it cannot have an owner. Kubernetes starts to track at the
    object's creation, Refloat at the first apply.
    """
    entries = (new.get("metadata") or {}).get("managedFields")
    if not subresource and managed_fields.is_reset(entries):
        owners: Owners = {}
    else:
        owners = {} if subresource else _readable(entries)
        owners = owners or _readable(((live or {}).get("metadata") or {}).get("managedFields"))
    bare = managed_fields.without(new)
    if not owners:
        return bare
    old = managed_fields.without(live) if live is not None else shapes.blank(struct)
    shape = shapes.of(struct)
    if structure.has_nameless_items(bare, shape):
        return bare
    reset = ownership.reset(struct.kind, subresource)
    comparison = structure.compare(old, bare, shape).without(reset)
    writer = ManagerEntry(
        manager or managed_fields.UNKNOWN,
        "Update",
        api_version,
        PathSet(),
        subresource,
        times.format_time(now),
    )
    return managed_fields.put(bare, ownership.updated(owners, comparison, writer=writer))


def is_same_but_for_times(new: Object, old: Object) -> bool:
    """Whether a write changes nothing but the times of managers.

    Entries are in the order of their times, so an entry that moves is a change.
    """
    entries_new = new["metadata"].get("managedFields")
    entries_old = old["metadata"].get("managedFields")
    if not entries_new or not entries_old or len(entries_new) != len(entries_old):
        return False
    pairs = zip(entries_new, entries_old, strict=True)
    if any({**one, "time": ""} != {**other, "time": ""} for one, other in pairs):
        return False
    return managed_fields.without(new) == managed_fields.without(old)


def _readable(encoded: Any) -> Owners:
    try:
        return managed_fields.decode(encoded)
    except managed_fields.MalformedEntry:
        return {}

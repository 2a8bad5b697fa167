# SPDX-License-Identifier: Apache-2.0
"""The common parts of the typed, partial objects of all groups.

A controller process holds thousands of objects and reads a few fields of
each, so it decodes those and nothing else: about 2 KB for a pod instead of
30. What is not named here is not decoded and cannot be read; it cannot be
lost either, because no controller writes these back (writes are patches).

Structs and their mappings are read-only, and readers share them.
Times stay texts: most have no reader, equal ones are one object in
memory, and `times.parse` takes a quarter of a microsecond for each use. A text
that Go leaves out when empty is "" here, a number behind a pointer None;
lists and maps may be null on the wire, so they are None or a value.

The garbage collector tracks no struct: they are immutable trees, so they have no
cycles.
"""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

Own: TypeAlias = Annotated[str, msgspec.Meta(extra={"own": True})]
"""A text that hardly two objects have in common: there is nothing to share."""

Time: TypeAlias = Annotated[str, msgspec.Meta(extra={"time": True})]
"""The text of a time, for `times.parse`."""

Texts: TypeAlias = tuple[str, ...]
Map: TypeAlias = Mapping[str, str]


class Partial(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Some fields of an API type, under Python's names."""


class OwnerReference(Partial, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Partial, frozen=True):
    name: Own = ""
    namespace: str = ""
    uid: Own = ""
    resource_version: Own = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Map | None = None
    annotations: Map | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: Texts | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if there is one."""
        for owner in self.owner_references or ():
            if owner.controller:
                return owner
        return None


class Condition(Partial, frozen=True):
    """A condition of a pod, node or Job, or a metav1.Condition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    last_probe_time: Time | None = None
    last_heartbeat_time: Time | None = None
    observed_generation: int = 0


Conditions: TypeAlias = tuple[Condition, ...] | None


class LabelSelectorRequirement(Partial, frozen=True):
    key: str = ""
    operator: str = ""
    values: Texts | None = None


class LabelSelector(Partial, frozen=True):
    match_labels: Map | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None


class ApiObject(Partial, frozen=True):
    """An object of any kind. The `Kind` has the kind and apiVersion."""

    metadata: ObjectMeta = ObjectMeta()


def find(conditions: Conditions, condition_type: str) -> Condition | None:
    """The first condition of this type."""
    for condition in conditions or ():
        if condition.type == condition_type:
            return condition
    return None


def is_true(conditions: Conditions, condition_type: str) -> bool:
    """Whether the first condition of this type has status True."""
    condition = find(conditions, condition_type)
    return condition is not None and condition.status == "True"

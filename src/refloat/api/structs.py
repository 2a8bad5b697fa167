# SPDX-License-Identifier: Apache-2.0
"""What the typed, partial objects of all groups share.

A controller process holds thousands of objects and reads a few fields of
each, so it decodes those and nothing else: about 2 KB for a pod instead of
30. What is not named here is not decoded and cannot be read; it cannot be
lost either, because nobody writes these back (writes are patches).

They are read-only and shared by all who hold them, as are their mappings.
Times stay texts: most are never looked at, equal ones are one object in
memory, and `times.parse` takes a quarter of a microsecond when somebody asks. A text
that Go leaves out when empty is "" here, a number behind a pointer None;
lists and maps may be null on the wire, so they are None or a value.

No struct is tracked by the garbage collector: they are made of trees that
nobody can change, so no cycle can go through them.
"""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

Own: TypeAlias = Annotated[str, msgspec.Meta(extra={"own": True})]
"""A text that hardly two objects have in common: there is nothing to share."""

Time: TypeAlias = Annotated[str, msgspec.Meta(extra={"time": True})]
"""A time as it is written; `times.parse` reads it."""

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
    """A condition as pods, nodes and Jobs have it, and metav1.Condition too."""

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
    """An object of any kind. Kind and apiVersion are its `Kind`'s, not its own."""

    metadata: ObjectMeta = ObjectMeta()


def find(conditions: Conditions, condition_type: str) -> Condition | None:
    """The first condition of this type."""
    for condition in conditions or ():
        if condition.type == condition_type:
            return condition
    return None


def is_true(conditions: Conditions, condition_type: str) -> bool:
    """Whether the first condition of this type says so."""
    condition = find(conditions, condition_type)
    return condition is not None and condition.status == "True"

# SPDX-License-Identifier: Apache-2.0
"""What the garbage collector does with an object whose owners are being deleted.

An owner is solid (exists), dangling (deleted), or waiting (deleted in the foreground, and waits
for its dependents). Nothing here knows where objects are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from refloat.api.structs import ObjectMeta, OwnerReference

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"

State: TypeAlias = Literal["solid", "dangling", "waiting"]
Propagation: TypeAlias = Literal["Foreground", "Background", "Orphan"]


@dataclass(frozen=True, slots=True)
class GarbageAction:
    """What to do; nothing if all fields are empty."""

    delete: Propagation | None = None
    unblock: bool = False
    """First unblock the owners of the object: the object waits for a dependent that waits, too."""
    disown: tuple[str, ...] = ()
    """The uids of owners to remove from the object."""


KEEP = GarbageAction()


def waits_for_dependents(meta: ObjectMeta) -> bool:
    return meta.deletion_timestamp is not None and FOREGROUND in (meta.finalizers or ())


def leaves_orphans(meta: ObjectMeta) -> bool:
    return meta.deletion_timestamp is not None and ORPHAN in (meta.finalizers or ())


def blocks(meta: ObjectMeta, owner: str) -> bool:
    """Whether a waiting owner must wait for this object."""
    return any(
        each.uid == owner and each.block_owner_deletion for each in meta.owner_references or ()
    )


def judge(
    meta: ObjectMeta,
    owners: Sequence[tuple[OwnerReference, State]],
    dependents: Sequence[ObjectMeta],
) -> GarbageAction:
    """The action for an object that does not wait for its own dependents."""
    if not owners:
        return KEEP
    leaving = tuple(owner.uid for owner, state in owners if state != "solid")
    if len(leaving) < len(owners):
        return GarbageAction(disown=leaving)
    if dependents and any(state == "waiting" for _, state in owners):
        return GarbageAction("Foreground", unblock=any(map(waits_for_dependents, dependents)))
    # The finalizers of the object decide how its own dependents are treated.
    finalizers = meta.finalizers or ()
    if ORPHAN in finalizers:
        return GarbageAction("Orphan")
    return GarbageAction("Foreground" if FOREGROUND in finalizers else "Background")

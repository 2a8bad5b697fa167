# SPDX-License-Identifier: Apache-2.0
"""What becomes of an object whose owners go.

An owner is there (solid), gone (dangling), or on its way and waiting for what
it owns (waiting: it was deleted in the foreground). Nothing here knows where
objects are found.
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
class Verdict:
    """What is to be done; nothing if both are empty."""

    delete: Propagation | None = None
    unblock: bool = False
    """First let no owner wait for it: it waits for one of its own dependents that waits too."""
    disown: tuple[str, ...] = ()
    """The uids of owners that it is to forget."""


KEEP = Verdict()


def waits_for_dependents(meta: ObjectMeta) -> bool:
    return meta.deletion_timestamp is not None and FOREGROUND in (meta.finalizers or ())


def leaves_orphans(meta: ObjectMeta) -> bool:
    return meta.deletion_timestamp is not None and ORPHAN in (meta.finalizers or ())


def blocks(meta: ObjectMeta, owner: str) -> bool:
    """Must this owner, waiting, wait for it?"""
    return any(
        each.uid == owner and each.block_owner_deletion for each in meta.owner_references or ()
    )


def judge(
    meta: ObjectMeta,
    owners: Sequence[tuple[OwnerReference, State]],
    dependents: Sequence[ObjectMeta],
) -> Verdict:
    """For an object that is not being deleted, or not for its dependents."""
    if not owners:
        return KEEP
    leaving = tuple(owner.uid for owner, state in owners if state != "solid")
    if len(leaving) < len(owners):
        return Verdict(disown=leaving)
    if dependents and any(state == "waiting" for _, state in owners):
        return Verdict("Foreground", unblock=any(map(waits_for_dependents, dependents)))
    return Verdict(_own_wish(meta))


def _own_wish(meta: ObjectMeta) -> Propagation:
    """What its finalizers say already."""
    held = meta.finalizers or ()
    if ORPHAN in held:
        return "Orphan"
    return "Foreground" if FOREGROUND in held else "Background"

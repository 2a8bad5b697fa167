# SPDX-License-Identifier: Apache-2.0
"""What becomes of an object whose owners go."""

from typing import Any

import msgspec

from refloat.api.structs import ObjectMeta, OwnerReference
from refloat.policy.garbage import ownership
from refloat.policy.garbage.ownership import KEEP, GarbageAction, State
from tests.cases import cases

A, B = OwnerReference(uid="a"), OwnerReference(uid="b")


def meta(*finalizers: str, deleted: bool = False, blocks: str = "") -> ObjectMeta:
    owner = {"uid": blocks, "blockOwnerDeletion": True}
    body: dict[str, Any] = {"finalizers": list(finalizers), "ownerReferences": [owner]}
    if deleted:
        body["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert(body, ObjectMeta)


PLAIN = meta()
WAITING = meta("foregroundDeletion", deleted=True)

CASES: dict[str, Any] = {
    "nobody's": (PLAIN, [], [], KEEP),
    "owned": (PLAIN, [(A, "solid")], [], KEEP),
    "its owner is gone": (PLAIN, [(A, "dangling")], [], GarbageAction("Background")),
    "one owner is gone": (PLAIN, [(A, "solid"), (B, "dangling")], [], GarbageAction(disown=("b",))),
    "one owner waits": (PLAIN, [(A, "waiting"), (B, "solid")], [], GarbageAction(disown=("a",))),
    "its owner waits for it": (PLAIN, [(A, "waiting")], [], GarbageAction("Background")),
    "its owner waits for it and what it owns": (
        PLAIN,
        [(A, "waiting")],
        [PLAIN],
        GarbageAction("Foreground"),
    ),
    "a circle of those that wait is broken": (
        PLAIN,
        [(A, "waiting")],
        [WAITING],
        GarbageAction("Foreground", unblock=True),
    ),
    "what it owns goes after it": (PLAIN, [(A, "dangling")], [PLAIN], GarbageAction("Background")),
    "its own wish": (meta("orphan"), [(A, "dangling")], [], GarbageAction("Orphan")),
    "the other": (meta("foregroundDeletion"), [(A, "dangling")], [], GarbageAction("Foreground")),
}


@cases("of owners dependents verdict", CASES)
def test_what_becomes_of_it(
    of: ObjectMeta,
    owners: list[tuple[OwnerReference, State]],
    dependents: list[ObjectMeta],
    verdict: GarbageAction,
) -> None:
    assert ownership.judge(of, owners, dependents) == verdict


def test_only_an_object_that_is_being_deleted_waits_or_leaves_orphans() -> None:
    assert ownership.waits_for_dependents(WAITING)
    assert not ownership.waits_for_dependents(meta("foregroundDeletion"))
    assert ownership.leaves_orphans(meta("orphan", deleted=True))
    assert not ownership.leaves_orphans(meta("orphan"))


def test_a_dependent_keeps_only_the_owner_that_it_blocks() -> None:
    assert ownership.blocks(meta(blocks="a"), "a")
    assert not ownership.blocks(meta(blocks="a"), "b")

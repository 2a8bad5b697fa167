# SPDX-License-Identifier: Apache-2.0
"""Only the events that both servers must send are compared."""

from typing import Any

from tests.differential import watches
from tests.differential.answers import ComparedAnswer


def event(kind: str, name: str = "a", **metadata: Any) -> dict[str, Any]:
    whole_metadata = {"name": name, "resourceVersion": "1", **metadata}
    return {"type": kind, "object": {"kind": "Node", "metadata": whole_metadata}}


def told(*events: dict[str, Any]) -> list[str]:
    history = watches.history(ComparedAnswer(200, list(events)), {"a", "b"})
    return [each["type"] for each in history.body["items"]]


def test_a_change_of_owners_alone_is_not_compared() -> None:
    assert told(event("ADDED"), event("MODIFIED", managedFields=[{}], resourceVersion="2")) == [
        "ADDED"
    ]


def test_any_other_change_is() -> None:
    changes = (event("ADDED"), event("MODIFIED", labels={"a": "b"}), event("MODIFIED"))
    assert told(*changes) == ["ADDED", "MODIFIED", "MODIFIED"]


def test_what_happens_to_one_is_not_taken_for_what_happened_to_another() -> None:
    assert told(event("ADDED"), event("MODIFIED", "b")) == ["ADDED", "MODIFIED"]


def test_deletion_is_told_whatever_was_before_it() -> None:
    assert told(event("ADDED"), event("DELETED")) == ["ADDED", "DELETED"]


def test_objects_of_others_are_passed_over() -> None:
    assert told(event("ADDED", "c"), event("ADDED")) == ["ADDED"]


def test_a_refused_watch_is_compared_as_it_is() -> None:
    answer = ComparedAnswer(400, {"kind": "Status"})
    assert watches.history(answer, {"a"}) is answer

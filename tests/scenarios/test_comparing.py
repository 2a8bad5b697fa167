# SPDX-License-Identifier: Apache-2.0
"""What counts as a difference, and which differences are meant."""

from pathlib import Path
from typing import Any

from tests.scenarios import comparing, outcome
from tests.scenarios.comparing import Difference, Meant
from tests.scenarios.playing import Result

TABLE = """
## Something else

| what | Kubernetes | Refloat | why |
|---|---|---|---|
| other: `embedded` `*` `*` | one | another | not this one |

## What the scenarios show

Words before it.

| what | Kubernetes | Refloat | why |
|---|---|---|---|
| extra: `embedded managed` `*` `events.Extra: *` | no `event` | an event | told besides |
| slow one: `embedded` `one_*` `job.failed` | 1 | 0 | not yet |

## And more
"""


def told(failed: int = 0, **more: Any) -> Result:
    """A scenario's result with so many failed pods."""
    empty: dict[str, Any] = {"events": [], "notes": [], "pods": {}}
    return Result("one_fails", outcome={"job": {"failed": failed}, **empty, **more})


def compared(
    expected: Result, found: Result, *lines: Meant, setting: str = "embedded"
) -> list[Difference]:
    name = expected.name
    return list(comparing.differences({name: expected}, {setting: {name: found}}, lines))


def test_the_table_of_the_document_is_read(tmp_path: Path) -> None:
    document = tmp_path / "compatibility.md"
    document.write_text(TABLE)
    assert comparing.meant(document) == [
        Meant("extra", "embedded managed", "*", "events.Extra: *"),
        Meant("slow one", "embedded", "one_*", "job.failed"),
    ]


def test_equal_outcomes_have_no_differences() -> None:
    assert compared(told(1), told(1)) == []


def test_a_changed_value_is_a_difference() -> None:
    assert compared(told(1), told(2)) == [
        Difference("one_fails", "job.failed", "embedded", "1", "2")
    ]


def test_a_field_that_one_side_lacks_is_a_difference() -> None:
    event = {"type": "Normal", "reason": "Extra", "note": "more", "count": 1}
    (found,) = compared(told(), told(events=[event]))
    assert (found.field, found.expected, found.found) == (
        "events.Extra: more",
        comparing.ABSENT,
        "Normal x1",
    )


def test_a_line_covers_only_its_settings_scenarios_and_fields() -> None:
    line = Meant("slow", "embedded", "one_*", "job.failed")
    (found,) = compared(told(1), told(2), line)
    assert found.meant == "slow"
    for other in (
        Meant("x", "managed", "one_*", "job.failed"),
        Meant("x", "embedded", "two_*", "job.failed"),
        Meant("x", "embedded", "one_*", "job.active"),
    ):
        (found,) = compared(told(1), told(2), other)
        assert found.meant == ""


def test_a_line_of_which_nothing_is_seen_is_told_if_its_settings_were_compared() -> None:
    seen = Meant("seen", "embedded", "one_*", "job.failed")
    gone, other = Meant("gone", "embedded", "*", "job.x"), Meant("other", "managed", "*", "*")
    found = compared(told(1), told(2), seen, gone)
    assert comparing.unseen([seen, gone, other], found, {"embedded"}) == [gone]


def test_the_table_shows_both_values_and_what_is_not_meant() -> None:
    shown = comparing.table(compared(told(1), told(2)))
    assert "one_fails: job.failed  (embedded, NOT MEANT)" in shown
    assert "reference  1" in shown
    assert "embedded   2" in shown


def pod(name: str, uid: str, *, phase: str = "Running", index: str | None = None) -> dict[str, Any]:
    annotations = {outcome.INDEX: index} if index is not None else {}
    return {
        "metadata": {"name": name, "uid": uid, "annotations": annotations},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": phase},
    }


def record(*pods: dict[str, Any], events: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    job = {"metadata": {"name": "job", "uid": "job-uid"}, "status": {}}
    by_uid = {each["metadata"]["uid"]: each for each in pods}
    return outcome.of(
        {"job": job},
        "job",
        by_uid,
        set(),
        events or [],
        namespace="ns-1",
        job_uids=["job-uid", "gone-uid"],
    )


def test_pods_of_an_index_are_numbered_by_age() -> None:
    first, second = pod("job-0-b", "u1", index="0"), pod("job-0-a", "u2", index="0")
    found = record(first, second, pod("job-1-c", "u3", index="1"))
    assert list(found["pods"]) == ["<pod 0/0>", "<pod 0/1>", "<pod 1/0>"]


def test_pods_without_an_index_are_numbered_by_their_end_whoever_was_first() -> None:
    failed, done = pod("job-a", "u1", phase="Failed"), pod("job-b", "u2", phase="Succeeded")
    assert record(failed, done) == record(done, failed)


def test_a_pod_that_outlives_its_job_carries_no_uid() -> None:
    left = pod("job-a", "u1")
    left["metadata"]["labels"] = {"batch.kubernetes.io/controller-uid": "gone-uid"}
    (found,) = record(left)["pods"].values()
    assert list(found["labels"].values()) == ["<job>"]


def test_events_have_no_names_and_are_counted() -> None:
    events = [
        {"type": "Normal", "reason": "SuccessfulCreate", "note": f"Created pod: job-{letter}"}
        for letter in "ab"
    ]
    found = record(pod("job-a", "u1"), pod("job-b", "u2"), events=events)["events"]
    assert [(each["note"], each["count"]) for each in found] == [("Created pod: <pod>", 2)]

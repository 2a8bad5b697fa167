# SPDX-License-Identifier: Apache-2.0
"""What counts as a difference, and which differences are meant."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from refloat.scenario.cluster import ScenarioCluster
from refloat.scenario.namespace import INDEX, ScenarioNamespace
from tests.scenarios import comparing, outcome
from tests.scenarios.comparing import ExpectedDifference, OutcomeDifference
from tests.scenarios.playing import ScenarioResult

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


def told(failed: int = 0, **more: Any) -> ScenarioResult:
    """A scenario's result with so many failed pods."""
    empty: dict[str, Any] = {"events": [], "notes": [], "pods": {}}
    return ScenarioResult("one_fails", outcome={"job": {"failed": failed}, **empty, **more})


def compared(
    expected: ScenarioResult,
    outcome: ScenarioResult,
    *lines: ExpectedDifference,
    setting: str = "embedded",
) -> list[OutcomeDifference]:
    name = expected.name
    return list(comparing.differences({name: expected}, {setting: {name: outcome}}, lines))


def test_the_table_of_the_document_is_read(tmp_path: Path) -> None:
    document = tmp_path / "compatibility.md"
    document.write_text(TABLE)
    assert comparing.meant(document) == [
        ExpectedDifference("extra", "embedded managed", "*", "events.Extra: *"),
        ExpectedDifference("slow one", "embedded", "one_*", "job.failed"),
    ]


def test_equal_outcomes_have_no_differences() -> None:
    assert compared(told(1), told(1)) == []


def test_a_changed_value_is_a_difference() -> None:
    assert compared(told(1), told(2)) == [
        OutcomeDifference("one_fails", "job.failed", "embedded", "1", "2")
    ]


def test_a_field_that_one_side_lacks_is_a_difference() -> None:
    event = {"type": "Normal", "reason": "Extra", "note": "more", "count": 1}
    (difference,) = compared(told(), told(events=[event]))
    assert (difference.field, difference.expected, difference.found) == (
        "events.Extra: more",
        comparing.ABSENT,
        "Normal x1",
    )


def test_a_line_covers_only_its_settings_scenarios_and_fields() -> None:
    line = ExpectedDifference("slow", "embedded", "one_*", "job.failed")
    (difference,) = compared(told(1), told(2), line)
    assert difference.meant == "slow"
    for other in (
        ExpectedDifference("x", "managed", "one_*", "job.failed"),
        ExpectedDifference("x", "embedded", "two_*", "job.failed"),
        ExpectedDifference("x", "embedded", "one_*", "job.active"),
    ):
        (difference,) = compared(told(1), told(2), other)
        assert difference.meant == ""


def test_a_line_of_which_nothing_is_seen_is_told_if_its_settings_were_compared() -> None:
    present = ExpectedDifference("seen", "embedded", "one_*", "job.failed")
    absent, other = (
        ExpectedDifference("gone", "embedded", "*", "job.x"),
        ExpectedDifference("other", "managed", "*", "*"),
    )
    differences = compared(told(1), told(2), present, absent)
    assert comparing.unseen([present, absent, other], differences, {"embedded"}) == [absent]


def test_the_table_shows_both_values_and_what_is_not_meant() -> None:
    table = comparing.table(compared(told(1), told(2)))
    assert "one_fails: job.failed  (embedded, NOT MEANT)" in table
    assert "reference  1" in table
    assert "embedded   2" in table


def pod(name: str, uid: str, *, phase: str = "Running", index: str | None = None) -> dict[str, Any]:
    annotations = {INDEX: index} if index is not None else {}
    return {
        "metadata": {"name": name, "uid": uid, "annotations": annotations},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": phase},
    }


def record(*pods: dict[str, Any], events: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    cluster = SimpleNamespace(client=None, listen=lambda *_: None)
    ns = ScenarioNamespace(cast("ScenarioCluster", cluster), "ns-1")
    ns.record("jobs", "ADDED", {"metadata": {"name": "job", "uid": "job-uid"}, "status": {}})
    ns.job_uids.add("gone-uid")
    for each in pods:
        ns.record("pods", "ADDED", each)
    return outcome.of(ns, events or [])


def test_pods_of_an_index_are_numbered_by_age() -> None:
    first, second = pod("job-0-b", "u1", index="0"), pod("job-0-a", "u2", index="0")
    outcome = record(first, second, pod("job-1-c", "u3", index="1"))
    assert list(outcome["pods"]) == ["<pod 0/0>", "<pod 0/1>", "<pod 1/0>"]


def test_pods_without_an_index_are_numbered_by_their_end_whoever_was_first() -> None:
    failed, done = pod("job-a", "u1", phase="Failed"), pod("job-b", "u2", phase="Succeeded")
    assert record(failed, done) == record(done, failed)


def test_a_pod_that_outlives_its_job_carries_no_uid() -> None:
    remaining = pod("job-a", "u1")
    remaining["metadata"]["labels"] = {"batch.kubernetes.io/controller-uid": "gone-uid"}
    (entry,) = record(remaining)["pods"].values()
    assert list(entry["labels"].values()) == ["<job>"]


def test_events_have_no_names_and_are_counted() -> None:
    events = [
        {"type": "Normal", "reason": "SuccessfulCreate", "note": f"Created pod: job-{letter}"}
        for letter in "ab"
    ]
    events_record = record(pod("job-a", "u1"), pod("job-b", "u2"), events=events)["events"]
    assert [(each["note"], each["count"]) for each in events_record] == [("Created pod: <pod>", 2)]

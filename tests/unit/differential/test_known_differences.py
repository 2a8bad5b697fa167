# SPDX-License-Identifier: Apache-2.0
"""Known differences are rows of the document, and no more than these are known."""

from typing import Any

import pytest

from tests.architecture.sources import ROOT
from tests.differential import known_differences
from tests.differential.answers import APPLY, STRATEGIC, ApiCall, ComparedAnswer
from tests.differential.compare import ABSENT, AnswerDifference


def row(
    path: str,
    left: Any,
    right: Any,
    *,
    call: ApiCall | None = None,
    answers: tuple[ComparedAnswer, ComparedAnswer] | None = None,
    tracked: bool = False,
) -> str | None:
    one, other = answers or (ComparedAnswer(200, {}), ComparedAnswer(200, {}))
    deviation = known_differences.Deviation(
        call or ApiCall("GET", "/"), one, other, AnswerDifference(path, left, right), tracked
    )
    entry = known_differences.of(deviation)
    return entry.row if entry else None


@pytest.mark.parametrize("entry", known_differences.KNOWN, ids=lambda entry: entry.row)
def test_each_cites_a_row_of_the_document(entry: known_differences.KnownDeviation) -> None:
    rows = (ROOT / "docs" / "compatibility.md").read_text().splitlines()
    assert any(line.startswith(f"| {entry.row} |") for line in rows)


def test_managers_are_told_from_the_first_apply_on() -> None:
    path = "body.metadata.managedFields"
    assert row(path, [{"manager": "m"}], ABSENT) == "`metadata.managedFields`"
    assert row(path, [{"manager": "m"}], ABSENT, tracked=True) is None


def test_protection_is_the_only_finalizer_that_may_be_absent() -> None:
    path = "body.metadata.finalizers"
    assert row(path, ["a.b/c", "kubernetes.io/pv-protection"], ["a.b/c"]) == "protection finalizers"
    assert row(path, ["kubernetes.io/pvc-protection"], ABSENT) == "protection finalizers"
    assert row(path, ["a.b/c"], ABSENT) is None


def owned(*metadata: str) -> list[Any]:
    fields: dict[str, Any] = {f"f:{name}": {} for name in metadata}
    return [{"manager": "m", "fieldsV1": {"f:spec": {}, "f:metadata": fields}}]


def test_protection_takes_the_ownership_of_finalizers_and_no_other() -> None:
    path = "body.metadata.managedFields"
    call = ApiCall("GET", "/api/v1/persistentvolumes/a")
    known_row = "protection finalizers"
    assert row(path, owned(), owned("finalizers"), call=call, tracked=True) == known_row
    assert row(path, owned(), owned("labels"), call=call, tracked=True) is None
    assert row(path, owned(), owned("finalizers"), tracked=True) is None


MET = "failed to create typed patch object (/a; /v1, Kind=Pod): "


@pytest.mark.parametrize(
    ("left", "right", "is_known"),
    [
        (
            ".x: field not declared in schema",
            "errors:\n  .a: b\n  .x: field not declared in schema",
            True,
        ),
        (
            "errors:\n  .a: b\n  .y: field not declared in schema",
            "errors:\n  .a: b\n  .x: field not declared in schema",
            True,
        ),
        (
            "errors:\n  .a: c\n  .x: field not declared in schema",
            "errors:\n  .a: b\n  .x: field not declared in schema",
            False,
        ),
        (".a: c", "errors:\n  .a: b\n  .x: field not declared in schema", False),
        (".x: field not declared in schema", ".a: b", False),
    ],
    ids=[
        "fewer before it",
        "another unknown field",
        "another mistake",
        "none unknown",
        "found by one",
    ],
)
def test_an_unknown_field_hides_mistakes(left: str, right: str, is_known: bool) -> None:
    known_row = row("body.message", MET + left, MET + right, call=ApiCall("PATCH", "/", {}, APPLY))
    assert (known_row is not None) == is_known


def test_a_dry_delete_may_be_answered_with_nothing() -> None:
    call = ApiCall("DELETE", "/api/v1/nodes/a?dryRun=All")
    success = ComparedAnswer(200, {"kind": "Status", "metadata": {}})
    nothing, something = (
        ComparedAnswer(200, {"kind": "Node", "metadata": each}) for each in ({}, {"name": "a"})
    )
    known_row = "a dry delete of an object that only `orphan` or `foregroundDeletion` keeps"
    assert row("body.kind", "Node", "Status", call=call, answers=(nothing, success)) == known_row
    assert row("body.kind", "Node", "Status", call=call, answers=(something, success)) is None
    wet = ApiCall("DELETE", "/api/v1/nodes/a")
    assert row("body.kind", "Node", "Status", call=wet, answers=(nothing, success)) is None


def test_an_object_in_a_message_may_be_in_another_order() -> None:
    path = "body.message"
    left, right = (
        'patch: Invalid value: "{\\"a\\":1}": no',
        'patch: Invalid value: "{\\"b\\":1}": no',
    )
    assert row(path, left, right) == "order of fields in JSON"
    assert row(path, left, right.replace(": no", ": yes")) is None


def test_parts_of_a_strategic_patch_may_be_missing_in_a_message() -> None:
    left, right = 'Invalid value: "map[]": no', 'Invalid value: "map[a:1]": no'
    call = ApiCall("PATCH", "/", {}, STRATEGIC)
    assert row("body.message", left, right, call=call) is not None
    assert row("body.message", left, right) is None


def test_a_warning_about_services_is_known_and_no_other() -> None:
    ours = '299 - "services are stored only: this cluster has no service network and no DNS"'
    assert row("warnings", [], [ours]) == "Service"
    assert row("warnings", [], ["299 - x"]) is None


def test_a_refusal_on_one_side_is_a_defect() -> None:
    answers = (ComparedAnswer(422, {"message": "spec.x: Invalid value"}), ComparedAnswer(200, {}))
    assert row("status", 422, 200, answers=answers) is None

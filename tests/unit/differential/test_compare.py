# SPDX-License-Identifier: Apache-2.0
"""What two servers cannot share is no difference, and all else is one."""

from typing import Any

import pytest

from tests.differential import compare
from tests.differential.answers import ComparedAnswer

UID = "01234567-89ab-cdef-0123-456789abcdef"
OTHER = "fedcba98-7654-3210-fedc-ba9876543210"


def message(text: str) -> dict[str, Any]:
    return {"kind": "Status", "message": text}


ALIKE = {
    "uids": ({"uid": UID}, {"uid": OTHER}),
    "uids in a text": (message(f"uid {UID} is not"), message(f"uid {OTHER} is not")),
    "versions": ({"resourceVersion": "1"}, {"resourceVersion": "27"}),
    "tokens": ({"continue": "abc"}, {"continue": "def"}),
    "times of this century's later years": (
        {"creationTimestamp": "2026-01-02T03:04:05Z"},
        {"creationTimestamp": "2031-12-31T23:59:59Z"},
    ),
    "generated names": ({"name": "made-abcde"}, {"name": "made-x2z4y"}),
    "ages in tables": ({"cells": ["a", "5s"]}, {"cells": ["a", "1m12s"]}),
    "causes of a conflict": (
        {"causes": [{"a": "1"}, {"b": "2"}]},
        {"causes": [{"b": "2"}, {"a": "1"}]},
    ),
    "mistakes of an applied object": (
        message("errors:\n  .a\n  .b"),
        message("errors:\n  .b\n  .a"),
    ),
    "keys in the order of a map": (
        message('ConfigMap "a" is invalid: [data[x]: y, data[z]: y]'),
        message('ConfigMap "a" is invalid: [data[z]: y, data[x]: y]'),
    ),
}

DIFFERENT = {
    "time that the generator chose": ({"t": "2019-01-01T00:00:00Z"}, {"t": "2019-01-02T00:00:00Z"}),
    "a version that is empty": ({"resourceVersion": ""}, {"resourceVersion": "5"}),
    "a word": (message("no"), message("yes")),
    "a field more": ({"a": 1}, {"a": 1, "b": None}),
    "a number for a truth value": ({"a": 1}, {"a": True}),
    "the order of a list": ({"items": [1, 2]}, {"items": [2, 1]}),
    "the order of mistakes": (
        message('Pod "a" is invalid: [spec.a: x, spec.b: y]'),
        message('Pod "a" is invalid: [spec.b: y, spec.a: x]'),
    ),
    "an age elsewhere": ({"ttl": "5s"}, {"ttl": "6s"}),
}


@pytest.mark.parametrize(("left", "right"), ALIKE.values(), ids=ALIKE)
def test_is_no_difference(left: Any, right: Any) -> None:
    assert compare.differences(ComparedAnswer(200, left), ComparedAnswer(200, right)) == []


@pytest.mark.parametrize(("left", "right"), DIFFERENT.values(), ids=DIFFERENT)
def test_is_a_difference(left: Any, right: Any) -> None:
    assert compare.differences(ComparedAnswer(200, left), ComparedAnswer(200, right))


def test_of_answers_with_different_codes_the_messages_are_shown() -> None:
    differences = compare.differences(
        ComparedAnswer(409, message("taken")), ComparedAnswer(422, message("wrong"))
    )
    assert [(each.path, each.left, each.right) for each in differences] == [
        ("status", 409, 422),
        ("message", "taken", "wrong"),
    ]


def test_warnings_are_compared_in_any_order() -> None:
    one = ComparedAnswer(200, {}, warnings=("a", "b"))
    assert compare.differences(one, ComparedAnswer(200, {}, warnings=("b", "a"))) == []
    assert len(compare.differences(one, ComparedAnswer(200, {}, warnings=("a",)))) == 1


def test_retry_after_is_compared() -> None:
    differences = compare.differences(
        ComparedAnswer(429, {}, retry_after="1"), ComparedAnswer(429, {})
    )
    assert [each.path for each in differences] == ["retry-after"]


def test_long_texts_are_shown_from_where_they_part() -> None:
    long = "x" * 500
    text = compare.shown(compare.AnswerDifference("p", f"{long}1", f"{long}2"), ("one", "other"))
    assert f"one  : {'x' * 80}1" in text
    assert f"other: {'x' * 80}2" in text

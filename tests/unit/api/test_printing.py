# SPDX-License-Identifier: Apache-2.0
"""Durations, ages and selectors, with the texts that Kubernetes 1.36 gives."""

from datetime import UTC, datetime
from typing import Any

import pytest

from refloat.api import printing
from tests.cases import cases

DAY = 24 * 3600
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "60s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (601, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (10859, "3h"),
        (10860, "3h1m"),
        (28799, "7h59m"),
        (28800, "8h"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 3599, "2d"),
        (2 * DAY + 3600, "2d1h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + DAY - 1, "2y"),
        (2 * YEAR + DAY, "2y1d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR, "8y"),
        (9 * YEAR - 1, "8y"),
        (300 * YEAR, "292y"),
    ],
)
def test_a_duration_has_two_or_three_figures(seconds: float, want: str) -> None:
    assert printing.human_duration(seconds) == want


NOW = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("timestamp", "want"),
    [
        (None, "<unknown>"),
        ("", "<unknown>"),
        ("2026-01-01T12:00:00Z", "0s"),
        ("2026-01-01T12:00:02Z", "0s"),
        ("2026-01-01T12:00:03Z", "<invalid>"),
        ("2026-01-01T11:58:59.250000Z", "61s"),
        ("2025-12-27T09:00:00Z", "5d3h"),
    ],
)
def test_an_age_is_counted_until_now(timestamp: str | None, want: str) -> None:
    assert printing.age(timestamp, NOW) == want


def test_the_time_between_two_timestamps_does_not_depend_on_now() -> None:
    assert printing.between("2026-01-01T00:00:00Z", "2026-01-01T00:02:01Z") == "2m1s"


def test_labels_are_ordered_by_the_text_of_the_whole_pair() -> None:
    labels = {"ab": "4", "a": "1", "a.b": "3", "a-b": "2"}
    assert printing.label_map(labels) == "a-b=2,a.b=3,a=1,ab=4"


@pytest.mark.parametrize("labels", [None, {}])
def test_no_labels_are_none(labels: dict[str, str] | None) -> None:
    assert printing.label_map(labels) == "<none>"


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@cases(
    "selector want",
    {
        "no selector": (None, "<none>"),
        "an empty selector": ({}, "<none>"),
        "labels are ordered by key": (
            {"matchLabels": {"b": "3", "a-b": "2", "a": "1"}},
            "a=1,a-b=2,b=3",
        ),
        "expressions are ordered by key, after labels, with ordered values": (
            {
                "matchLabels": {"z": "1"},
                "matchExpressions": [
                    requirement("z", "In", "b", "a", "1"),
                    requirement("c", "NotIn", "x"),
                    requirement("b", "DoesNotExist"),
                    requirement("a", "Exists"),
                ],
            },
            "a,!b,c notin (x),z=1,z in (1,a,b)",
        ),
    },
)
def test_a_selector_is_shown_in_the_notation_of_kubectl(selector: Any, want: str) -> None:
    assert printing.label_selector(selector) == want

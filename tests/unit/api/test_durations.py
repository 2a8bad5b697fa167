# SPDX-License-Identifier: Apache-2.0
"""Lengths of time as metav1.Duration reads and writes them."""

from datetime import timedelta

import pytest

from refloat.api import durations


@pytest.mark.parametrize(
    ("text", "seconds", "want"),
    [
        ("0", 0, "0s"),
        ("0s", 0, "0s"),
        ("1m", 60, "1m0s"),
        ("90s", 90, "1m30s"),
        ("1m30s", 90, "1m30s"),
        ("1.5h", 5400, "1h30m0s"),
        (".5s", 0.5, "500ms"),
        ("1.s", 1, "1s"),
        ("1h0.25s", 3600.25, "1h0m0.25s"),
        ("250us", 0.00025, "250µs"),
        ("1500µs", 0.0015, "1.5ms"),
        ("999ns", 0, "0s"),
        ("-1m30s", -90, "-1m30s"),
        ("+2h", 7200, "2h0m0s"),
        ("48h", 172800, "48h0m0s"),
        ("0" * 5000 + "2h", 7200, "2h0m0s"),
        ("1." + "5" + "0" * 5000 + "s", 1.5, "1.5s"),
        ("." + "3" * 5000 + "s", 0.333333, "333.333ms"),
    ],
)
def test_is_read_and_printed_as_go_does(text: str, seconds: float, want: str) -> None:
    length = timedelta(seconds=seconds)
    assert durations.parse(text) == length
    assert durations.show(length) == want


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "m", "1d", "1 m", "1m ", "m1", "1.5.5s", "--1s", "1e3s", ".s", "9999999h"),
        *(f"{sign}{'9' * digits}ns" for sign in ("", "-") for digits in (19, 20, 5000)),
    ],
)
def test_what_go_refuses_is_no_duration(text: str) -> None:
    assert durations.parse(text) is None

# SPDX-License-Identifier: Apache-2.0
"""The waits of containers that keep failing (behaviour D3.1)."""

from datetime import UTC, datetime, timedelta

import pytest

from refloat.agent import backoff

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_waits_double_up_to_five_minutes() -> None:
    waits = backoff.RestartBackoff()
    seconds = []
    for number in range(8):
        seconds.append(waits.seconds("main", at(number)))
        waits.restarted("main", at(number))
    assert seconds == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_wait_counts_from_the_end() -> None:
    waits = backoff.RestartBackoff()
    waits.restarted("main", at(0))
    assert waits.remaining("main", at(5), at(8)) == 7
    assert waits.remaining("main", at(5), at(15)) == 0
    assert waits.remaining("main", None, at(5)) == 0
    assert waits.remaining("other", at(5), at(5)) == 0


@pytest.mark.parametrize(("seconds", "want"), [(600, 20), (601, 10)])
def test_who_ran_for_ten_minutes_begins_anew(seconds: float, want: float) -> None:
    waits = backoff.RestartBackoff()
    waits.restarted("main", at(0))
    waits.restarted("main", at(seconds))
    assert waits.seconds("main", at(seconds)) == want


@pytest.mark.parametrize(
    ("seconds", "want"), [(10, "10s"), (60, "1m0s"), (80, "1m20s"), (300, "5m0s")]
)
def test_durations_are_written_as_go_does(seconds: float, want: str) -> None:
    assert backoff.duration(seconds) == want

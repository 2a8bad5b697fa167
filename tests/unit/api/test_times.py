# SPDX-License-Identifier: Apache-2.0
"""Times have the texts of metav1.Time and metav1.MicroTime."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import times


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ("2020-02-29T12:00:00Z", "2020-02-29T12:00:00Z"),
        ("2020-01-01T00:00:00+01:00", "2019-12-31T23:00:00Z"),
        ("2020-01-01T00:00:00-24:00", "2020-01-02T00:00:00Z"),
        ("2020-01-01T00:00:00.999999999Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01T00:00:00,5Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01T5:00:00Z", "2020-01-01T05:00:00Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59-05:00", "10000-01-01T04:59:59Z"),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T01:00:00+01:00", None),
    ],
)
def test_a_time_is_kept_in_utc_and_whole_seconds(text: str, want: str | None) -> None:
    assert times.normalize(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2020-01-01T00:00:00.000000Z", "2020-01-01T00:00:00.000000Z"),
        ("2020-01-01T00:00:00.123456+02:00", "2019-12-31T22:00:00.123456Z"),
        ("2020-01-01T00:00:00,123456Z", "2020-01-01T00:00:00.123456Z"),
        ("0001-01-01T00:00:00.000000Z", None),
    ],
)
def test_a_micro_time_keeps_six_digits(text: str, want: str | None) -> None:
    assert times.normalize_micro(text) == want


AS = ' as "2006-01-02T15:04:05Z07:00": cannot parse '
MICRO_AS = ' as "2006-01-02T15:04:05.000000Z07:00": cannot parse '


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", f'""{AS}"" as "2006"'),
        ("yesterday", f'"yesterday"{AS}"yesterday" as "2006"'),
        ("2020-01-01", f'"2020-01-01"{AS}"" as "T"'),
        ("2020-1-01T00:00:00Z", f'"2020-1-01T00:00:00Z"{AS}"1-01T00:00:00Z" as "01"'),
        ("2020-01-01t00:00:00z", f'"2020-01-01t00:00:00z"{AS}"t00:00:00z" as "T"'),
        ("2020-01-01T123:00:00Z", f'"2020-01-01T123:00:00Z"{AS}"3:00:00Z" as ":"'),
        ("2020-01-01T00:00:00", f'"2020-01-01T00:00:00"{AS}"" as "Z07:00"'),
        ("2020-01-01T00:00:00.Z", f'"2020-01-01T00:00:00.Z"{AS}".Z" as "Z07:00"'),
        ("2020-01-01T00:00:00+0100", f'"2020-01-01T00:00:00+0100"{AS}"+0100" as "Z07:00"'),
        ("2020-13-01T00:00:00Z", '"2020-13-01T00:00:00Z": month out of range'),
        ("2021-02-29T00:00:00Z", '"2021-02-29T00:00:00Z": day out of range'),
        ("2020-01-01T24:00:00Z", '"2020-01-01T24:00:00Z": hour out of range'),
        ("2020-01-01T00:60:00Z", '"2020-01-01T00:60:00Z": minute out of range'),
        ("2020-01-01T00:00:60Z", '"2020-01-01T00:00:60Z": second out of range'),
        (
            "2020-01-01T00:00:00+25:00",
            '"2020-01-01T00:00:00+25:00": time zone offset hour out of range',
        ),
        ("2020-01-01T00:00:00Zx", '"2020-01-01T00:00:00Zx": extra text: "x"'),
        ('x"\\☺\n', f'"x\\"\\\\\\xe2\\x98\\xba\\x0a"{AS}"x\\"\\\\\\xe2\\x98\\xba\\x0a" as "2006"'),
    ],
)
def test_what_is_no_time_is_refused_in_gos_words(text: str, want: str) -> None:
    with pytest.raises(times.TimeError) as error:
        times.normalize(text)
    assert str(error.value) == f"parsing time {want}"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2020-01-01T00:00:00Z", f'"2020-01-01T00:00:00Z"{MICRO_AS}"Z" as ".000000"'),
        ("2020-01-01T00:00:00.123Z", f'"2020-01-01T00:00:00.123Z"{MICRO_AS}".123Z" as ".000000"'),
        (
            "2020-01-01T00:00:00.1234567Z",
            f'"2020-01-01T00:00:00.1234567Z"{MICRO_AS}"7Z" as "Z07:00"',
        ),
    ],
)
def test_a_micro_time_with_another_fraction_is_refused(text: str, want: str) -> None:
    with pytest.raises(times.TimeError) as error:
        times.normalize_micro(text)
    assert str(error.value) == f"parsing time {want}"


ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES)  # noqa: DTZ001


@given(MOMENTS)
def test_what_is_written_is_read_back(moment: datetime) -> None:
    assert times.parse(times.format_micro(moment)) == moment
    assert times.parse(times.format_time(moment)) == moment.replace(microsecond=0)


FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0000-01-01T00:00:00Z", FIRST),
        ("0000-01-01T00:00:00+24:00", FIRST),
        ("0001-01-01T00:00:00+01:00", FIRST),
        ("0000-12-31T23:59:59-00:01", FIRST + timedelta(seconds=59)),
        ("9999-12-31T23:59:59-05:00", LAST),
    ],
)
def test_a_year_that_python_lacks_is_the_nearest_that_it_has(text: str, want: datetime) -> None:
    assert times.parse(times.normalize(text) or "") == want
    micro = times.normalize_micro(f"{text[:19]}.000000{text[19:]}")
    assert times.parse(micro or "") == want


@pytest.mark.parametrize(
    "text", ["", "0000", "0000-01-01", "0000-01-01T00:00:00", "10000-01-01T00:00:00+01:00", "Z"]
)
def test_what_is_no_stored_time_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|out of range"):
        times.parse(text)


@given(MOMENTS)
def test_any_zone_is_brought_to_utc(moment: datetime) -> None:
    text = moment.isoformat(timespec="microseconds")
    assert times.normalize_micro(text) == times.format_micro(moment.astimezone(UTC))
    assert times.normalize(text) == times.format_time(moment)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, timedelta(0)),
        (-5, timedelta(seconds=-5)),
        (9223372036, timedelta(seconds=9223372036)),
        (9223372037, timedelta(seconds=-9223372037, microseconds=290448)),
        (100000000000, timedelta(seconds=7766279631, microseconds=452241)),
        (2**63 - 1, timedelta(seconds=-1)),
    ],
)
def test_seconds_overflow_as_in_kubernetes(seconds: int, want: timedelta) -> None:
    assert times.span(seconds) == want

"""Points in time, durations and waiting: conversion, parsing, formatting and measurement."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import (
    BEGINNING,
    FOREVER,
    Waiting,
    datetime_micros,
    duration_micros,
    end_micros,
    format_timestamp,
    moment_micros,
    parse_duration,
    parse_timestamp,
    start_micros,
)
from cdc_reader.errors import ConfigurationError
from cdc_reader.testing import ManualClock

pd: Any = import_module("pandas")  # pandas has no types

NOW = 1_795_322_564_000_000
ZONE = timezone(timedelta(hours=1))
MOMENTS = st.datetimes(datetime(2002, 1, 1), datetime(5000, 1, 1))  # noqa: DTZ001 - zones follow


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(2026, 11, 22, 4, 42, 44, tzinfo=UTC), NOW),
        (datetime(2026, 11, 22, 5, 42, 44, tzinfo=ZONE), NOW),
        ("2026-11-22T05:42:44+01:00", NOW),
        ("2026-11-22T04:42:44", NOW),
        ("20261122", 1_795_305_600_000_000),
        ("1795322564000", NOW),
        ("now", NOW),
        (" NOW ", NOW),
        ("-90m", NOW - 5_400_000_000),
        ("-1h30m", NOW - 5_400_000_000),
        ("-999999999d", BEGINNING),
        (NOW, NOW),
        (BEGINNING, BEGINNING),
        (FOREVER, FOREVER),
    ],
)
def test_moments(moment: int | datetime | str, expected: int) -> None:
    """A point in time may be a datetime with a time zone, text, or a number of microseconds."""
    assert moment_micros(moment, "start", NOW) == expected


@pytest.mark.parametrize(
    ("moment", "message"),
    [
        (1_795_322_564, f"counts seconds since 1970, but microseconds are expected: give {NOW}"),
        (1_795_322_564_000, f"counts milliseconds since 1970, .* give {NOW}"),
        (NOW * 1_000, f"counts nanoseconds since 1970, .* give {NOW}"),
        ("1795322564", "seconds since 1970, but milliseconds are expected: give 1795322564000"),
        (str(NOW), "counts microseconds since 1970, .* give 1795322564000"),
        (0, "not a likely time of a change in microseconds since 1970"),
        ("0", "not a likely time of a change in milliseconds since 1970"),
        pytest.param(10**5_000, "a int: not a likely time", id="huge"),
        (pd.NaT, "NaT: it is not a time: give a datetime with a time zone"),
        (np.datetime64("NaT", "us"), "give 'now', a datetime with a time zone"),
        (np.datetime64("2026-11-22"), "give 'now', a datetime with a time zone"),
        (pd.Timestamp("2026-11-22"), "no time zone"),
        (5, "not a likely time of a change in microseconds since 1970: give a number such as 1795"),
        (-1, "not a likely time of a change in microseconds"),
        ("-1", "give 'now', a time ago such as '-10m'"),
        ("9" * 30, "not a likely time of a change in milliseconds"),
        ("9" * 5_000, "give 'now', a time ago"),
        ("soon", "give 'now', a time ago such as '-10m', an ISO-8601 time"),
        ("-soon", "give 'now', a time ago"),
        ("", "give 'now', a time ago"),
        (1_795_322_564.5, "give 'now', a datetime with a time zone"),
        (True, "give 'now', a datetime with a time zone"),
        (None, "give 'now', a datetime with a time zone"),
        (date(2026, 11, 22), "give 'now', a datetime with a time zone"),
        (datetime(2026, 11, 22), r"no time zone: give datetime\.now\(UTC\).*astimezone"),  # noqa: DTZ001 - invalid
    ],
)
def test_malformed_moments_are_refused(moment: object, message: str) -> None:
    """The one-line error for a malformed time says what to pass instead."""
    with pytest.raises(ConfigurationError, match=rf"^start is [^\n]*{message}") as refused:
        moment_micros(moment, "start", NOW)
    assert "\n" not in str(refused.value)


@given(st.integers(1_000_000_000, 95_000_000_000))
def test_numbers_in_other_units_are_refused(seconds: int) -> None:
    """The error for a number in another unit shows the same time in the accepted unit."""
    millis, micros = seconds * 1_000, seconds * 1_000_000
    assert moment_micros(micros, "start", NOW) == moment_micros(str(millis), "start", NOW) == micros
    for number in (seconds, millis, micros * 1_000):
        with pytest.raises(ConfigurationError, match=f"give {micros}$"):
            moment_micros(number, "start", NOW)
    for number in (seconds, micros, micros * 1_000):
        with pytest.raises(ConfigurationError, match=f"give {millis}$"):
            moment_micros(str(number), "start", NOW)


@given(st.datetimes())
def test_a_datetime_without_zone_is_refused(moment: datetime) -> None:
    """A datetime without a time zone is rejected.

    Python treats such a datetime as local time, and servers treat it as UTC.
    """
    with pytest.raises(ConfigurationError, match="no time zone"):
        moment_micros(moment, "start", NOW)


@given(MOMENTS)
def test_the_text_of_a_position_names_it(moment: datetime) -> None:
    """The printed text of a position is accepted as a start."""
    micros = moment_micros(moment.replace(tzinfo=UTC), "start", NOW)
    assert moment_micros(format_timestamp(micros), "start", NOW) == micros


def test_a_time_of_pandas_is_a_number() -> None:
    """A pandas Timestamp is truncated to microseconds."""
    micros = moment_micros(pd.Timestamp("2026-11-22T04:42:44.000000999Z"), "start", NOW)
    assert (micros, type(micros)) == (NOW, int)


def test_open_ends() -> None:
    """By default, the start is the beginning of time and the end is open."""
    assert start_micros(None, NOW) == start_micros("earliest", NOW) == BEGINNING
    assert start_micros("-1h", NOW) == NOW - 3_600_000_000
    assert start_micros(0, NOW) == start_micros("0", NOW) == 0
    assert end_micros(None, NOW) == FOREVER
    assert end_micros("now", NOW) == NOW
    with pytest.raises(ConfigurationError, match=r"^start is 'first': give 'earliest', 'now', a"):
        start_micros("first", NOW)
    with pytest.raises(ConfigurationError, match=r"^end is 'earliest': give 'now', a time ago"):
        end_micros("earliest", NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01", 0),
        ("1970-01-01 00:00:01.5", 1_500_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1606390225588", 1_606_390_225_588_000),
        ("-1", -1_000),
        ("20261121", 1_795_219_200_000_000),
    ],
)
def test_a_timestamp_is_iso_text_or_milliseconds(text: str, expected: int) -> None:
    """Text without a time zone is in UTC, and eight digits are a date."""
    assert parse_timestamp(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12:00", "1606390225588.5", "1e3"])
def test_an_error_of_a_timestamp_names_the_option(text: str) -> None:
    """The error for a timestamp names the option and both accepted forms."""
    with pytest.raises(ConfigurationError, match=r"^startingTimestamp is .*ISO-8601.*milliseconds"):
        parse_timestamp(text, "startingTimestamp")


@given(st.datetimes())
def test_a_formatted_moment_parses_to_itself(moment: datetime) -> None:
    """A formatted time parses to the same time, exact to the microsecond."""
    micros = datetime_micros(moment.replace(tzinfo=UTC))
    assert parse_timestamp(format_timestamp(micros)) == micros


def test_a_moment_beyond_the_calendar_has_a_text_too() -> None:
    """Times beyond the calendar can be formatted, because log events show open-ended windows."""
    assert format_timestamp(1 << 62) == f"{1 << 62} µs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("5 minutes", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("1 hour 30 min", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        (" 7 µs ", timedelta(microseconds=7)),
        ("2 Days", timedelta(days=2)),
        ("0s", timedelta(0)),
    ],
)
def test_durations_have_a_number_and_a_unit(text: str, expected: timedelta) -> None:
    """The unit of a duration may be short or long, with or without a space."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "30", "s", "5 parsecs", "-1s", "1.5h", "1h,30m", "9" * 30 + "d"]
)
def test_an_error_of_a_duration_names_the_option(text: str) -> None:
    """The error for a malformed duration, such as a number without a unit, names the option."""
    with pytest.raises(ConfigurationError, match=r"^confidenceWindow is "):
        parse_duration(text, "confidenceWindow")


@given(st.timedeltas(min_value=timedelta(0)))
def test_microseconds_are_exact(duration: timedelta) -> None:
    """Durations are converted without floats, so microseconds are exact."""
    assert timedelta(microseconds=duration_micros(duration)) == duration


def slow(clock: ManualClock, things: str) -> Iterator[str]:
    """Yield items, each after 5 µs, and end after another 5 µs."""
    for thing in things:
        clock.advance(5)
        yield thing
    clock.advance(5)


def test_only_waiting_is_measured() -> None:
    """Only waiting for items is measured, not the time spent processing them."""
    clock = ManualClock(1_000)
    waiting = Waiting(clock)
    for _ in waiting.each(slow(clock, "abc")):
        clock.advance(1_000_000)
    assert waiting.took == 4 * 5


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_the_time_waited_is_known_during_iteration(taken: int) -> None:
    """The time waited is known during iteration, even if the iterator is not exhausted."""
    clock = ManualClock(1_000)
    waiting = Waiting(clock)
    things = waiting.each(slow(clock, "abc"))
    assert "".join(next(things) for _ in range(taken)) == "abc"[:taken]
    assert waiting.took == 5 * taken

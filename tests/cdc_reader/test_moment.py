"""Points in write time as callers pass them."""

from __future__ import annotations

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
    end_micros,
    format_timestamp,
    moment_micros,
    start_micros,
)
from cdc_reader.errors import ConfigurationError

pd: Any = import_module("pandas")  # it has no types

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
    """Datetimes with a zone, texts and µs name the same points in time."""
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
        pytest.param(10**5_000, "a number of 16610 bits: not a likely time", id="huge"),
        (pd.NaT, "NaT: it is not a time: give a datetime with a time zone"),
        (np.datetime64("NaT"), "give 'now', a datetime with a time zone"),
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
        (datetime(2026, 11, 22), r"no time zone: give datetime\.now\(UTC\).*astimezone"),  # noqa: DTZ001 - refused
    ],
)
def test_malformed_moments_are_refused(moment: object, message: str) -> None:
    """The one-line error says what was probably meant."""
    with pytest.raises(ConfigurationError, match=rf"^start is [^\n]*{message}") as refused:
        moment_micros(moment, "start", NOW)
    assert "\n" not in str(refused.value)


@given(st.integers(1_000_000_000, 95_000_000_000))
def test_numbers_in_other_units_are_refused(seconds: int) -> None:
    """The message suggests the number in the expected unit, which is accepted."""
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
    """Python would treat it as local time, servers as UTC."""
    with pytest.raises(ConfigurationError, match="no time zone"):
        moment_micros(moment, "start", NOW)


@given(MOMENTS)
def test_the_text_of_a_position_names_it(moment: datetime) -> None:
    """A printed position can be passed back."""
    micros = moment_micros(moment.replace(tzinfo=UTC), "start", NOW)
    assert moment_micros(format_timestamp(micros), "start", NOW) == micros


def test_a_time_of_pandas_is_a_number() -> None:
    """A pandas Timestamp is truncated to the microsecond."""
    micros = moment_micros(pd.Timestamp("2026-11-22T04:42:44.000000999Z"), "start", NOW)
    assert (micros, type(micros)) == (NOW, int)


def test_open_ends() -> None:
    """The default start is the beginning; the default end is never."""
    assert start_micros(None, NOW) == start_micros("earliest", NOW) == BEGINNING
    assert start_micros("-1h", NOW) == NOW - 3_600_000_000
    assert start_micros(0, NOW) == start_micros("0", NOW) == 0
    assert end_micros(None, NOW) == FOREVER
    assert end_micros("now", NOW) == NOW
    with pytest.raises(ConfigurationError, match=r"^start is 'first': give 'earliest', 'now', a"):
        start_micros("first", NOW)
    with pytest.raises(ConfigurationError, match=r"^end is 'earliest': give 'now', a time ago"):
        end_micros("earliest", NOW)

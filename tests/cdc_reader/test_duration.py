from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import duration_micros, parse_duration
from cdc_reader.errors import ConfigurationError


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
    """Units may be short or long, joined or separate."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "30", "s", "5 parsecs", "-1s", "1.5h", "1h,30m", "9" * 30 + "d"]
)
def test_an_error_names_the_option(text: str) -> None:
    """A bare number has no unit."""
    with pytest.raises(ConfigurationError, match=r"^confidenceWindow is "):
        parse_duration(text, "confidenceWindow")


@given(st.timedeltas(min_value=timedelta(0)))
def test_microseconds_are_exact(duration: timedelta) -> None:
    """No float is involved."""
    assert timedelta(microseconds=duration_micros(duration)) == duration

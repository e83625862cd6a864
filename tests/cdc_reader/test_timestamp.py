from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import datetime_micros, format_timestamp, parse_timestamp
from cdc_reader.errors import ConfigurationError


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
    """Text without a zone is UTC; eight digits are a date."""
    assert parse_timestamp(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12:00", "1606390225588.5", "1e3"])
def test_an_error_names_the_option(text: str) -> None:
    """The message has both accepted forms."""
    with pytest.raises(ConfigurationError, match=r"^startingTimestamp is .*ISO-8601.*milliseconds"):
        parse_timestamp(text, "startingTimestamp")


@given(st.datetimes())
def test_a_formatted_moment_parses_to_itself(moment: datetime) -> None:
    """This is exact to the microsecond."""
    micros = datetime_micros(moment.replace(tzinfo=UTC))
    assert parse_timestamp(format_timestamp(micros)) == micros


def test_a_moment_beyond_the_calendar_has_a_text_too() -> None:
    """Windows without an end are printed in logs."""
    assert format_timestamp(1 << 62) == f"{1 << 62} µs"

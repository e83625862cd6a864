"""Points in time as people write them, to and from microseconds since 1970 (UTC)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from cdc_reader.errors import ConfigurationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REMEDY = (
    "give an ISO-8601 time such as '2026-11-21T05:30:00Z' (UTC if no zone is given), "
    "or milliseconds since 1970 as a plain integer"
)


def parse_timestamp(text: str, option: str = "timestamp") -> int:
    """Microseconds since 1970-01-01T00:00:00Z of the point in time that `text` names.

    A plain integer counts milliseconds. ISO-8601 text without a zone is UTC. Raises
    ConfigurationError, naming `option`, for anything else.
    """
    stripped = text.strip()
    if re.fullmatch(r"[+-]?\d{1,15}", stripped, re.ASCII) and not _is_compact_date(stripped):
        return int(stripped) * 1_000
    try:
        return to_micros(datetime.fromisoformat(stripped))
    except ValueError:
        raise ConfigurationError(option, text, _REMEDY) from None


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 of `moment`; without a zone it is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def format_timestamp(micros: int) -> str:
    """ISO-8601 text of a point in time, to the microsecond, in UTC.

    A point that no calendar year from 1 to 9999 holds comes back as its number.
    """
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros} µs"


def _is_compact_date(text: str) -> bool:
    """Eight digits read as a date (20261121): as milliseconds they would be hours into 1970."""
    return bool(re.fullmatch(r"(19|20)\d{6}", text))

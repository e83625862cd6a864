"""Parses the dates, times, timestamps and durations of CQL text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from cdc_reader.testing.embedded.codec.marshal import MarshalError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_CENTRE = 1 << 31
_MONTHS, _FEBRUARY = 12, 2
_MILLI_DIGITS = 3
_NANOS = {"h": 3_600_000_000_000, "m": 60_000_000_000, "s": 1_000_000_000}
_UNITS = {
    # unit: (name, index of its part in (months, days, nanoseconds), size in that part)
    "y": ("years", 0, 12),
    "mo": ("months", 0, 1),
    "w": ("weeks", 1, 7),
    "d": ("days", 1, 1),
    "h": ("hours", 2, _NANOS["h"]),
    "m": ("minutes", 2, _NANOS["m"]),
    "s": ("seconds", 2, _NANOS["s"]),
    "ms": ("milliseconds", 2, 1_000_000),
    "us": ("microseconds", 2, 1_000),
    "µs": ("microseconds", 2, 1_000),
    "ns": ("nanoseconds", 2, 1),
}
_PLACES = [name for name, _, _ in _UNITS.values()]
_MOST = ((1 << 31) - 1, (1 << 31) - 1, (1 << 63) - 1)

_TIMESTAMP = re.compile(
    r"(\d{4})-(?P<month>\d\d?)-(\d\d?)"
    r"(?:[ T](\d\d?):(\d\d?)(?::(\d\d?)(?:\.(?P<fraction>\d{1,9}))?)?)?"
    r"\s*(?:Z|([+-])(\d\d):?(\d\d)?)?",
    re.IGNORECASE,
)
_TIME = re.compile(r"(\d\d?):(\d\d?):(\d\d?)(?:\.(\d{1,9}))?")
_UNIT = re.compile(r"(\d+)(mo|ms|us|µs|ns|[ywdhms])", re.IGNORECASE)
_ISO = re.compile(
    r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?",
    re.IGNORECASE,
)
_ISO_UNITS = ("y", "mo", "w", "d", "h", "m", "s")
_ISO_ALTERNATIVE = re.compile(r"P(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)", re.IGNORECASE)
_ISO_ALTERNATIVE_UNITS = ("y", "mo", "d", "h", "m", "s")


def timestamp_millis(text: str) -> int:
    """Parse a timestamp to milliseconds since 1970; assume UTC if it has no time zone."""
    if re.fullmatch(r"-?\d{5,}", text):
        return int(text)
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise MarshalError(f"unable to parse date '{text}'")
    if len(match["fraction"] or "") > _MILLI_DIGITS:
        raise MarshalError(
            f"unable to parse date '{text}': marshaling error: Milliseconds length exceeds "
            f"expected ({len(match['fraction'])})"
        )
    if not 1 <= int(match["month"]) <= _MONTHS:
        raise MarshalError(
            f"unable to parse date '{text}': boost::wrapexcept<boost::gregorian::bad_month> "
            f"(Month number is out of range 1..{_MONTHS})"
        )
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "").ljust(6, "0")[:6]),
            timezone(-offset if sign == "-" else offset),
        )
    except ValueError:
        raise MarshalError(f"unable to parse date '{text}'") from None
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def date_days(text: str) -> int:
    """Parse a date to the stored number: days since 1970, plus 2^31."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    match = re.fullmatch(r"(-?\d{1,8})-(\d{1,2})-(\d{1,3})", text)
    if match is None or not 1 <= int(match[2]) <= _MONTHS:
        raise MarshalError(f"Unable to coerce '{text}' to a formatted date (long)")
    return _days(*map(int, match.groups())) + _DATE_CENTRE


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970; a day beyond the month's end is in the next month."""
    years = year - (month <= _FEBRUARY)
    era, of_era = divmod(years, 400)
    of_year = (153 * ((month - 3) % _MONTHS) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def time_nanos(text: str) -> int:
    """Parse a time to nanoseconds since midnight."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise MarshalError(f"Timestamp format must be hh:mm:ss[.fffffffff], found '{text}'")
    hour, minute, second = (int(part) for part in match.groups()[:3])
    for number, limit, what in ((hour, 24, "Hour"), (minute, 60, "Minute"), (second, 60, "Second")):
        if number >= limit:
            raise MarshalError(f"{what} out of bounds ({number}).")
    fraction = int((match.group(4) or "").ljust(9, "0"))
    return hour * _NANOS["h"] + minute * _NANOS["m"] + second * _NANOS["s"] + fraction


def duration(text: str) -> tuple[int, int, int]:
    """Parse a duration: ``1y2mo``, ``-1h30m``, ``P1Y2M``, ``P2W`` or ``P0001-02-03T04:05:06``.

    Returns months, days and nanoseconds, all with the same sign.
    """
    sign, unsigned = (-1, text[1:]) if text.startswith("-") else (1, text)
    counts, last = [0, 0, 0], ""
    for count, unit in _duration_parts(unsigned, text):
        name, part, factor = _UNITS[unit]
        if last and _PLACES.index(name) <= _PLACES.index(last):
            order = f"{last} should be after {name}"
            order = f"{name} are specified multiple times" if name == last else order
            raise MarshalError(f"Invalid duration. The {order}")
        most = (_MOST[part] - counts[part]) // factor
        if count > most:
            number = f"number of {name} must be less than or equal to {most}"
            raise MarshalError(f"Invalid duration. The {number}")
        counts[part] += count * factor
        last = name
    months, days, nanos = counts
    return sign * months, sign * days, sign * nanos


def duration_text(counts: tuple[int, int, int]) -> str:
    """Format months, days and nanoseconds as the server does: ``1y2mo3d4h``."""
    rest, text = [abs(count) for count in counts], "-" if min(counts) < 0 else ""
    for unit, (_, part, factor) in _UNITS.items():
        if unit not in ("w", "µs") and rest[part] >= factor:
            count, rest[part] = divmod(rest[part], factor)
            text += f"{count}{unit}"
    return text


def _duration_parts(unsigned: str, text: str) -> list[tuple[int, str]]:
    for pattern, units in ((_ISO, _ISO_UNITS), (_ISO_ALTERNATIVE, _ISO_ALTERNATIVE_UNITS)):
        if (match := pattern.fullmatch(unsigned)) and any(match.groups()):
            return [(int(n), u) for n, u in zip(match.groups(), units, strict=True) if n]
    parts = _UNIT.findall(unsigned)
    if not parts or "".join(count + unit for count, unit in parts) != unsigned:
        raise MarshalError(f"Unable to convert '{text}' to a duration")
    return [(int(count), unit.lower()) for count, unit in parts]

"""Points in time, durations and clocks: conversion, parsing and formatting.

Durations are `timedelta` objects. Points in time are `Micros`, microseconds since 1970.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from attrs import define

from cdc_reader.errors import ConfigurationError

T = TypeVar("T")

# Not a `NewType`: the sum of a time and a duration would be a plain int, which has to be wrapped
# again, and two times could still be added. Besides, users may pass a plain int as a `Moment`.
Micros: TypeAlias = int
"""A point in time: microseconds since 1970 (UTC)."""

BEGINNING: Micros = -(1 << 62)
"""Earlier than every write time."""
FOREVER: Micros = 1 << 62
"""Later than every write time."""

EARLIEST, NOW = "earliest", "now"

Moment: TypeAlias = Micros | datetime | str
"""A datetime with a time zone, µs since 1970, or text as described at `TableReader.batches`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_steady_ns: Callable[[], int] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic_ns
)
"""A clock that, where the system has one, keeps running while the machine is suspended."""

_SPELLINGS = {
    1: "us µs microsecond microseconds",
    1_000: "ms milli millis millisecond milliseconds",
    1_000_000: "s sec secs second seconds",
    60_000_000: "m min mins minute minutes",
    3_600_000_000: "h hr hrs hour hours",
    86_400_000_000: "d day days",
}
"""The spellings of each unit of duration, by its length in µs."""
_UNITS = {spelling: unit for unit, line in _SPELLINGS.items() for spelling in line.split()}
_PART = re.compile(r"\s*([0-9]{1,30})\s*([a-zµ]+)")

_FIRST = 1_000_000_000_000_000
"""2001-09-09, in µs since 1970. All logs are newer.

A smaller number is therefore not a time in µs, but perhaps a time in ms or seconds."""
_LAST = 100 * _FIRST
_IN_MICROS = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
_NUMBER = re.compile(r"\+?[0-9]{1,30}")
_COMPACT_DATE = re.compile(r"(19|20)[0-9]{6}")
"""A date such as 20261121, which would be a time on 1970-01-01 if read as milliseconds."""

_MOST_SECONDS = 1_000_000_000
"""For numbers below this, an error message suggests that they may be in seconds."""
_DURATION_REMEDY = "give a duration such as '30s', '5 minutes', '1h30m' or '250ms'"
_TIMESTAMP_REMEDY = (
    "give an ISO-8601 time such as '2026-11-21T05:30:00Z' (UTC if no zone is given), "
    "or milliseconds since 1970 as a plain integer"
)
_MOMENT_REMEDY = (
    "a datetime with a time zone, a string such as '2026-11-21T05:30:00Z' or '-10m', or "
    "microseconds since 1970"
)


class Clock(Protocol):
    """A source of time. Tests can pass a clock that they advance themselves."""

    def now(self) -> Micros:
        """Return the time, in µs since 1970."""
        ...

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Return after `micros` µs, or as soon as `wake` is set."""
        ...


class SystemClock:
    """The `Clock` used in production: wall-clock time, and sleeps that can be interrupted."""

    def now(self) -> Micros:
        """Return the time, in µs since 1970."""
        return time.time_ns() // 1_000

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Return after `micros` µs, or as soon as `wake` is set."""
        wake.wait(micros / 1_000_000)


class SteadyClock(SystemClock):
    """A monotonic clock for durations."""

    def now(self) -> Micros:
        """Return the time, in µs since an arbitrary moment."""
        return _steady_ns() // 1_000


@define
class Waiting:
    """Measures the time that an iterator takes to produce items, excluding its caller's time."""

    _clock: Clock
    took: int = 0
    """µs waited so far."""

    def each(self, things: Iterable[T]) -> Iterator[T]:
        """Yield `things`, and add the time spent waiting for each to `took`."""
        began = self._clock.now()
        for thing in things:
            self.took += self._clock.now() - began
            yield thing
            began = self._clock.now()
        self.took += self._clock.now() - began


def duration_micros(duration: timedelta) -> int:
    """Return the duration in whole microseconds, computed without floats."""
    return duration // timedelta(microseconds=1)


def datetime_micros(moment: datetime, option: str = "timestamp") -> Micros:
    """Convert a datetime to microseconds since 1970.

    Raises ConfigurationError, naming `option`, for pandas' NaT and for a datetime without a time
    zone: Python treats such a datetime as local time, but most other software treats it as UTC.
    """
    if moment != moment:  # noqa: PLR0124 - only NaT, "not a time", differs from itself
        raise ConfigurationError(option, moment, f"it is not a time: give {_MOMENT_REMEDY}")
    if moment.utcoffset() is None:
        remedy = (
            "it has no time zone: give datetime.now(UTC) or datetime(..., tzinfo=UTC), or "
            "convert local time with .astimezone()"
        )
        raise ConfigurationError(option, moment.isoformat(), remedy)
    return int((moment - _EPOCH) // timedelta(microseconds=1))


def start_micros(start: Moment | None, now: Micros) -> Micros:
    """Convert a start time to µs since 1970, and None or ``earliest`` to BEGINNING.

    Raises ConfigurationError as `moment_micros` does.
    """
    is_earliest = start is None or (isinstance(start, str) and start.lower() == EARLIEST)
    return BEGINNING if is_earliest else moment_micros(start, "start", now, EARLIEST)


def end_micros(end: Moment | None, now: Micros) -> Micros:
    """Convert an end time to µs since 1970, and None to FOREVER.

    Raises ConfigurationError as `moment_micros` does.
    """
    return FOREVER if end is None else moment_micros(end, "end", now)


def check_order(start: Micros, end: Micros, option: str = "start", end_option: str = "end") -> None:
    """Raise ConfigurationError, naming the options, if `start` is after `end`."""
    if start > end:
        remedy = (
            f"it is after {end_option}, {format_timestamp(end)}: give an earlier start or a later "
            "end"
        )
        raise ConfigurationError(option, format_timestamp(start), remedy)


def is_relative(moment: object) -> bool:
    """Return True if a `Moment` is relative to the present, as ``now`` and ``-10m`` are."""
    text = moment.strip().lower() if isinstance(moment, str) else ""
    return text == NOW or text.startswith("-")


def moment_micros(moment: object, option: str, now: Micros, *words: str) -> Micros:
    """Convert a `Moment` to µs since 1970.

    Strings such as ``-10m`` are relative to `now` (µs). If `words` contains ``earliest``, zero is
    valid too, and means the same as ``earliest``. Raises ConfigurationError for anything else,
    including a datetime without a time zone and a number in another unit. The error names `option`,
    and lists `words` as further valid values.
    """
    match moment:
        case str():
            return parse_moment(moment, option, now, *words)
        case datetime():
            return datetime_micros(moment, option)
        case int() if not isinstance(moment, bool):
            if moment in (BEGINNING, FOREVER) or (moment == 0 and EARLIEST in words):
                return moment
            return _counted(moment, "microseconds", option, moment)
    listed = "".join(f"'{word}', " for word in (*words, NOW))
    raise ConfigurationError(option, moment, f"give {listed}{_MOMENT_REMEDY}")


def as_datetime(micros: Micros) -> datetime:
    """Convert µs since 1970 to a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def format_timestamp(micros: Micros) -> str:
    """Format a point in time as ISO-8601 text, to the microsecond, in UTC.

    A time outside the years 1 to 9999 is formatted as a number of µs.
    """
    try:
        return as_datetime(micros).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros} µs"


def as_duration(value: object, option: str) -> timedelta:
    """Return a timedelta unchanged; parse text as `parse_duration` does.

    Raises ConfigurationError, naming `option`, for anything else: a number has no unit.
    """
    match value:
        case timedelta():
            return value
        case str():
            return parse_duration(value, option)
    given: float = 5
    if isinstance(value, int | float) and 0 < value < _MOST_SECONDS and not isinstance(value, bool):
        given = value
    remedy = (
        f"give a timedelta, such as timedelta(seconds={given}), or a string, such as '{given}s'"
    )
    raise ConfigurationError(option, value, remedy)


def parse_duration(text: str, option: str = "duration") -> timedelta:
    """Parse a duration such as ``1h30m``, exact to the microsecond; zero needs no unit.

    Raises ConfigurationError, naming `option`, for other text, such as ``5``, which has no unit.
    """
    lowered, total, end = text.lower().rstrip(), 0, 0
    if lowered.strip() == "0":
        return timedelta(0)
    if re.fullmatch(r"\s*[0-9]{1,20}", lowered):
        raise ConfigurationError(option, text, f"give a unit, such as '{lowered.strip()}s'")
    while match := _PART.match(lowered, end):
        if (unit := _UNITS.get(match[2])) is None:
            raise ConfigurationError(option, text, _DURATION_REMEDY)
        total += int(match[1]) * unit
        end = match.end()
    if end == 0 or end != len(lowered):
        raise ConfigurationError(option, text, _DURATION_REMEDY)
    try:
        return timedelta(microseconds=total)
    except OverflowError:
        raise ConfigurationError(option, text, _DURATION_REMEDY) from None


def parse_timestamp(text: str, option: str = "timestamp") -> Micros:
    """Parse a point in time to microseconds since 1970 (UTC).

    A plain integer is a number of milliseconds. It need not be a plausible time, because the text
    may come from a table. ISO-8601 text without a zone is UTC. Raises ConfigurationError, naming
    `option`, for other text.
    """
    stripped = text.strip()
    if re.fullmatch(r"[+-]?\d{1,15}", stripped, re.ASCII) and not _COMPACT_DATE.fullmatch(stripped):
        return int(stripped) * 1_000
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise ConfigurationError(option, text, _TIMESTAMP_REMEDY) from None
    return datetime_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC), option)


def parse_moment(text: str, option: str, now: Micros, *words: str) -> Micros:
    """Parse a moment to µs since 1970.

    Accepts ``now``, a time relative to it (``-10m``), an ISO-8601 time (UTC if it has no zone), or
    a number of milliseconds since 1970. Raises ConfigurationError for anything else; the error
    names `option`, and lists `words` as further valid values. Zero is valid only if `words`
    contains ``earliest``.
    """
    stripped = text.strip()
    if stripped.lower() == NOW:
        return now
    if _NUMBER.fullmatch(stripped) and not _COMPACT_DATE.fullmatch(stripped):
        if int(stripped) == 0 and EARLIEST in words:
            return 0
        return _counted(int(stripped), "milliseconds", option, text)
    try:
        if stripped.startswith("-"):
            return max(BEGINNING, now - duration_micros(parse_duration(stripped[1:], option)))
        return parse_timestamp(stripped, option)
    except ConfigurationError:
        listed = "".join(f"'{word}', " for word in (*words, NOW))
        remedy = (
            f"give {listed}a time ago such as '-10m', an ISO-8601 time such as "
            "'2026-11-21T05:30:00Z' (UTC if it names no zone), or milliseconds since 1970"
        )
        raise ConfigurationError(option, text, remedy) from None


def _counted(number: int, unit: str, option: str, given: object) -> Micros:
    """Convert a time in `unit` to µs; raise ConfigurationError unless it is plausible."""
    if _is_likely(number * _IN_MICROS[unit]):
        return number * _IN_MICROS[unit]
    for other, each in {**_IN_MICROS, "nanoseconds": 0}.items():
        likely = number * each if each else number // 1_000
        if _is_likely(likely):
            raise ConfigurationError(
                option,
                given,
                f"it counts {other} since 1970, but {unit} are expected: give "
                f"{likely // _IN_MICROS[unit]}",
            )
    example = 1_795_239_000_000_000 // _IN_MICROS[unit]
    remedy = (
        f"not a likely time of a change in {unit} since 1970: give a number such as {example}, "
        "or a string"
    )
    raise ConfigurationError(option, given, f"{remedy} such as '2026-11-21T05:30:00Z' or '-10m'")


def _is_likely(micros: Micros) -> bool:
    return _FIRST <= micros < _LAST

"""Durations as people write them: ``30s``, ``5 minutes``, ``1h30m``, ``250 ms``."""

from __future__ import annotations

import re
from datetime import timedelta

from cdc_reader.errors import ConfigurationError

_MICROS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_SPELLINGS = {
    "us": "us µs microsecond microseconds",
    "ms": "ms milli millis millisecond milliseconds",
    "s": "s sec secs second seconds",
    "m": "m min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "d day days",
}
_UNITS = {spelling: _MICROS[unit] for unit, line in _SPELLINGS.items() for spelling in line.split()}
_PART = re.compile(r"\s*(\d+)\s*([a-zµ]+)")
_REMEDY = "give a duration such as '30s', '5 minutes', '1h30m' or '250ms'"


def parse_duration(text: str, option: str = "duration") -> timedelta:
    """The duration `text` names, exact to the microsecond.

    Raises ConfigurationError, naming `option`, for anything else (also for a bare number:
    its unit would be a guess).
    """
    lowered, total, end = text.lower().rstrip(), 0, 0
    while match := _PART.match(lowered, end):
        if (unit := _UNITS.get(match[2])) is None:
            raise ConfigurationError(option, text, _REMEDY)
        total += int(match[1]) * unit
        end = match.end()
    if end == 0 or end != len(lowered):
        raise ConfigurationError(option, text, _REMEDY)
    try:
        return timedelta(microseconds=total)
    except OverflowError:
        raise ConfigurationError(option, text, _REMEDY) from None


def micros(duration: timedelta) -> int:
    """The duration in whole microseconds, without a detour through floats."""
    return duration // timedelta(microseconds=1)

"""Converters and validators for settings; their one-line errors name the setting."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar, cast

from attrs import Attribute

from cdc_reader._time import as_duration, parse_duration
from cdc_reader.errors import ConfigurationError

E = TypeVar("E", bound=StrEnum)
Validator = Callable[[Any, "Attribute[Any]", Any], None]


_LONGEST = timedelta(days=36_500)
"""The longest duration allowed; a longer wait would overflow the operating system's timers."""


def duration(value: timedelta | str) -> timedelta:
    """Convert text such as ``30s`` to a timedelta.

    Other values are returned unchanged: the validator rejects them and names the setting.
    """
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except ConfigurationError:
        return cast("timedelta", value)


def path(value: str | os.PathLike[str] | None) -> str | None:
    """Convert a path to text."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def require(test: Callable[[Any], bool], remedy: str) -> Validator:
    """Return a validator that rejects values that fail `test`."""

    def validate(_: object, attribute: Attribute[Any], value: object) -> None:
        if not test(value):
            raise ConfigurationError(attribute.name, value, remedy)

    return validate


def between(low: int, high: int) -> Validator:
    """Return a validator for integers from `low` to `high`."""
    return require(
        lambda value: _is_whole(value) and low <= value <= high,
        f"give a whole number from {low} to {high}",
    )


def _lasting(test: Callable[[timedelta], bool], remedy: str) -> Validator:
    def validate(_: object, attribute: Attribute[Any], value: Any) -> None:
        if not test(as_duration(value, attribute.name)):
            raise ConfigurationError(attribute.name, value, remedy)
        if as_duration(value, attribute.name) > _LONGEST:
            raise ConfigurationError(attribute.name, value, "give at most 36500d, a century")

    return validate


POSITIVE = _lasting(lambda value: value > timedelta(0), "give a duration above zero, such as '30s'")
NOT_NEGATIVE = _lasting(lambda value: value >= timedelta(0), "give a duration of zero or more")
A_SECOND_OR_MORE = _lasting(lambda value: value >= timedelta(seconds=1), "give at least one second")
_MOST = 1 << 63
"""Numbers of at least this size do not fit in 64 bits; some cannot be converted to float."""
AT_LEAST_ONE = require(
    lambda value: _is_whole(value) and 1 <= value < _MOST, "give a whole number of at least 1"
)
POSITIVE_NUMBER = require(
    lambda value: value is None or 0 < value < _MOST,
    "give a number above zero, or None for no limit",
)
FLAG = require(lambda value: isinstance(value, bool), "give True or False")
TEXT_REMEDY = "give a string that is not empty, in UTF-8 and without NUL, or leave it out"
TEXT = require(lambda value: value is None or is_text(value), TEXT_REMEDY)


def is_text(value: str) -> bool:
    """Return True for a non-empty string in UTF-8, without NUL, which would truncate it."""
    try:
        value.encode()
    except UnicodeEncodeError:  # a byte that is not UTF-8, from a command line, is half a character
        return False
    return value != "" and "\0" not in value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def member(option: str, value: str, kind: type[E]) -> E:
    """Return the member of `kind` that has this value.

    Raises ConfigurationError if there is none.
    """
    try:
        return kind(value)
    except ValueError:
        raise ConfigurationError(option, value, f"give one of {', '.join(kind)}") from None

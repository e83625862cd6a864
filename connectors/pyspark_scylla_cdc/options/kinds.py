"""Options: their names, meanings, and conversions from text to values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from attrs import frozen

from cdc_reader._time import (
    BEGINNING,
    FOREVER,
    SystemClock,
    parse_duration,
    parse_moment,
)
from cdc_reader.checkpoints.spark import VERSION
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.offsets.offset import Offset

_MOST_PARTITIONS = 100_000
_SIZE = re.compile(r"([0-9]{1,18}) *(|[kmgt])b?")
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
"""The size suffixes of Spark's options, as powers of two."""
EARLIEST = "earliest"
LATEST = "latest"


@frozen
class Kind:
    """A type of value: its name in the docs, and its parser, ``(text, option) -> value``."""

    name: str
    parse: Callable[[str, str], Any]


@frozen
class Option:
    """One option of the data source.

    `reason` completes the sentence "set it ...". An option without a default is None unless it is
    given. A `secret` value is never shown.
    """

    name: str
    kind: Kind
    doc: str
    reason: str
    default: str | None = None
    required: bool = False
    secret: bool = False

    def value(self, given: str | None) -> Any:
        """Parse the given text, or the default; raise ConfigurationError if it is invalid."""
        text = self.default if given is None else given if self.secret else given.strip()
        if text is None and not self.required:
            return None
        text = text or ""
        if not text and self.required:
            remedy = f"give {self.name}, {self.doc[0].lower()}{self.doc[1:]}"
            raise ConfigurationError(self.name, given, remedy)
        if not text and self.kind is TEXT:
            raise ConfigurationError(self.name, given, f"give {self._noun}, or leave it out")
        if "\0" in text:
            shown = "(not shown)" if self.secret else text
            raise ConfigurationError(self.name, shown, "remove the NUL character")
        return self.kind.parse(text, self.name)

    @property
    def _noun(self) -> str:
        """The first clause of the description, as a noun phrase for messages."""
        noun = re.split("[.,;] |[.]$", self.doc)[0].removeprefix("The ")
        lowered = noun if noun[1].isupper() else f"{noun[0].lower()}{noun[1:]}"
        return f"the {lowered}"


def choice(values: Iterable[str]) -> Kind:
    """Make a kind whose value is one of a few words, in upper or lower case."""
    known = list(values)

    def parse(text: str, option: str) -> str:
        if text.lower() not in known:
            raise ConfigurationError(option, text, f"give {_any_of(known)}")
        return known[known.index(text.lower())]

    return Kind(_any_of([f"`{value}`" for value in known]), parse)


def _any_of(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _text(text: str, _option: str) -> str:
    return text


def _table(text: str, option: str) -> TableName:
    try:
        return TableName.parse(text)
    except ConfigurationError as error:
        raise ConfigurationError(option, text, error.remedy) from None


def _count(text: str, option: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0):
        raise ConfigurationError(option, text, "give a whole number above zero that fits 64 bits")
    return int(text)


def _bytes(text: str, option: str) -> int:
    found = _SIZE.fullmatch(text.lower())
    size = int(found[1]) << _SHIFTS[found[2]] if found else 0
    if not 0 < size < 1 << 63:
        raise ConfigurationError(
            option, text, "give a number of bytes, such as '500k', '64m', '1g'"
        )
    return size


def _partitions(text: str, option: str) -> int:
    if (count := _count(text, option)) > _MOST_PARTITIONS:
        raise ConfigurationError(option, text, f"give {_MOST_PARTITIONS} or fewer")
    return count


def _flag(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(option, text, "give true or false")
    return text.lower() == "true"


def _start(text: str, option: str) -> int:
    words = {EARLIEST: BEGINNING, LATEST: FOREVER}
    return words.get(text.lower()) or _moment(text, option, *words)


def _moment(text: str, option: str, *words: str) -> int:
    """Parse a time to µs since 1970; relative times are resolved here, when a query starts."""
    return parse_moment(text, option, SystemClock().now(), *words)


def _offset(text: str, option: str) -> int | Offset:
    if text.lower() in (EARLIEST, LATEST):
        return _start(text, option)
    remedy = (
        f"give '{EARLIEST}', '{LATEST}', or an offset of version {VERSION}, as a checkpoint or the "
        "progress has it"
    )
    try:
        return Offset.from_json(json.loads(text))
    except (ValueError, RecursionError, ConfigurationError):
        raise ConfigurationError(option, text, remedy) from None


def _positive_duration(text: str, option: str) -> timedelta:
    duration = parse_duration(text, option)
    if not duration:
        raise ConfigurationError(option, text, "give a duration above zero, such as '30s'")
    return duration


def _names(text: str, option: str) -> tuple[str, ...]:
    remedy = "give names separated by commas, or a JSON array of names"
    if not text.startswith("["):
        names: Any = [name.strip() for name in text.split(",")]
    else:
        names = _json(text, option, remedy)
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(option, text, remedy)
    return tuple(names)


def _json_object(text: str, option: str) -> str:
    remedy = 'give a JSON object of partition key columns, like {"customer": 7}'
    if not isinstance(_json(text, option, remedy), dict):
        raise ConfigurationError(option, text, remedy)
    return text


def _json(text: str, option: str, remedy: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigurationError(option, text, remedy) from None


TEXT = Kind("string", _text)
TABLE = Kind("`keyspace.table`", _table)
COUNT = Kind("number", _count)
BYTES = Kind("number of bytes", _bytes)
PARTITIONS = Kind("number", _partitions)
FLAG = Kind("flag", _flag)
DURATION = Kind("duration", parse_duration)
POSITIVE_DURATION = Kind("duration", _positive_duration)
TIMESTAMP = Kind("timestamp", _moment)
START = Kind(f"timestamp, `{EARLIEST}` or `{LATEST}`", _start)
OFFSET = Kind(f"`{EARLIEST}`, `{LATEST}` or an offset as JSON", _offset)
NAMES = Kind("names", _names)
JSON = Kind("JSON object", _json_object)
DECIMAL_TYPE = Kind("`string` or `decimal(p, s)`, or columns with them", _text)

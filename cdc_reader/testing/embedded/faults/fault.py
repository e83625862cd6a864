"""Kinds of faults, and the statements that they match."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from math import inf
from typing import Any, Self

from attrs import Attribute, field, frozen

from cdc_reader.errors import ConfigurationError

_SYSTEM = re.compile(r"\bsystem(_schema)?\s*\.", re.IGNORECASE)


class FaultKind(enum.Enum):
    """The effect of a fault on a statement.

    DROP, CLOSE and DELAY affect the response to a statement that has been executed. The other kinds
    replace the response, and the statement is not executed. READ_TIMEOUT affects only SELECT;
    UNPREPARED affects only prepared statements, which the node then discards.
    """

    DROP = "drop"
    """Send half of the response, then reset the connection, like a node that crashes."""
    CLOSE = "close"
    """Send half of the response, then close the connection, like a node that shuts down."""
    DELAY = "delay"
    """Delay the response; later responses on the connection overtake it."""
    OVERLOADED = "overloaded"
    READ_TIMEOUT = "read-timeout"
    UNAVAILABLE = "unavailable"
    SERVER_ERROR = "server-error"
    UNAUTHORIZED = "unauthorized"
    """Report that the user lacks the permission that the statement needs."""
    UNPREPARED = "unprepared"


@frozen
class Statement:
    """The properties of a statement that decide which faults may affect it."""

    cql: str
    consistency: int
    is_prepared: bool = False

    @property
    def is_select(self) -> bool:
        return self.cql.lstrip()[:6].upper() == "SELECT"

    @property
    def is_of_system(self) -> bool:
        """True if the statement names system tables that drivers read on their own."""
        return _SYSTEM.search(self.cql) is not None

    def matches(self, fault: Fault) -> bool:
        """Return True if the fault may affect the statement, regardless of `after` and `times`."""
        if fault.kind is FaultKind.READ_TIMEOUT and not self.is_select:
            return False
        if fault.kind is FaultKind.UNPREPARED and not self.is_prepared:
            return False
        if self.is_of_system and "system" not in fault.match.lower():
            return False
        return _contains(self.cql, fault.match)


SYNTAX = "KIND[,match=TEXT][,times=N][,after=N][,seconds=S]"


def _kind(kind: FaultKind | str) -> FaultKind:
    try:
        return FaultKind(kind)
    except ValueError:
        known = ", ".join(each.value for each in FaultKind)
        raise ConfigurationError("fault", kind, f"expected one of {known}") from None


def _at_least(lowest: float) -> Any:
    def check(_: object, attribute: Attribute[Any], value: float | None) -> None:
        if value is not None and not lowest <= value < inf:
            raise ConfigurationError(attribute.name, value, f"expected at least {lowest}")

    return check


@frozen
class Fault:
    """A failure injected into matching statements.

    Args:
        kind: the effect, or its name, such as "read-timeout".
        match: words that a matching statement contains, such as "ks.t_scylla_cdc_log"; case and
            quotes are ignored. If empty, every statement matches, except statements on `system` and
            `system_schema`, which drivers depend on. Those statements match only if the words
            include the name of the keyspace.
        times: the number of statements to affect; None for no limit.
        after: the number of matching statements to let pass first.
        seconds: the length of the delay, for the kind DELAY.

    Raises ConfigurationError for invalid values.
    """

    kind: FaultKind = field(converter=_kind)
    match: str = ""
    times: int | None = field(default=1, validator=_at_least(1))
    after: int = field(default=0, validator=_at_least(0))
    seconds: float = field(default=0.0, validator=_at_least(0))

    def __attrs_post_init__(self) -> None:
        if (self.kind is FaultKind.DELAY) != (self.seconds > 0):
            raise ConfigurationError(
                "seconds", self.seconds, "a delay takes more than 0, another fault none"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``KIND[,match=TEXT][,times=N][,after=N][,seconds=S]``.

        Raises ConfigurationError if the text is invalid.
        """
        kind, *settings = text.split(",")
        given = dict(setting.partition("=")[::2] for setting in settings)
        try:
            values = {name: _PARSERS[name](value) for name, value in given.items()}
        except (KeyError, ValueError):
            raise ConfigurationError("fault", text, f"expected {SYNTAX}") from None
        return cls(kind, **values)


@frozen
class Strike:
    """A fault and the statement that it affects."""

    fault: Fault
    statement: Statement

    @property
    def kind(self) -> FaultKind:
        return self.fault.kind


def _times(text: str) -> int | None:
    return None if text == "inf" else int(text)


_PARSERS: Mapping[str, Any] = {"match": str, "times": _times, "after": int, "seconds": float}


def _contains(cql: str, words: str) -> bool:
    """Return True if the text contains these words in this order, ignoring case and quotes."""
    pattern = rf"(?<!\w){re.escape(_plain(words))}(?!\w)" if words else ""
    return re.search(pattern, _plain(cql)) is not None


def _plain(cql: str) -> str:
    return " ".join(cql.replace('"', "").lower().split())

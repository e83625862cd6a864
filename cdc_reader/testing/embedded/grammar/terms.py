"""Terms: the syntax of values in a statement."""

from __future__ import annotations

import enum

from attrs import frozen


class ConstantKind(enum.Enum):
    """Lexical kinds of constants; the values are the names in ScyllaDB's messages."""

    STRING = "STRING"
    INTEGER = "INTEGER"
    FLOAT = "FLOAT"
    UUID = "UUID"
    BOOLEAN = "BOOLEAN"
    HEX = "HEX"
    DURATION = "DURATION"


@frozen
class Constant:
    """A constant as written, without quotes."""

    kind: ConstantKind
    text: str


@frozen
class Null:
    """The word ``null``."""


@frozen
class Marker:
    """A bind marker, ``?`` or ``:name``; `index` is its position in the text, from 0."""

    index: int
    name: str | None = None


@frozen
class ListTerm:
    """A list, ``[a, b]``."""

    elements: tuple[Term, ...]


@frozen
class SetTerm:
    """A set, ``{a, b}``; empty braces are a set, map or UDT, depending on the receiver's type."""

    elements: tuple[Term, ...]


@frozen
class MapTerm:
    """A map, ``{k: v}``."""

    entries: tuple[tuple[Term, Term], ...]


@frozen
class UserTypeTerm:
    """A UDT value, ``{field: value}``."""

    fields: tuple[tuple[str, Term], ...]


@frozen
class TupleTerm:
    """A tuple, ``(a, b)``."""

    elements: tuple[Term, ...]


@frozen
class CallTerm:
    """A function call."""

    name: str
    arguments: tuple[Term, ...]


@frozen
class HintTerm:
    """A term with an explicit type, ``(type) term``."""

    type: str
    term: Term


def written(term: Term) -> str:
    """Format a term as error messages do."""
    match term:
        case Constant(kind, text):
            return f"'{text}'" if kind is ConstantKind.STRING else text
        case Null():
            return "null"
        case _:
            return "?"


Term = (
    Constant
    | Null
    | Marker
    | ListTerm
    | SetTerm
    | MapTerm
    | UserTypeTerm
    | TupleTerm
    | CallTerm
    | HintTerm
)

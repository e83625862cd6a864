"""Terms: the syntax of values in a statement."""

from __future__ import annotations

import enum

from attrs import frozen


class ConstantKind(enum.Enum):
    """The lexical kinds of constants; the values are the server's words for them."""

    STRING = "STRING"
    INTEGER = "INTEGER"
    FLOAT = "FLOAT"
    UUID = "UUID"
    BOOLEAN = "BOOLEAN"
    HEX = "HEX"
    DURATION = "DURATION"


@frozen
class Constant:
    """A constant as written, quotes removed."""

    kind: ConstantKind
    text: str


@frozen
class Null:
    """The word ``null``."""


@frozen
class Marker:
    """A bind marker, ``?`` or ``:name``; `index` counts from 0 in order of the text."""

    index: int
    name: str | None = None


@frozen
class ListTerm:
    """``[a, b]``."""

    elements: tuple[Term, ...]


@frozen
class SetTerm:
    """``{a, b}``; empty braces are an empty set or map, by the receiver's type."""

    elements: tuple[Term, ...]


@frozen
class MapTerm:
    """``{k: v}``."""

    entries: tuple[tuple[Term, Term], ...]


@frozen
class UserTypeTerm:
    """``{field: value}``."""

    fields: tuple[tuple[str, Term], ...]


@frozen
class TupleTerm:
    """``(a, b)``."""

    elements: tuple[Term, ...]


@frozen
class CallTerm:
    """A function called for its value."""

    name: str
    arguments: tuple[Term, ...]


@frozen
class HintTerm:
    """``(type) term``: a term with an explicit type."""

    type: str
    term: Term


def written(term: Term) -> str:
    """Format a term as refusals show it."""
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

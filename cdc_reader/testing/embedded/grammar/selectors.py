"""Selectors: the syntax of the items of a SELECT list."""

from __future__ import annotations

from attrs import frozen

from cdc_reader.testing.embedded.grammar.terms import Term


@frozen
class ColumnSelector:
    """A column by name."""

    name: str


@frozen
class FieldSelector:
    """A field, ``column.field``, of a column with a user-defined type."""

    selector: Selector
    field: str


@frozen
class ElementSelector:
    """An element, ``column[key]``, of a collection."""

    column: str
    key: Term


@frozen
class MetadataSelector:
    """A call of ``writetime(column)`` or ``ttl(column)``."""

    function: str
    column: str


@frozen
class CallSelector:
    """A function call whose arguments are selectors; ``count(*)`` has no arguments."""

    name: str
    arguments: tuple[Selector, ...]


@frozen
class CastSelector:
    """A cast, ``CAST(selector AS type)``."""

    selector: Selector
    type: str


Selector = (
    ColumnSelector
    | FieldSelector
    | ElementSelector
    | MetadataSelector
    | CallSelector
    | CastSelector
)

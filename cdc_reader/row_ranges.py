"""Ranges of rows as WHERE clauses: equalities, and then one slice.

A range delete names its ends by clustering prefixes, in clustering order, in which columns may
ascend and descend. CQL has no one condition for all of them; but rows between two prefixes are
those of a few slices, each with some columns fixed and the next one between two values. All are
deleted at one timestamp, which is the same as deleting the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from cdc_reader.change import Bound, RowRange

Values = tuple[Any, ...]


@frozen
class Edge:
    """One end of a slice: a value of its column, itself inside or not."""

    value: Any
    inclusive: bool


@frozen
class Slice:
    """The rows whose first clustering columns are `fixed`, and whose next lies between two edges
    in clustering order; without edges it may be anything.
    """

    fixed: Values
    start: Edge | None = None
    end: Edge | None = None


def slices(bounds: RowRange) -> Iterator[Slice]:
    """Slices that together are the range; ValueError unless both its ends are known."""
    if bounds.start is None or bounds.end is None:
        raise ValueError(f"range {bounds}: expected both ends")
    start, end = _values(bounds.start), _values(bounds.end)
    fixed = start[: _shared(start, end)]
    after, before = start[len(fixed) :], end[len(fixed) :]
    if not (after or bounds.start.inclusive) or not (before or bounds.end.inclusive):
        return  # an end that excludes all that the other one includes
    yield from _after(fixed, after, inclusive=bounds.start.inclusive)
    yield Slice(fixed, _edge(after, bounds.start), _edge(before, bounds.end))
    yield from _before(fixed, before, inclusive=bounds.end.inclusive)


def _values(bound: Bound) -> Values:
    return tuple(bound.prefix.values())


def _shared(start: Values, end: Values) -> int:
    """How many values both begin with."""
    pairs = enumerate(zip(start, end, strict=False))
    return next((at for at, (a, b) in pairs if not _is_same(a, b)), min(len(start), len(end)))


def _is_same(a: Any, b: Any) -> bool:
    """As the server has it: 0.0 and -0.0 are two values, and NaN is one."""
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


def _edge(tail: Values, bound: Bound) -> Edge | None:
    """Of a tail of more values, rows that begin with its first one have slices of their own."""
    return Edge(tail[0], bound.inclusive and len(tail) == 1) if tail else None


def _after(fixed: Values, tail: Values, *, inclusive: bool) -> Iterator[Slice]:
    """The rows that begin with the tail's first value, from the tail on."""
    for length in range(len(tail) - 1, 0, -1):
        is_last = length == len(tail) - 1
        yield Slice(fixed + tail[:length], start=Edge(tail[length], inclusive and is_last))


def _before(fixed: Values, tail: Values, *, inclusive: bool) -> Iterator[Slice]:
    """The rows that begin with the tail's first value, up to the tail."""
    for length in range(1, len(tail)):
        is_last = length == len(tail) - 1
        yield Slice(fixed + tail[:length], end=Edge(tail[length], inclusive and is_last))

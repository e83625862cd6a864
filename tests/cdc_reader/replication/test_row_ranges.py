"""Conversion of row ranges to CQL slices, compared with the definition of a row range."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.changes.change import Bound, RowRange
from cdc_reader.replication.writes import Edge, Slice, slices

COLUMNS = ("c1", "c2", "c3")
ROWS = list(product(range(3), repeat=3))


def bound(values: tuple[int, ...], *, inclusive: bool = True) -> Bound:
    """Return a bound with values for the first clustering columns."""
    return Bound(dict(zip(COLUMNS, values, strict=False)), inclusive)


def is_inside(row: tuple[int, ...], start: Bound, end: Bound) -> bool:
    """Return True if the row is between the bounds, by the definition of a range."""
    low, high = tuple(start.prefix.values()), tuple(end.prefix.values())
    first, last = row[: len(low)], row[: len(high)]
    after = first > low or (first == low and start.inclusive)
    return after and (last < high or (last == high and end.inclusive))


def is_in_slice(row: tuple[int, ...], found: Slice) -> bool:
    """Return True if the row is in the slice."""
    at = len(found.fixed)
    if row[:at] != found.fixed:
        return False
    after = found.start is None or _is_past(row[at], found.start)
    return after and (found.end is None or _is_past(-row[at], _negative(found.end)))


def _is_past(value: int, edge: Edge) -> bool:
    return bool(value > edge.value or (edge.inclusive and value == edge.value))


def _negative(edge: Edge) -> Edge:
    return Edge(-edge.value, edge.inclusive)


prefixes = st.lists(st.integers(0, 2), max_size=3).map(tuple)
bounds = st.builds(
    lambda values, inclusive: bound(values, inclusive=inclusive), prefixes, st.booleans()
)


@given(bounds, bounds)
def test_slices_are_the_rows_of_the_range(start: Bound, end: Bound) -> None:
    """Slices select exactly the rows of the range, whatever the lengths of the bounds."""
    if not start.prefix or not end.prefix:
        start, end = (b if b.prefix else Bound({}, inclusive=True) for b in (start, end))
    if tuple(start.prefix.values()) > (*end.prefix.values(), 9, 9, 9):
        start, end = end, start  # in a log, a range's start precedes its end
    found = list(slices(RowRange(start, end)))
    for row in ROWS:
        expected = is_inside(row, start, end)
        assert any(is_in_slice(row, each) for each in found) is expected, (row, found)


def test_a_slice_of_one_column_is_one_condition() -> None:
    """A range is one slice if its bounds differ only in their last column, or not at all."""
    rows = RowRange(bound((1, 2)), bound((1, 5), inclusive=False))
    assert list(slices(rows)) == [Slice((1,), Edge(2, True), Edge(5, False))]
    assert list(slices(RowRange(bound((1,)), bound((1,))))) == [Slice((1,))]


def test_floating_point_ends_compare_as_on_the_server() -> None:
    """In bounds, 0.0 and -0.0 are different values, and all NaNs are equal, as on the server."""
    zeros: Any = Bound({"c1": -0.0}, True), Bound({"c1": 0.0}, True)
    assert list(slices(RowRange(*zeros))) == [Slice((), Edge(-0.0, True), Edge(0.0, True))]
    nans: Any = Bound({"c1": float("nan")}, True), Bound({"c1": float("nan")}, True)
    assert len(next(slices(RowRange(*nans))).fixed) == 1


def test_a_range_needs_both_ends() -> None:
    """A range with only one end is rejected."""
    with pytest.raises(ValueError, match="expected both ends"):
        list(slices(RowRange(bound((1,)), None)))

"""A cell has the same hash in every column, and different cells have different hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.changes.hashing import combined, hashes

CELLS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.date32(): st.dates(),
    pa.timestamp("ms", tz="UTC"): st.integers(-(2**50), 2**50),
    pa.string(): st.text(max_size=20) | st.uuids().map(str),
    pa.binary(): st.binary(max_size=20),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=9), max_size=4),
    pa.map_(pa.int32(), pa.float64()): st.dictionaries(
        st.integers(0, 5), st.floats(), max_size=4
    ).map(lambda entries: list(entries.items())),
    pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())}): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 9), "b": st.none() | st.lists(st.text(max_size=9))}
    ),
}


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Draw a slice of a column with nulls."""
    kind = draw(st.sampled_from(list(CELLS)))
    column = pa.array(draw(st.lists(st.none() | CELLS[kind], max_size=12)), kind)
    start = draw(st.integers(0, len(column)))
    return column.slice(start, draw(st.integers(0, len(column) - start)))


@given(columns())
def test_a_cell_has_one_hash(column: pa.Array) -> None:
    """A cell's hash does not depend on the column's other cells, nulls or offset."""
    found = hashes(column).tolist()
    assert found == [int(hashes(pa.array([cell], column.type))[0]) for cell in column.to_pylist()]
    by_text: dict[str, int] = {}
    for cell, number in zip(column.to_pylist(), found, strict=True):
        assert by_text.setdefault(repr(cell), number) == number
    assert len(set(by_text.values())) == len(by_text)


@pytest.mark.parametrize(
    "cells",
    [
        range(-2_000, 2_000),
        [number << 40 for number in range(4_000)],
        [number / 7 for number in range(4_000)],
        [f"name {number}" for number in range(4_000)],
        [f"{number:036}" for number in range(4_000)],
        ["", "\0", "\0\0", "a", "a\0", "aaaaaaaa", "aaaaaaaa\0", *map(str, range(4_000))],
        [[], [0], [0, 0], [0, 1], [1, 0], *([number] for number in range(2, 4_000))],
    ],
)
def test_the_hashes_are_spread(cells: list[Any]) -> None:
    """Different cells have different hashes, and any number of workers get equal shares."""
    found = hashes(pa.array(cells))
    assert len(set(found.tolist())) == len(cells)
    for workers in (2, 3, 4, 16):
        shares = np.bincount((found % np.uint64(workers)).astype(int), minlength=workers)
        assert shares.min() > 0.7 * len(cells) / workers


def test_the_order_of_columns_matters() -> None:
    """Keys with the same cells in different columns have different hashes."""
    first, second = (hashes(pa.array(cells)) for cells in ([1, 2], [2, 1]))
    forth, back = combined(first, second).tolist(), combined(second, first).tolist()
    assert len({*forth, *back}) == 2
    assert forth == back[::-1]


def test_a_udt_may_get_fields() -> None:
    """A value of a user-defined type keeps its hash when a field is added to the type."""
    older = pa.array([{"a": 1}], pa.struct({"a": pa.int32()}))
    newer = pa.array([{"a": 1}], pa.struct({"a": pa.int32(), "b": pa.string()}))
    assert hashes(older).tolist() == hashes(newer).tolist()


def test_empty_columns() -> None:
    """A column without cells has no hashes, and a column of nulls has the hash 0."""
    for kind in CELLS:
        assert hashes(pa.array([], kind)).tolist() == []
        assert hashes(pa.nulls(2, kind)).tolist() == [0, 0]

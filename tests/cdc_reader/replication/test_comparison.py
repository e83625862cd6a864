"""Comparing two tables finds exactly the rows that differ, however the tables are paged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.schema import Column, ColumnKind
from cdc_reader.cql.types import Native, UserType, parse
from cdc_reader.decoding.arrow_type import arrow_type
from cdc_reader.reading.ports import TOKEN
from cdc_reader.replication.comparison import Kind, RowComparison

Key = tuple[int, int]
Rows = dict[Key, float | None]

KEY = (
    Column("p", Native("int"), ColumnKind.PARTITION_KEY, 0),
    Column("c", Native("int"), ColumnKind.CLUSTERING, 0),
)
VALUE = Column("v", Native("double"))
SCHEMA = pa.schema([("v", pa.float64()), ("p", pa.int32()), ("c", pa.int32()), (TOKEN, pa.int64())])

keys = st.tuples(st.integers(0, 3), st.integers(0, 40))
values = st.sampled_from([None, 0.0, -0.0, 1.0, float("nan")])
tables = st.dictionaries(keys, values, max_size=60)
sizes = st.integers(1, 9)


@given(
    common=tables, source=tables, target=tables, gone=st.sets(keys), page=sizes, other_page=sizes
)
def test_exactly_what_differs_is_found(
    common: Rows, source: Rows, target: Rows, gone: set[Key], page: int, other_page: int
) -> None:
    """A comparison counts all rows, and yields each difference with its kind, in token order."""
    source = {**common, **source}
    target = {key: value for key, value in {**common, **target}.items() if key not in gone}
    compared = RowComparison(_pages(source, page), _pages(target, other_page), KEY, [VALUE])
    found = [((d.key["p"], d.key["c"]), d.kind, d.columns) for d in compared.differences()]
    kinds = {
        **dict.fromkeys(source.keys() - target.keys(), (Kind.MISSING, ())),
        **dict.fromkeys(target.keys() - source.keys(), (Kind.EXTRA, ())),
        **{
            key: (Kind.CHANGED, ("v",))
            for key in source.keys() & target.keys()
            if repr(source[key]) != repr(target[key])
        },
    }
    assert {key: (kind, columns) for key, kind, columns in found} == kinds
    assert len(found) == len(kinds)
    assert [key[0] for key, *_ in found] == sorted(key[0] for key in kinds)
    assert (compared.counts.source, compared.counts.target) == (len(source), len(target))
    assert +compared.counts.differing == Counter(kind for kind, _ in kinds.values())


def _nested(value: float) -> dict[str, Any]:
    """Return, for each type that can contain floats, a value that contains `value`."""
    return {
        "frozen<list<double>>": [value],
        "frozen<set<float>>": [value],
        "frozen<map<double, int>>": [(value, 1)],
        "frozen<map<int, frozen<list<double>>>>": [(1, [value])],
        "frozen<tuple<int, float>>": {"_1": 1, "_2": value},
        "vector<float, 1>": [value],
        "u": {"x": value},
    }


@pytest.mark.parametrize("name", _nested(0.0))
def test_nested_floats_are_compared_by_their_bits(name: str) -> None:
    """Nested floats are compared by their bits. NaN equals itself, and 0.0 differs from -0.0."""
    user_type = UserType("ks", "u", (("x", Native("double")),), frozen=True)
    of_type = parse(name, lambda _: user_type)
    column = Column("v", of_type)
    names = [column.name, *SCHEMA.names[1:]]

    def differences(*doubles: float) -> list[Kind]:
        source, target = (
            pa.RecordBatch.from_arrays(
                [
                    pa.array([_nested(double)[name]] * 3, arrow_type(of_type)),
                    pa.array([0] * 3, pa.int32()),
                    pa.array(range(3), pa.int32()),
                    pa.array([0] * 3, pa.int64()),
                ],
                names=names,
            )
            for double in doubles
        )
        compared = RowComparison(iter([source.slice(1)]), iter([target.slice(1)]), KEY, [column])
        return [found.kind for found in compared.differences()]

    assert differences(0.0, -0.0) == [Kind.CHANGED] * 2
    assert differences(float("nan"), float("nan")) == differences(-0.0, -0.0) == []


FAR = {"timestamp": 2**50, "date": 2**30}
"""The number of ms or days from 1970 to a time after the year 9999."""


@pytest.mark.parametrize("name", FAR)
def test_times_that_python_does_not_have(name: str) -> None:
    """Rows are compared even if their times are after the year 9999."""
    far, column = FAR[name], Column("seen", parse(name))
    pages = [
        pa.RecordBatch.from_arrays(
            [
                pa.array([far], arrow_type(column.type)),
                pa.array([value], pa.float64()),
                pa.array([0], pa.int32()),
                pa.array([0], pa.int32()),
                pa.array([0], pa.int64()),
            ],
            names=["seen", *SCHEMA.names],
        )
        for value in (1.0, 2.0)
    ]
    compared = RowComparison(iter(pages[:1]), iter(pages[1:]), KEY, [VALUE, column])
    assert [found.columns for found in compared.differences()] == [("v",)]


def test_rows_of_one_table_are_not_kept() -> None:
    """A comparison keeps only a few pages in memory, even if one of the tables is empty."""
    pages, count = 200, 50

    def rows(alive: list[int]) -> Iterator[pa.RecordBatch]:
        for number in range(pages):
            alive.append(pa.total_allocated_bytes())
            yield next(_pages({(0, number * count + c): 1.0 for c in range(count)}, count))

    for other in (False, True):
        alive: list[int] = []
        compared = RowComparison(rows(alive), rows([]) if other else iter(()), KEY, [VALUE])
        assert sum(1 for _ in compared.differences()) == (0 if other else pages * count)
        assert max(alive) - alive[0] < 10 * count * 100


def _pages(rows: Rows, size: int) -> Iterator[pa.RecordBatch]:
    """Yield pages of rows in token order, as a server does. A row's token is its partition key."""
    order = sorted(rows)
    for first in range(0, len(order), size):
        found = [(rows[p, c], p, c, p) for p, c in order[first : first + size]]
        columns = [
            pa.array(cells, kind)
            for cells, kind in zip(zip(*found, strict=True), SCHEMA.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

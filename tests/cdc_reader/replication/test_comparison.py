"""Comparing tables finds exactly the rows that differ, however they are divided into pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.schema import Column, ColumnKind
from cdc_reader.cql.types import Native
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
    """Differences come in token order, each with its kind, and all rows are counted."""
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


def test_rows_of_one_table_are_not_kept() -> None:
    """Comparing a table with an equal or empty one keeps only a few pages in memory."""
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
    """Yield rows as a server does: in order of token, which is the partition key here, and key."""
    order = sorted(rows)
    for first in range(0, len(order), size):
        found = [(rows[p, c], p, c, p) for p, c in order[first : first + size]]
        columns = [
            pa.array(cells, kind)
            for cells, kind in zip(zip(*found, strict=True), SCHEMA.types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

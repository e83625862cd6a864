"""The base table as it stands, read before the log: what a new table of changes begins with.

Rows are read at some moment after the position that the log is followed from, and come out as
inserts of that position. So a change made meanwhile may be in a row already, and comes again from
the log: applied to the row, it leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from cdc_reader.driver import Query
from cdc_reader.driver.queries import Queries
from cdc_reader.ids import quoted
from cdc_reader.schema import ColumnKind, TableSchema

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_QUERIES = 16
"""Spans of a partition, so that one's rows are on their way while another's are taken."""


class SnapshotPartition(InputPartition):
    """The part of a table whose tokens are in (start, end], as of `position` µs."""

    def __init__(self, position: int, start: int, end: int) -> None:
        self.position = position
        self.start = start
        self.end = end

    def spans(self) -> Iterator[tuple[int, int]]:
        """The spans to ask for, in order."""
        return pairwise(_edges(self.start, self.end, _QUERIES))

    def __repr__(self) -> str:
        return f"SnapshotPartition({self.start}, {self.end})"


def snapshot_partitions(position: int, count: int) -> list[SnapshotPartition]:
    """The whole ring in `count` parts."""
    edges = pairwise(_edges(_LOWEST, _HIGHEST, count))
    return [SnapshotPartition(position, start, end) for start, end in edges]


def read_span(
    queries: Queries, base: TableSchema, span: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """The rows of a span of tokens; the first page is asked for now."""
    key = ", ".join(
        quoted(column.name) for column in base.columns if column.kind is ColumnKind.PARTITION_KEY
    )
    columns = ", ".join(quoted(column.name) for column in base.columns)
    where = f"token({key}) > ? AND token({key}) <= ?"
    cql = f"SELECT {columns} FROM {base.name.cql} WHERE {where} BYPASS CACHE"  # noqa: S608 - quoted
    query = Query(cql, span, columns=base.columns, doing=f"reading {base.name}")
    return (batch for batch in queries.batches(query) if batch.num_rows)


def _edges(start: int, end: int, count: int) -> list[int]:
    return [start + (end - start) * number // count for number in range(count + 1)]

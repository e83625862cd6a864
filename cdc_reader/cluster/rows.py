"""Reads the rows of a base table by token ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from attrs import evolve

from cdc_reader.cluster.queries import Queries, Query, Route
from cdc_reader.cql.names import quoted
from cdc_reader.cql.schema import Column, TableSchema
from cdc_reader.cql.types import Native, is_multi_cell
from cdc_reader.decoding import warn_if_slow
from cdc_reader.reading.ports import TOKEN, ttl_of, written_of
from cdc_reader.streams.ring import TokenRange

_CELL_FUNCTIONS = {"TTL": (ttl_of, "int"), "WRITETIME": (written_of, "bigint")}
"""For each function of a cell, the name of its column, and its type."""


class CqlRowSource:
    """The `RowSource` over CQL; checks that each result has the columns that its query names.

    If `tolerant` is True, cells that cannot be decoded are recorded as faults and cause no error.
    """

    def __init__(
        self,
        queries: Queries,
        base: TableSchema,
        *,
        cells: Sequence[str] = (),
        tokens: bool = False,
        tolerant: bool = False,
    ) -> None:
        self._queries = queries
        self._tolerant = tolerant
        self._query = rows_query(base, cells=cells, tokens=tokens)

    def read(self, tokens: TokenRange) -> Iterator[pa.RecordBatch]:
        """See `RowSource.read`."""
        warn_if_slow()
        route = Route(tokens.end, is_exact=False)
        query = evolve(self._query, values=(tokens.start, tokens.end), route=route)
        batches = self._queries.batches(query, tolerant=self._tolerant)
        return (batch for batch in batches if batch.num_rows)


def rows_query(base: TableSchema, *, cells: Sequence[str], tokens: bool) -> Query:
    """Return the query for the rows of a range, without values.

    The query gives aliases to function calls, because server versions name their result columns
    differently.
    """
    key = ", ".join(quoted(column.name) for column in base.partition_key)
    selected = [quoted(column.name) for column in base.columns]
    columns = list(base.columns)
    for column in filter(is_single_cell, base.columns):
        for function in cells:
            name_of, kind = _CELL_FUNCTIONS[function]
            name = name_of(column.name)
            selected.append(f"{function}({quoted(column.name)}) AS {quoted(name)}")
            columns.append(Column(name, Native(kind)))
    if tokens:
        selected.append(f"token({key}) AS {quoted(TOKEN)}")
        columns.append(Column(TOKEN, Native("bigint")))
    where = f"token({key}) > ? AND token({key}) <= ? BYPASS CACHE"
    cql = f"SELECT {', '.join(selected)} FROM {base.name.cql} WHERE {where}"  # noqa: S608 - quoted
    return Query(cql, columns=tuple(columns), doing=f"reading {base.name}")


def is_single_cell(column: Column) -> bool:
    """Return True if the server returns the TTL and the write time of the column's cell."""
    return not column.is_key and not is_multi_cell(column.type)

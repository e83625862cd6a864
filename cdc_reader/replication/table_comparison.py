"""Compares two tables by token range, several ranges at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

from attrs import evolve, field, frozen

from cdc_reader.changes.frames.columns import chosen
from cdc_reader.cluster.queries import Queries
from cdc_reader.cluster.rows import CqlRowSource
from cdc_reader.config import ReadConfig
from cdc_reader.cql.schema import TableSchema
from cdc_reader.errors import UnsupportedTableError
from cdc_reader.reading import tuning
from cdc_reader.reading.windows.in_flight import InFlight
from cdc_reader.replication.comparison import Counts, Difference, RowComparison
from cdc_reader.replication.table_copy import clustering_order, misfits
from cdc_reader.streams.range_cutter import RangeCutter
from cdc_reader.streams.ring import WHOLE_RING, TokenRange

_PAGES = 20
"""The target size of a range in pages, as in a snapshot."""


@frozen
class Table:
    """A table, and the thread-safe connection through which to read it."""

    queries: Queries
    schema: TableSchema = field(repr=False)


@frozen
class ComparedRange:
    """A token range that was compared: its counts, and the first rows that differ."""

    tokens: TokenRange
    counts: Counts
    differences: tuple[Difference, ...]

    @property
    def share(self) -> float:
        """The fraction of the ring that the range covers, from 0 to 1."""
        return self.tokens.size / WHOLE_RING.size


class TableComparison:
    """Compares the rows of two tables with the same key.

    All columns of the source are compared, or only the key and `columns` if given. Additional
    columns of the target are ignored. At most `limit` differences of a range are kept. TTLs and
    write times are not compared. Raises UnsupportedTableError if the target lacks columns or has a
    different key or clustering order, and ConfigurationError for columns that the source lacks.
    """

    def __init__(
        self,
        source: Table,
        target: Table,
        columns: Sequence[str] | None = None,
        *,
        config: ReadConfig | None = None,
        limit: int = 20,
    ) -> None:
        self._config = config or ReadConfig()
        self._limit = limit
        self._in_flight = InFlight()
        base = source.schema if columns is None else chosen(source.schema, columns)
        _check(base, target.schema)
        self._key = (*base.partition_key, *base.clustering)
        self._values = tuple(column for column in base.columns if not column.is_key)
        self._sources = [
            CqlRowSource(table.queries, _like(base, table.schema), tokens=True)
            for table in (source, target)
        ]

    def ranges(self) -> Iterator[ComparedRange]:
        """Compare the tables range by range, and yield each range when it has been compared.

        Rows written during the comparison may count as different. Raises errors of
        `cdc_reader.errors`.
        """
        cutter = RangeCutter(WHOLE_RING, (), _PAGES * self._config.fetch_size)
        with ThreadPoolExecutor(tuning.MOST_IN_FLIGHT, "cdc-compare") as workers:
            under_way: set[Future[ComparedRange]] = set()
            try:
                while True:
                    while len(under_way) < self._in_flight.limit and (tokens := cutter.next()):
                        under_way.add(workers.submit(self._compare, tokens))
                    if not under_way:
                        return
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    for compared in [each.result() for each in done]:
                        rows = max(compared.counts.source, compared.counts.target)
                        cutter.record(compared.tokens, rows)
                        yield compared
            finally:
                workers.shutdown(wait=False, cancel_futures=True)

    def _compare(self, tokens: TokenRange) -> ComparedRange:
        source, target = (self._in_flight.each(each.read(tokens)) for each in self._sources)
        comparison = RowComparison(source, target, self._key, self._values)
        differences = comparison.differences()
        first = tuple(islice(differences, self._limit))
        for _ in differences:
            pass
        return ComparedRange(tokens, comparison.counts, first)


def _check(source: TableSchema, target: TableSchema) -> None:
    if found := list(misfits(source, target)):
        raise UnsupportedTableError(
            f"table {target.name} cannot be compared with {source.name}: {', '.join(found)}"
        )
    there, order = clustering_order(target), clustering_order(source)
    if there != order:
        raise UnsupportedTableError(
            f"table {target.name} is in clustering order ({there}), so it cannot be compared with "
            f"{source.name}, which is in order ({order}): compare a copy WITH CLUSTERING ORDER BY "
            f"({order})"
        )


def _like(base: TableSchema, schema: TableSchema) -> TableSchema:
    """Return `schema` with only the columns of `base`, in the order of `base`."""
    there = {column.name: column for column in schema.columns}
    return evolve(schema, columns=tuple(there[column.name] for column in base.columns))

"""Converting pages to changes, compared with the driver's compiled parser and named tuples.

Changes compute their attributes on demand. `changes` reads only the keys, as every consumer does.
`changes_used` reads everything that a row of the log contains: each cell is part of an attribute.
Both keep all changes of a page in memory, as the driver keeps its rows. `changes_streamed` reads
the same as `changes_used` but keeps no change, like `CdcReader.changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from cassandra.query import named_tuple_factory

from cdc_reader.changes.change import Change
from cdc_reader.changes.grouping import Grouping
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Column, ColumnKind, LogSchema, TableSchema
from cdc_reader.decoding import decode
from tests.benchmarks.figure import Figure
from tests.benchmarks.pages import RecordedPage, flat_page
from tests.benchmarks.turns import take_turns

ROWS = 5_000
READ = {
    "changes": "keys read",
    "changes_used": "everything read",
    "changes_streamed": "everything read, nothing kept",
}
_KEY = {"pk": (ColumnKind.PARTITION_KEY, 0), "ck": (ColumnKind.CLUSTERING, 0)}


def figures(times: int) -> Iterator[Figure]:
    """Measure a page of a log with eleven columns."""
    page = flat_page(ROWS)
    schema, names = schema_of(page), [column.name for column in page.columns]
    ways: dict[str, Callable[[], object]] = {
        "driver": lambda: named_tuple_factory(names, page.by_driver()),
        "changes": lambda: [change.key for change in changes(page, schema)],
        "changes_used": lambda: [used(change) for change in changes(page, schema)],
        "changes_streamed": lambda: streamed(page, schema),
    }
    rates = {way: ROWS / turn.cpu for way, turn in take_turns(ways, 4 * times).items()}
    against = "the driver's compiled rows as named tuples"
    for name, note in READ.items():
        rivals = "rows/s of CPU", rates["driver"], against
        yield Figure(name, rates[name], *rivals, at_least=0.8, note=note)


def changes(page: RecordedPage, schema: LogSchema) -> list[Change]:
    """Return all changes of a page."""
    grouping = Grouping(schema)
    return grouping.feed(decode(page.received())) + grouping.finish()


def streamed(page: RecordedPage, schema: LogSchema) -> None:
    """Read the attributes of all changes of a page, one change at a time."""
    grouping = Grouping(schema)
    batch = decode(page.received())
    for change in chain(grouping.each(batch), grouping.finish()):
        used(change)


def data(change: Change) -> object:
    """Return what most handlers read: what was done to which row, and the row before and after."""
    return change.operation, change.key, change.deltas, change.before, change.after


def used(change: Change) -> object:
    """Return everything that the log contains about a change."""
    return (
        change.operation,
        change.key,
        change.deltas,
        change.before,
        change.after,
        change.time,
        change.timestamp,
        change.ttl,
        change.stream,
        change.seqs,
        change.complete,
    )


def schema_of(page: RecordedPage) -> LogSchema:
    """Return the schema of the page's log, whose base table is ks.t."""
    plain = (column for column in page.columns if not column.name.startswith("cdc$"))
    base = [Column(column.name, column.type, *_KEY.get(column.name, ())) for column in plain]
    return LogSchema(TableSchema(TableName("ks", "t"), tuple(base)), page.columns)

"""Reads partitions of a table again, as they are now: those of late rows, and those that expire.

A late row is older than rows that were delivered before it, and cannot be applied after them. The
table has already put all of them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from cdc_reader._time import Clock
from cdc_reader.changes.frames.changes import ChangesFormat
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.copies.rereading import Rereading
from cdc_reader.cql.schema import LogSchema
from cdc_reader.errors import TableAlteredError
from pyspark_scylla_cdc.options.errors import hide_traceback, with_remedy
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.schema import part_of
from pyspark_scylla_cdc.sessions import cluster_for, row_format, schema_of, table_of


def partitions_now(
    options: SourceOptions,
    schema: LogSchema,
    names: Collection[str],
    rows: Iterable[pa.RecordBatch],
    clock: Clock,
) -> Iterator[pa.RecordBatch]:
    """Yield for each partition of the late `rows` a delete, and then the rows that it has now.

    `rows` are rows of the log with the columns of the partition key. The delete and the rows have
    the present as their write time, so they count as newer than all settled changes.
    """
    key = schema.base.partition_key
    typed = ValueTypes.parse(options.format.decimal_type, schema.base).converter(key)
    keys = [batch.select([column.name for column in key]) for batch in rows]
    if keys:
        rereading, logged = _rereading(options, schema, names, clock), pa.concat_batches(keys)
        yield from rereading.partitions(typed(logged), rereading.tokens(logged))


def rereader(
    options: Mapping[str, str], names: Sequence[str], key: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function, for executors, that reads partitions again.

    It takes batches with the columns `key` of the partition key and then the horizon, under any
    names, and returns changes with the columns `names`, numbered; see `Rereading.partitions`.
    """
    numbered = [f"c{place}" for place in range(len(names))]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parsed = SourceOptions.parse(options)
        for batch in batches:
            if not batch.num_rows:
                continue
            with hide_traceback(), with_remedy():
                clock, schema = cluster_for(parsed).clock, schema_of(parsed)
                _refuse_altered(parsed, schema, names)
                rereading = _rereading(parsed, schema, names, clock)
                keys = batch.select(range(len(key))).rename_columns(key)
                horizons = batch.column(len(key)).to_pylist()
                for rows in rereading.partitions(keys, rereading.tokens(keys), horizons):
                    yield rows.rename_columns(numbered)

    return read


def _refuse_altered(options: SourceOptions, schema: LogSchema, names: Collection[str]) -> None:
    """Raise TableAlteredError if the table has other columns than the changes."""
    known = {*row_format(options, schema).schema.names}
    if changed := sorted(known.symmetric_difference(names)):
        raise TableAlteredError(
            f"{options.table}: the columns {', '.join(changed)} were added or dropped while the "
            "query ran: start the query again"
        )


def _rereading(
    options: SourceOptions, schema: LogSchema, names: Collection[str], clock: Clock
) -> Rereading:
    output = row_format(options, schema)
    assert isinstance(output, ChangesFormat)  # noqa: S101 - the options are those of a copy
    wanted = part_of(output.schema, names)
    return Rereading(table_of(options), schema, output, wanted, options.read, clock)

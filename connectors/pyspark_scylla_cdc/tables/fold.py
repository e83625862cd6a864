"""Folds changes into the rows of a table that result from them, on the executors."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

import cdc_reader as cdc
from cdc_reader.changes.folding.events import NEEDED_COLUMNS
from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.columns import OwnNames
from cdc_reader.errors import ConfigurationError, SchemaError
from pyspark_scylla_cdc.tables.layout import Layout, column, layout_of
from pyspark_scylla_cdc.tables.row_updates import (
    as_row_changes,
    by_partition,
    check_ranges,
    named_since,
    split,
    table_of,
)


def fold(changes: DataFrame, *, onto: DataFrame | None = None) -> DataFrame:
    """Return the rows that remain after all of `changes` are applied.

    `changes` are of format ``changes``, read with ``includeDelta``. The result has the base table's
    columns that they contain. Each column has the value with the newest write timestamp, regardless
    of the table's images and of the order in which writes arrived. The exceptions are two values of
    one cell with the same timestamp, collections whose elements are written concurrently or with
    explicit timestamps, and expired cells.

    A row is absent if the last change to it is a delete of the row, of its partition, or of a range
    that contains it (``rangeDeletes=emit``). Of two changes in the same microsecond, a delete or a
    null counts as the last, as on the server. A static column appears in each row of its partition,
    or in a separate row if the partition has no other rows.

    In CQL, a row whose columns are all null exists only if an INSERT created it. A row left without
    values is therefore kept only if one of `changes` inserted it. Rows of `onto` and of a snapshot
    count as inserted, because a SELECT does not show how they were created. With option
    ``columns``, a row that was not inserted and has values only in columns that are not read is
    dropped.

    A `snapshot_begin` (``onDataLoss=resnapshot``) drops all earlier rows and changes, including the
    rows of `onto`. The rows of the snapshot follow, possibly in several micro-batches.

    Changes with a `_bad_record` are left out, so a row keeps its last values that could be
    converted. However, a delete is applied if its key could be converted.

    `onto` contains the table's rows before these changes, such as an earlier result in
    ``foreachBatch``. Its rows count as older than all of `changes`. A late row
    (``lateRows=deliver``) may be older than they are, and would overwrite newer values: use
    ``lateRows=reread``.

    Spark shuffles the changes and the rows of `onto` once, by the partition key, which the schema's
    metadata from ``load()`` names. A partition of the shuffle must fit in the memory of a Python
    worker: set ``spark.sql.shuffle.partitions``.

    Raises SchemaError if columns or the metadata are missing, if names differ only in case, if the
    key contains a map, or if a clustering column contains decimals as text, and ConfigurationError
    if `changes` are a stream outside ``foreachBatch``. The query ends with an error if it meets a
    change that was made before a key column was renamed, or a deleted range in a table with a
    clustering column of a user-defined type or a vector.
    """
    layout, table = _layout(changes), table_of(changes.schema)
    named = named_since(changes.schema)

    def rows(given: pa.Table) -> pa.Table:
        events, there = split(given)
        check_ranges(table, events, named)
        return cdc.fold(table, events, there)

    given = changes
    if onto is not None:
        for name in _missing(onto, layout.key):
            raise SchemaError(
                f"the DataFrame has no column {name}: onto are the rows of a copy, with the whole "
                "key"
            )
        there = as_row_changes(onto, layout.schema, sf.lit(True).alias(names.INSERTED))
        given = changes.unionByName(there, allowMissingColumns=True)
    if changes.schema[names.CHANGE_TYPE].metadata.get("cql.marks") == "true":
        given = _since_last_snapshot(given)
    return by_partition(given, layout, rows, layout.schema, in_partitions=True)


def _layout(changes: DataFrame) -> Layout:
    """Return the columns of the result. Raises ConfigurationError or SchemaError for other rows."""
    if changes.isStreaming:
        remedy = "call it in foreachBatch, for the changes of one micro-batch"
        raise ConfigurationError("changes", "a stream, which fold cannot use", remedy)
    for name in _missing(changes, NEEDED_COLUMNS):
        raise SchemaError(
            f"the DataFrame has no column {name}: changes have format 'changes', and are read with "
            "includeDelta 'true'"
        )
    for field in changes.schema:
        if field.name not in names.ALL and "cql.kind" not in field.metadata:
            raise SchemaError(
                f"the DataFrame does not say what {field.name} is in the table: fold what load() "
                "returns, or what select and where make of it, whose columns have their metadata"
            )
    return layout_of(changes, spark=changes.sparkSession)


def _missing(rows: DataFrame, wanted: Iterable[str]) -> list[str]:
    return [name for name in wanted if name not in rows.columns]


def _since_last_snapshot(changes: DataFrame) -> DataFrame:
    """Return the changes since the last new snapshot began, or all if there is none.

    The changes are read once: a read without an end would end at another moment in each scan, and
    the result could contain a change without an earlier one.
    """
    changes = changes.localCheckpoint(eager=False)
    name = OwnNames.beside(changes.columns).own("since")
    since = column(name)
    is_begin = column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN
    time = column(names.COMMIT_TIMESTAMP)
    begun = changes.agg(sf.max(sf.when(is_begin, time)).alias(name))
    marked = changes.crossJoin(sf.broadcast(begun))
    return marked.where((since.isNull() | (time >= since)) & ~is_begin).drop(name)

"""Merges a micro-batch of a table's changes into its copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import cast

import pyarrow as pa
from attrs import evolve
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cdc_reader._time import Micros
from cdc_reader.changes.frames import columns as names
from pyspark_scylla_cdc.tables.buckets import wanted
from pyspark_scylla_cdc.tables.expiry import Expiry, deletes, like
from pyspark_scylla_cdc.tables.history import version_updates
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, Layout, column
from pyspark_scylla_cdc.tables.row_updates import (
    RowsNeeded,
    first_rows,
    row_updates,
    table_of,
)
from pyspark_scylla_cdc.tables.sink import MicroBatch, Sink, has, present_rows


def update(
    sink: Sink,
    layout: Layout,
    changes: DataFrame,
    batch: MicroBatch,
    expected: Callable[[], int] = lambda: 0,
    expiry: Expiry | None = None,
) -> None:
    """Merge a micro-batch into the copy, unless the copy already contains it.

    `expected` returns the number of rows that the copy will have after its first snapshot. With
    `expiry`, rows and values that have expired go from the copy.
    """
    if has(sink, batch, changes.sparkSession):
        return
    sink.add_columns(layout)  # only now, because `has` rejects a copy of another table
    if layout.bucket is not None:
        if batch.number == 0 and (count := wanted(expected())) > 1:
            sink.set_buckets(count, changes.sparkSession)
        layout = evolve(layout, buckets=sink.buckets())
    if expiry is not None:
        changes = expiry.with_expired(sink, layout, changes, batch)
    is_read_again = batch.snapshot is None and (layout.history or layout.statics)
    with _kept(changes) if is_read_again or _has_marks(changes) else nullcontext():
        first = _write(sink, layout, changes, batch)
    if expiry is not None:
        expiry.committed(first)


def _write(sink: Sink, layout: Layout, changes: DataFrame, batch: MicroBatch) -> Micros | None:
    """Write a micro-batch; return when the first of its values expires, see `Sink.commit`."""
    begun, spark = _begun_anew(changes), changes.sparkSession
    if batch.snapshot is not None and begun is None:
        return sink.append(batch, layout, first_rows(changes, layout, batch.snapshot))
    if begun is None and not layout.history:
        return _merge(sink, layout, changes, batch)
    if begun is None:
        there = _touched(sink, layout, changes)
    else:
        there = present_rows(sink, layout, spark)
        changes = _replacing_all(layout, changes, there, begun)
    if layout.history:
        updates = version_updates(changes, layout, there.where(column(IS_CURRENT)))
    else:
        updates = row_updates(changes, layout, there)
    return sink.commit(batch, layout, updates, spark)


def _merge(sink: Sink, layout: Layout, changes: DataFrame, batch: MicroBatch) -> Micros | None:
    """Update the rows that changes touch; read the copy only for the partitions that need it."""
    spark = changes.sparkSession
    updates = sink.few.row_updates(changes, layout)
    try:
        found = row_updates(changes, layout) if updates is None else updates
        return sink.commit(batch, layout, found, spark)
    except RowsNeeded as needed:
        partitions = needed.partitions
        if isinstance(partitions, pa.Table):
            partitions = spark.createDataFrame(partitions)
        rows = _rows_in(sink, layout, partitions, needed.buckets)
        return sink.commit(batch, layout, row_updates(changes, layout, rows), spark)


def _touched(sink: Sink, layout: Layout, changes: DataFrame) -> DataFrame:
    """Return the rows of the copy in the partitions that changes touch."""
    partitions = changes.select(*map(column, layout.partition)).distinct()
    if layout.bucket is None:
        return _rows_in(sink, layout, partitions, None)
    found = layout.placed(partitions).select(column(layout.bucket)).distinct().collect()
    return _rows_in(sink, layout, partitions, {number for (number,) in found})


def _rows_in(
    sink: Sink, layout: Layout, partitions: DataFrame, buckets: Collection[int] | None
) -> DataFrame:
    """Return the rows of the copy in these partitions, which are in these buckets."""
    there = present_rows(sink, layout, partitions.sparkSession, buckets)
    return there.join(partitions, [*layout.partition], "left_semi")


def _begun_anew(changes: DataFrame) -> Micros | None:
    """Return the time (µs) of the last new snapshot, which replaces all rows of the copy."""
    if not _has_marks(changes):
        return None
    marks = changes.where(column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN)
    found = marks.agg(sf.max(sf.unix_micros(names.COMMIT_TIMESTAMP))).head()
    return None if found is None else cast("Micros | None", found[0])


def _replacing_all(
    layout: Layout, changes: DataFrame, there: DataFrame, begun: Micros
) -> DataFrame:
    """Return the changes since a new snapshot began, after deletes of all partitions."""
    is_wide = bool(table_of(changes.schema).clustering)
    kind = "delete_partition" if is_wide else "delete"
    partitions = there.select(*map(column, layout.partition)).distinct()
    gone = deletes(changes, partitions, kind, sf.lit(begun - 1))
    is_mark = column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN
    since = changes.where(~is_mark & (sf.unix_micros(names.COMMIT_TIMESTAMP) >= begun))
    return like(changes, since.unionByName(gone))


def _has_marks(changes: DataFrame) -> bool:
    """Return whether the query may take new snapshots, whose beginnings are changes."""
    return changes.schema[names.CHANGE_TYPE].metadata.get("cql.marks") == "true"


@contextmanager
def _kept(changes: DataFrame) -> Iterator[None]:
    """Let Spark keep changes that are read several times."""
    changes.persist()
    try:
        yield
    finally:
        changes.unpersist()

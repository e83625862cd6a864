"""Merges a micro-batch of a table's changes into its copy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext

from attrs import evolve
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cdc_reader._time import Micros
from cdc_reader.changes.frames import columns as names
from pyspark_scylla_cdc.tables.buckets import wanted
from pyspark_scylla_cdc.tables.expiry import Expiry
from pyspark_scylla_cdc.tables.fold import Fold
from pyspark_scylla_cdc.tables.history import versions
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, VALID_FROM, VALID_TO, Layout
from pyspark_scylla_cdc.tables.ranges import column
from pyspark_scylla_cdc.tables.row_updates import RowsNeeded, folded_rows, replaced, row_updates
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
            sink.set_buckets(count)
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
    begins_anew = _begins_anew(changes)
    if batch.snapshot is not None and not begins_anew:
        rows = layout.placed(_first_rows(layout, changes, batch.snapshot))
        return sink.append(batch, layout, rows)
    if layout.history or begins_anew:
        before = (
            present_rows(sink, layout, changes.sparkSession)
            if begins_anew
            else _touched(sink, layout, changes)
        )
        return sink.commit(batch, layout, layout.placed(_replacing(layout, changes, before)))
    return _merge(sink, layout, changes, batch)


def _merge(sink: Sink, layout: Layout, changes: DataFrame, batch: MicroBatch) -> Micros | None:
    """Update the rows that changes touch; read the copy only for the partitions that need it."""
    try:
        return sink.commit(batch, layout, layout.placed(row_updates(changes, layout)))
    except RowsNeeded as needed:
        rows = _rows_in(sink, layout, needed.partitions, needed.buckets)
        return sink.commit(batch, layout, layout.placed(row_updates(changes, layout, rows)))


def _first_rows(layout: Layout, changes: DataFrame, position: Micros) -> DataFrame:
    """Return the rows of a snapshot as rows of the copy."""
    rows = folded_rows(changes, layout)
    if not layout.history:
        return rows
    current = {
        VALID_FROM: sf.timestamp_micros(sf.lit(position)),
        VALID_TO: sf.lit(None).cast("timestamp"),
        IS_CURRENT: sf.lit(True),
    }
    return rows.withColumns(current).select(*map(column, layout.row.names))


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


def _replacing(layout: Layout, changes: DataFrame, before: DataFrame) -> DataFrame:
    """Return updates that replace the rows `before`, of which only current versions change."""
    if layout.history:
        before = before.where(column(IS_CURRENT))
    after = (
        versions(changes, before, layout.state)
        if layout.history
        else Fold(changes, state=layout.state).result(before)
    )
    return replaced(layout, before, after)


def _begins_anew(changes: DataFrame) -> bool:
    """Return whether these changes begin a new snapshot, which replaces all rows of the copy."""
    if not _has_marks(changes):
        return False
    return not changes.where(column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN).isEmpty()


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

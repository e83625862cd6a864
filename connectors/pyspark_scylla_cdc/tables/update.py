"""Merges a micro-batch of a table's changes into its copy."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from cdc_reader._time import Micros
from cdc_reader.changes.frames import columns as names
from cdc_reader.cql.names import without_case
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.tables.differences import fitted
from pyspark_scylla_cdc.tables.fold import Fold
from pyspark_scylla_cdc.tables.history import versions
from pyspark_scylla_cdc.tables.keys import refuse_equal_names, refuse_keys
from pyspark_scylla_cdc.tables.ranges import column
from pyspark_scylla_cdc.tables.row_updates import NEEDED, folded_rows, row_updates
from pyspark_scylla_cdc.tables.sink import (
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    VERSION,
    Layout,
    MicroBatch,
    Sink,
    has,
    replaced,
)


def layout_of(changes: DataFrame, *, history: bool = False) -> Layout:
    """Return the layout of a copy, from the schema of a table's changes.

    Raises ConfigurationError if the table has a column whose name the history needs, and
    SchemaError if Spark cannot compare its keys.
    """
    fields = [each for each in changes.schema if each.name not in names.ALL]
    kinds = {each.name: each.metadata.get("cql.kind") for each in fields}
    plain = [StructField(each.name, each.dataType) for each in fields]
    partition, clustering = (
        [name for name, found in kinds.items() if found == kind]
        for kind in ("partition_key", "clustering")
    )
    refuse_equal_names(fields)
    refuse_keys(field for field in fields if field.name in {*partition, *clustering})
    statics = [name for name, found in kinds.items() if found == "static" and clustering]
    if not history:
        return Layout(StructType(plain), partition, clustering, statics)
    if taken := [name for name in kinds if without_case(name) in VERSION]:
        remedy = (
            f"the table has a column {taken[0]}, a name that the history needs: leave history out"
        )
        raise ConfigurationError("history", history, remedy)
    types = {VALID_FROM: TimestampType(), VALID_TO: TimestampType(), IS_CURRENT: BooleanType()}
    plain += [StructField(name, types[name]) for name in VERSION]
    return Layout(StructType(plain), partition, [*clustering, VALID_FROM], statics, history)


def update(sink: Sink, layout: Layout, changes: DataFrame, batch: MicroBatch) -> None:
    """Merge a micro-batch into the copy, unless the copy already contains it."""
    if has(sink, batch, changes.sparkSession):
        return
    sink.add_columns(layout)  # only now, because `has` rejects a copy of another table
    changes.persist()  # changes may be folded again
    try:
        begins_anew = _begins_anew(changes)
        if batch.snapshot is not None and not begins_anew:
            sink.append(batch, _first_rows(layout, changes, batch.snapshot))
        elif layout.history or begins_anew:
            before = _there(sink, layout, changes)
            if not begins_anew:
                before = _rows_in(_touched(layout, changes), before, layout)
            sink.commit(batch, layout, _replacing(layout, changes, before))
        else:
            _upsert(sink, layout, changes, batch)
    finally:
        changes.unpersist()


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
    return rows.withColumns(current).select(*map(column, layout.stored.names))


def _upsert(sink: Sink, layout: Layout, changes: DataFrame, batch: MicroBatch) -> None:
    """Update the rows that changes touch; read the copy only for the partitions that need it."""
    if layout.statics:
        rows = _rows_in(_touched(layout, changes), _there(sink, layout, changes), layout)
        sink.commit(batch, layout, row_updates(changes, layout, rows))
        return
    updates = row_updates(changes, layout).persist()
    try:
        needed = updates.where(column(layout.kind) == NEEDED).select(*map(column, layout.partition))
        if needed.count():
            rows = _rows_in(needed.distinct(), _there(sink, layout, changes), layout)
            sink.commit(batch, layout, row_updates(changes, layout, rows))
        else:
            sink.commit(batch, layout, updates)
    finally:
        updates.unpersist()


def _touched(layout: Layout, changes: DataFrame) -> DataFrame:
    """Return the keys of the partitions that changes touch."""
    return changes.select(*map(column, layout.partition)).distinct()


def _rows_in(partitions: DataFrame, there: DataFrame, layout: Layout) -> DataFrame:
    """Return the rows in these partitions."""
    return there.join(partitions, [*layout.partition], "left_semi")


def _there(sink: Sink, layout: Layout, changes: DataFrame) -> DataFrame:
    """Return the rows of the copy with the columns of the layout."""
    rows = sink.rows(changes.sparkSession)
    columns = fitted(rows, layout.stored)
    return rows.select(*(each.alias(name) for name, each in columns.items()))


def _replacing(layout: Layout, changes: DataFrame, before: DataFrame) -> DataFrame:
    """Return updates that replace the rows `before`, of which only current versions change."""
    if layout.history:
        before = before.where(column(IS_CURRENT))
    after = (
        versions(changes, before, layout.marker)
        if layout.history
        else Fold(changes, marker=layout.marker).result(before)
    )
    return replaced(layout, before, after)


def _begins_anew(changes: DataFrame) -> bool:
    """Return whether these changes begin a new snapshot, which replaces all rows of the copy."""
    kind = changes.schema[names.CHANGE_TYPE]
    if kind.metadata.get("cql.marks") != "true":
        return False
    return not changes.where(column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN).isEmpty()

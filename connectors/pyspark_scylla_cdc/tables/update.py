"""Merges a micro-batch of a table's changes into its copy."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from cdc_reader.changes.frames import columns as names
from cdc_reader.cql.names import without_case
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.tables.differences import fitted
from pyspark_scylla_cdc.tables.fold import Fold
from pyspark_scylla_cdc.tables.history import versions
from pyspark_scylla_cdc.tables.keys import refuse_equal_names, refuse_keys
from pyspark_scylla_cdc.tables.ranges import column, quoted
from pyspark_scylla_cdc.tables.sink import (
    IS_CURRENT,
    VALID_FROM,
    VALID_TO,
    VERSION,
    Layout,
    MicroBatch,
    Sink,
    has,
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
    if not history:
        return Layout(StructType(plain), partition, clustering)
    if taken := [name for name in kinds if without_case(name) in VERSION]:
        remedy = (
            f"the table has a column {taken[0]}, a name that the history needs: leave history out"
        )
        raise ConfigurationError("history", history, remedy)
    types = {VALID_FROM: TimestampType(), VALID_TO: TimestampType(), IS_CURRENT: BooleanType()}
    plain += [StructField(name, types[name]) for name in VERSION]
    return Layout(StructType(plain), partition, [*clustering, VALID_FROM], history)


def update(sink: Sink, layout: Layout, changes: DataFrame, batch: MicroBatch) -> None:
    """Merge a micro-batch into the copy, unless the copy already contains it."""
    if has(sink, batch, changes.sparkSession):
        return
    sink.add_columns(layout)  # only now, because `has` rejects a copy of another table
    changes.persist()  # each fold reads the changes more than once
    try:
        touched = changes.select(*map(quoted, layout.partition)).distinct()
        rows = sink.rows(changes.sparkSession)
        columns = fitted(rows, layout.stored)
        there = rows.select(*(each.alias(name) for name, each in columns.items()))
        if layout.history:
            there = there.where(column(IS_CURRENT))
        before = there.join(touched, [*layout.partition], "left_semi")
        if _begins_anew(changes):
            before = there
        after = (
            versions(changes, before, layout.marker)
            if layout.history
            else Fold(changes, marker=layout.marker).result(before)
        )
        sink.commit(batch, layout, before, after)
    finally:
        changes.unpersist()


def _begins_anew(changes: DataFrame) -> bool:
    """Return whether these changes begin a new snapshot, which replaces all rows of the copy."""
    kind = changes.schema[names.CHANGE_TYPE]
    if kind.metadata.get("cql.marks") != "true":
        return False
    return not changes.where(column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN).isEmpty()

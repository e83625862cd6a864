"""Copies with history: updates of versions of rows, which `cdc_reader` finds on the executors."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from cdc_reader.changes.folding.history import versions
from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.merging import mergeable
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, VALID_TO, VERSION, Layout
from pyspark_scylla_cdc.tables.row_updates import (
    by_partition,
    check_ranges,
    named_since,
    split,
    table_of,
    with_rows,
)


def version_updates(changes: DataFrame, layout: Layout, current: DataFrame) -> DataFrame:
    """Return the updates of versions that follow from `changes`; see `versions`.

    `current` are the current versions in the partitions that changes touch. The result has the
    stored columns, and `layout.flags`.
    """
    given = with_rows(changes, current, layout)
    table, columns = table_of(changes.schema), layout.columns
    named = named_since(changes.schema)

    def fold(given: pa.Table) -> pa.Table:
        events, there = split(given)
        check_ranges(table, events, named)
        found = versions(table, events.drop_columns([*VERSION]), there)
        sets = pa.array([columns.values] * len(found), pa.list_(pa.string()))
        found = found.append_column(IS_CURRENT, found.column(VALID_TO).is_null())
        return mergeable(columns, found.append_column(names.MODIFIED, sets))

    return by_partition(given, layout, fold, StructType([*layout.row, *layout.flags]))

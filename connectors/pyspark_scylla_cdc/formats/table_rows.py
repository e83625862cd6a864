"""Rows of the base table in the form that changes have: static columns in rows of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader.schema import Column, ColumnKind, TableSchema
from pyspark_scylla_cdc.formats.arrays import Mask, booleans, valid
from pyspark_scylla_cdc.formats.row_changes import clustering_of


def table_rows(
    batches: Iterable[pa.RecordBatch], base: TableSchema
) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """The rows, and whether they are static ones; each partition's lie side by side in `batches`.

    A ``SELECT`` shows static columns in every row of a partition, or in one without a
    clustering key if there is no other.
    """
    statics = [column.name for column in base.columns if column.kind is ColumnKind.STATIC]
    key = clustering_of(base)
    before: pa.RecordBatch | None = None
    for batch in batches:
        if not (statics and key):
            yield batch, False
            continue
        first = _first_of_partition(batch, before, base)
        told = np.any([valid(batch.column(name)) for name in statics], axis=0)
        regular = [c.name for c in base.columns if c.kind is ColumnKind.REGULAR]
        shown = _without(batch.filter(pa.array(first & told)), [*regular, *_names(key)])
        is_row = batch.column(key[0].name).is_valid()
        for rows, is_static in ((shown, True), (_without(batch.filter(is_row), statics), False)):
            if rows.num_rows:
                yield rows, is_static
        before = batch.slice(batch.num_rows - 1)


def _first_of_partition(
    batch: pa.RecordBatch, before: pa.RecordBatch | None, base: TableSchema
) -> Mask:
    """Which rows begin a partition; `before` is the row ahead of the batch, if there is one."""
    joined = batch if before is None else pa.concat_batches([before, batch])
    key = [c.name for c in base.columns if c.kind is ColumnKind.PARTITION_KEY]
    other = np.zeros(joined.num_rows - 1, bool)
    for name in key:
        column = joined.column(name)
        other |= booleans(pc.not_equal(column[1:], column[:-1]))
    return other if before is not None else np.concatenate([[True], other])


def _without(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """The batch with nulls in these columns."""
    for name in names:
        place = batch.schema.get_field_index(name)
        nulls = pa.nulls(batch.num_rows, batch.schema.field(place).type)
        batch = batch.set_column(place, batch.schema.field(place), nulls)
    return batch


def _names(columns: Iterable[Column]) -> list[str]:
    return [column.name for column in columns]

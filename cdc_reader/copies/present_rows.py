"""Reads the rows that a copy has in some partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.types as arrow

from cdc_reader._arrow import to_arrow
from cdc_reader.changes.folding.events import groups_of_both
from cdc_reader.changes.folding.keys import flat
from cdc_reader.copies.columns import CopyColumns
from cdc_reader.copies.row_state import with_states

if TYPE_CHECKING:
    from deltalake import DeltaTable


def present_rows(table: DeltaTable, columns: CopyColumns, partitions: pa.Table) -> pa.Table | None:
    """Return the copy's rows in these partitions, as `fold` returns rows."""
    if not partitions.num_rows:
        return None
    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    dataset = table.to_pyarrow_dataset(parquet_read_options=options)
    wanted = {name: ds.field(name) for name in columns.row}  # a list would split names at dots
    scanner = dataset.scanner(
        wanted, filter=_may_be_in(partitions), batch_readahead=4, fragment_readahead=1
    )
    found = [_only(batch, partitions) for batch in scanner.to_batches() if batch.num_rows]
    rows = pa.concat_tables(found) if found else dataset.schema.empty_table().select(columns.row)
    return with_states(rows, columns.state)


def _may_be_in(partitions: pa.Table) -> ds.Expression | None:
    """Return a condition that rows of the partitions meet, so that files can be skipped."""
    found: ds.Expression | None = None
    for field in partitions.schema:
        if arrow.is_nested(field.type) or arrow.is_floating(field.type):
            continue  # `isin` compares no nested values, and no NaN
        own = ds.field(field.name)
        if arrow.is_string(field.type) or arrow.is_binary(field.type):
            # A merge writes text and blobs as views, with which pyarrow compares no statistics.
            own = own.cast(field.type)
        its = own.isin(flat(partitions.column(field.name)).unique())
        found = its if found is None else found & its
    return found


def _only(batch: pa.RecordBatch, partitions: pa.Table) -> pa.Table:
    """Return the rows of the batch that are in the partitions."""
    rows = pa.table(batch)
    wanted, found = groups_of_both(partitions, rows.select(partitions.schema.names))
    return rows.filter(to_arrow(np.isin(found, wanted)))

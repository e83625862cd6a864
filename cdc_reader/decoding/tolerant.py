"""Decodes pages tolerantly: a cell that cannot be decoded is null, and is recorded as a fault."""

from __future__ import annotations

import pyarrow as pa

from cdc_reader import decoding
from cdc_reader.cql.schema import DELETED_PREFIX, OWN_PREFIX, Column
from cdc_reader.decoding.arrow_type import arrow_schema
from cdc_reader.decoding.cells import build
from cdc_reader.decoding.faults import Fault, failing, with_faults
from cdc_reader.decoding.page import Page
from cdc_reader.decoding.python import array_of, cut
from cdc_reader.decoding.scalars import Cells
from cdc_reader.errors import ColumnDecodeError, DecodeError

_Found = dict[int, list[Fault]]


def decode_tolerantly(page: Page) -> pa.RecordBatch:
    """Decode the rows of a page, with their `FAULTS`.

    Raises DecodeError for a page that cannot be cut into rows, and for bad values in the log's
    metadata columns, without which a row cannot be identified.
    """
    try:
        return with_faults(decoding.decode(page), {})
    except ColumnDecodeError:
        return _with_nulls(page)


def _with_nulls(page: Page) -> pa.RecordBatch:
    """Decode a page with bad cells; only such pages are decoded by the slower kernel."""
    columns, found = page.columns, _Found()
    cells = cut(page.body, page.metadata.rows_offset, len(columns))
    arrays = [_array(*pair, found) for pair in zip(columns, cells, strict=True)]
    return with_faults(pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns)), found)


def _array(column: Column, cells: Cells, found: _Found) -> pa.Array:
    """Build the array of a column, with null for bad cells; add these cells to `found`."""
    try:
        return array_of(column, cells)
    except ColumnDecodeError:
        if _is_own(column):
            raise
    good = list(cells)
    for row in failing(len(cells), lambda a, b: build(column.type, cells[a:b]), DecodeError):
        raw, good[row] = cells[row] or b"", None
        reason = f"column {column.name} holds {len(raw)} bytes that are no {column.type} for Arrow"
        found.setdefault(row, []).append(Fault(column.name, reason, f"0x{raw.hex()}"))
    return array_of(column, good)


def _is_own(column: Column) -> bool:
    """Return True for a column that every log has; other columns come from the base table."""
    name = column.name
    return name.startswith(OWN_PREFIX) and not name.startswith(DELETED_PREFIX)

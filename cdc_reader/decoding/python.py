"""The kernel in pure Python.

`decode` cuts rows into cells once, then builds one column at a time. A column of fixed-width values
takes one join and one byte swap. Text and blobs are passed to Arrow unchanged. A nested column is
flattened into offsets, nulls and its parts' cells, and the parts are built as columns. A cell is
its value's bytes, or None for null.

`objects` contains the rest of the kernel: Python objects made from the columns.
"""

from __future__ import annotations

import struct
import uuid

import pyarrow as pa

from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import Column
from cdc_reader.decoding.arrow_type import arrow_schema
from cdc_reader.decoding.cells import build
from cdc_reader.decoding.objects import (
    Entries,
    Entry,
    Field,
    GivenField,
    Mappings,
    Objects,
    Tuples,
    Wrapper,
    blobs,
    entry,
    uuids,
    values,
)
from cdc_reader.decoding.page import Page
from cdc_reader.decoding.scalars import Cells
from cdc_reader.errors import ColumnDecodeError, DecodeError

__all__ = [
    "Entries",
    "Entry",
    "Field",
    "GivenField",
    "Mappings",
    "Objects",
    "Tuples",
    "Wrapper",
    "blobs",
    "decode",
    "entry",
    "micros_of",
    "uuids",
    "values",
]

_LENGTH = struct.Struct(">i").unpack_from


def decode(page: Page) -> pa.RecordBatch:
    """Decode the rows of a page, according to the page's columns.

    A zero-length cell becomes null if its type, such as int, has no empty value. Raises DecodeError
    for bytes that do not match the columns.
    """
    columns = page.columns
    parts = cut(page.body, page.metadata.rows_offset, len(columns))
    arrays = [array_of(column, cells) for column, cells in zip(columns, parts, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def cut(body: bytes, offset: int, width: int) -> list[Cells]:
    """Return the cells of each of `width` columns; the row count is at `offset`.

    This is one flat loop, because most of the time to decode a page is spent here. Raises
    DecodeError if the bytes do not end with the last row.
    """
    end = len(body)
    if offset + 4 > end:
        raise DecodeError("the result ends before its row count")
    rows = int.from_bytes(body[offset : offset + 4], "big", signed=True)
    position = offset + 4
    if rows < 0 or rows * width * 4 > end - position:
        raise DecodeError(f"the result has {end - position} bytes, too few for {rows} rows")
    cells: Cells = []
    for _ in range(rows * width):
        start = position + 4
        if start > end:
            raise DecodeError(f"the result ends at {end}, within the length of a value")
        (length,) = _LENGTH(body, position)
        position = start + length if length > 0 else start
        if position > end:
            raise DecodeError(f"a value of {length} bytes at offset {start} ends beyond {end}")
        cells.append(body[start:position] if length >= 0 else None)
    if position != end:
        raise DecodeError(f"the result has {end - position} bytes after its last row")
    return [cells[column::width] for column in range(width)]


def array_of(column: Column, cells: Cells) -> pa.Array:
    """Build the array of a column's cells; raise ColumnDecodeError, which names the column."""
    try:
        return build(column.type, cells)
    except DecodeError as error:
        message = f"column {column.name} of type {column.type}: {error}"
        raise ColumnDecodeError(message) from error


def micros_of(times: pa.Array) -> pa.Array:
    """Return the microseconds since 1970 (int64) of each UUID; for `cdc$time`, the write times.

    Raises ValueError for a null, and for text that is not a UUID. The compiled kernel may accept
    some text that is not a UUID, because it reads only the digits of the time.
    """
    if times.type != pa.string() or times.null_count:
        raise ValueError(f"expected texts, found {times.null_count} nulls among {times.type}")
    micros = (timeuuid.micros(uuid.UUID(text).bytes) for text in times.to_pylist())
    return pa.array(micros, pa.int64())

# cython: language_level=3, binding=False, cdivision=True, embedsignature=False
"""The compiled kernel: cuts rows into cells once, then builds one column at a time.

This kernel works like the Python kernel, but on C arrays and without the interpreter lock. A run of
cells (the start of each value in the body, and its length) becomes one Arrow array, and a nested
run becomes runs of its parts. Arrays are exported through Arrow's C data interface, which needs no
part of Arrow to compile and is stable across Arrow's versions. One call exports a page.

Two rules keep the kernel safe. No byte is read through a pointer before its cell's bounds have been
checked against the body or the enclosing cell. An array owns its memory from the start, so
releasing the root array frees everything, even after an error.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from functools import lru_cache

import pyarrow as pa

from cdc_reader.cql.types import ListType, MapType, Native, SetType, UserType, VectorType
from cdc_reader.errors import ColumnDecodeError, DecodeError
from cdc_reader.decoding.arrow_type import arrow_schema, fields_of
from cdc_reader.decoding.cells import fixed_width
from cdc_reader.decoding.scalars import decimal_text, varint_text
from cdc_reader.cql.timeuuid import UNIX_EPOCH_TICKS

include "native/refusals.pxi"
include "native/cells.pxi"
include "native/growing.pxi"
include "native/array.pxi"
include "native/shape.pxi"
include "native/fixed.pxi"
include "native/text.pxi"
include "native/forms.pxi"
include "native/numerals.pxi"
include "native/nested.pxi"
include "native/page.pxi"
include "native/values.pxi"
include "native/objects.pxi"
include "native/times.pxi"


def decode(page):
    """Decode the rows of a page; see `cdc_reader.decoding.python.decode`."""
    cdef Plan plan = _plan(page.columns)
    return plan.batch(page.body, page.metadata.rows_offset)

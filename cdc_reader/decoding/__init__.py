"""Decodes the bytes of a ROWS result to Arrow, and makes Python objects from the Arrow data.

Decoding creates no Python objects for cells; the object of a cell is made only when the cell is
read. The interface is `decode`, `micros_of` and the names in `objects`. There are two equivalent
implementations, called kernels: the compiled `_native`, and the slower `python`. The compiled
kernel is used if it was built, unless the environment variable ``CDC_READER_KERNEL`` selects the
other kernel. `NAME` is the name of the kernel in use, ``"cython"`` or ``"python"``.

This package may import `cql` and the packages below it. Begin with `python`, which is easier to
read than `_native`; `metadata` and `arrow_type` determine the types of the columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_reader.decoding.arrow_type import arrow_schema, arrow_type
from cdc_reader.decoding.choice import VARIABLE, choose, warn_if_not_compiled
from cdc_reader.decoding.metadata import ResultMetadata, parse_metadata
from cdc_reader.decoding.page import Page

__all__ = [
    "NAME",
    "Entries",
    "Entry",
    "Field",
    "GivenField",
    "Mappings",
    "Objects",
    "Page",
    "ResultMetadata",
    "Tuples",
    "Wrapper",
    "arrow_schema",
    "arrow_type",
    "blobs",
    "decode",
    "entry",
    "micros_of",
    "parse_metadata",
    "uuids",
    "values",
    "warn_if_slow",
]

NAME, _kernel = choose(os.environ.get(VARIABLE))
decode: Callable[[Page], pa.RecordBatch] = _kernel.decode
"""Decode the rows of a page; see `cdc_reader.decoding.python.decode`."""
micros_of: Callable[[pa.Array], pa.Array] = _kernel.micros_of
"""Return the times in a column of time UUIDs; see `cdc_reader.decoding.python.micros_of`."""

entry: Callable[..., Any] = _kernel.entry
"""Declare an attribute that is made when it is read; see `cdc_reader.decoding.objects.entry`."""

if TYPE_CHECKING:
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
        uuids,
        values,
    )
else:
    Field, GivenField, Mappings = _kernel.Field, _kernel.GivenField, _kernel.Mappings
    Entries, Entry, Wrapper = _kernel.Entries, _kernel.Entry, _kernel.Wrapper
    Objects, Tuples = _kernel.Objects, _kernel.Tuples
    blobs, uuids, values = _kernel.blobs, _kernel.uuids, _kernel.values


def warn_if_slow() -> None:
    """Warn, once per process, if no compiled kernel was built; called when rows are read."""
    warn_if_not_compiled(NAME, os.environ.get(VARIABLE))

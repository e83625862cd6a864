"""Decodes the bytes of a ROWS result to Arrow, and creates Python objects from it in bulk.

Decoding creates no Python object for each cell. The interface is `decode`, `instances`, `micros_of`
and `put_all`. There are two equivalent implementations: the compiled `_native`, and the slower
`python`. `NAME` is the one in use, ``"cython"`` or ``"python"``: the compiled one if it was built,
unless the environment variable ``CDC_READER_KERNEL`` names the other.

May import `cql` and the packages below. Begin with `python`, which is easier to read than
`_native`; `metadata` and `arrow_type` decide the types of the columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pyarrow as pa

from cdc_reader.decoding.arrow_type import arrow_schema, arrow_type
from cdc_reader.decoding.choice import VARIABLE, choose
from cdc_reader.decoding.metadata import ResultMetadata, parse_metadata
from cdc_reader.decoding.page import Page
from cdc_reader.decoding.python import T

__all__ = [
    "NAME",
    "Page",
    "ResultMetadata",
    "arrow_schema",
    "arrow_type",
    "decode",
    "instances",
    "micros_of",
    "parse_metadata",
    "put_all",
]


class _Instances(Protocol):
    def __call__(self, cls: type[T], count: int, *columns: Iterable[Any]) -> list[T]: ...


NAME, _kernel = choose(os.environ.get(VARIABLE))
decode: Callable[[Page], pa.RecordBatch] = _kernel.decode
"""Decode the rows of a page; see `cdc_reader.decoding.python.decode`."""
instances: _Instances = _kernel.instances
"""Create instances of a slotted class in bulk; see `cdc_reader.decoding.python.instances`."""
micros_of: Callable[[pa.Array], pa.Array] = _kernel.micros_of
"""Return the times in a column of time UUIDs; see `cdc_reader.decoding.python.micros_of`."""
put_all: Callable[[Iterable[dict[str, Any]], str, Iterable[Any]], None] = _kernel.put_all
"""Put a value into each of several new mappings; see `cdc_reader.decoding.python.put_all`."""

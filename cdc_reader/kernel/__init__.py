"""From the bytes of a ROWS result to Arrow, without a Python object a cell; and to Python objects
from there, many at a time.

`decode`, `instances`, `micros_of` and `put_all` are the interface. There are two implementations,
equal in all they do but speed: the compiled one, `_native`, and its plain twin, `python`. `NAME`
says which one runs, ``"cython"`` or ``"python"``: the compiled one if it was built, unless the
environment variable ``CDC_READER_KERNEL`` names another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from cdc_reader.kernel import bulk
from cdc_reader.kernel.arrow_type import arrow_schema, arrow_type
from cdc_reader.kernel.choice import VARIABLE, choose
from cdc_reader.kernel.metadata import ResultMetadata, parse_metadata
from cdc_reader.schema import Column

__all__ = [
    "NAME",
    "ResultMetadata",
    "arrow_schema",
    "arrow_type",
    "decode",
    "instances",
    "micros_of",
    "parse_metadata",
    "put_all",
]


class _Decode(Protocol):
    def __call__(self, body: bytes, columns: Sequence[Column] | None = None) -> pa.RecordBatch: ...


class _Instances(Protocol):
    def __call__(self, cls: type[bulk.T], count: int, *columns: Iterable[Any]) -> list[bulk.T]: ...


NAME, _kernel = choose(os.environ.get(VARIABLE))
decode: _Decode = _kernel.decode
"""The rows of a RESULT body of kind ROWS; see `cdc_reader.kernel.python.decode`."""
instances: _Instances = _kernel.instances
"""Instances of a slotted class, a column at a time; see `cdc_reader.kernel.bulk.instances`."""
micros_of: Callable[[pa.Array], pa.Array] = _kernel.micros_of
"""The times in a column of time UUIDs; see `cdc_reader.kernel.times.micros_of`."""
put_all: Callable[[Iterable[dict[str, Any]], str, Iterable[Any]], None] = _kernel.put_all
"""A value into each of some new mappings; see `cdc_reader.kernel.bulk.put_all`."""

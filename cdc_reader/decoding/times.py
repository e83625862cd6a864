"""Extracts the times from a column of time UUIDs, given as text in canonical form."""

from __future__ import annotations

import uuid

import pyarrow as pa

from cdc_reader.cql import timeuuid


def micros_of(times: pa.Array) -> pa.Array:
    """Return the microseconds since 1970 (int64) of each; for `cdc$time`, the write times.

    Raises ValueError for a null, and for text that is not a UUID. The compiled kernel may accept
    some such text, because it reads only the digits of the time.
    """
    if times.type != pa.string() or times.null_count:
        raise ValueError(f"expected texts, found {times.null_count} nulls among {times.type}")
    values = (timeuuid.micros(uuid.UUID(text).bytes) for text in times.to_pylist())
    return pa.array(values, pa.int64())

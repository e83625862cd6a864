"""The times in a column of time UUIDs, as the kernel gives them: texts in canonical form."""

from __future__ import annotations

import uuid

import pyarrow as pa

from cdc_reader import timeuuid


def micros_of(times: pa.Array) -> pa.Array:
    """The microseconds since 1970 (int64) of each; of a column of `cdc$time`, the write times.

    Raises ValueError for a null, and for a text that is no UUID; of these the compiled one may
    take some, for it looks only where the digits of the time are.
    """
    if times.type != pa.string() or times.null_count:
        raise ValueError(f"expected texts, found {times.null_count} nulls among {times.type}")
    values = (timeuuid.micros(uuid.UUID(text).bytes) for text in times.to_pylist())
    return pa.array(values, pa.int64())

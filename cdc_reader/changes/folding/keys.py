"""Clustering keys and ranges of changes, as values that `ClusteringOrder` compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_reader._arrow import booleans, to_arrow
from cdc_reader.changes.arrays import Indices
from cdc_reader.cql.order import KeyRange
from cdc_reader.cql.schema import Column
from cdc_reader.cql.values import converter


def keys_of(
    clustering: Sequence[Column], rows: pa.Table | pa.RecordBatch, places: Indices
) -> list[Mapping[str, Any]]:
    """Return the clustering keys of the rows at `places`, as values by column name."""
    taken = to_arrow(places)
    cells = [
        converter(column.type)(flat(rows.column(column.name)).take(taken)) for column in clustering
    ]
    names = [column.name for column in clustering]
    return [dict(zip(names, values, strict=True)) for values in zip(*cells, strict=True)]


def ranges_of(clustering: Sequence[Column], ranges: pa.StructArray) -> list[KeyRange]:
    """Return the ranges in a column `_range`."""
    every = np.arange(len(ranges))
    starts, ends = (
        [
            {name: value for name, value in key.items() if value is not None}
            for key in keys_of(clustering, pa.RecordBatch.from_struct_array(bound), every)
        ]
        for bound in (ranges.field("start"), ranges.field("end"))
    )
    inclusive = (booleans(ranges.field(f"{side}_inclusive")).tolist() for side in ("start", "end"))
    return [KeyRange(*each) for each in zip(starts, ends, *inclusive, strict=True)]


def flat(cells: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the cells of a column as one array."""
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells

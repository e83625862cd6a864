"""Faults: cells that could not be converted, and are null in their batch.

A batch that was converted tolerantly has one more column, `FAULTS`, which is null for good rows.
Finding the bad cells of a batch takes a few conversions of its parts; good batches are converted
once, as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import pyarrow as pa
from attrs import asdict, frozen

from cdc_reader._arrow import has_value
from cdc_reader.cql.schema import FAULTS

FAULTS_TYPE = pa.list_(
    pa.struct([("column", pa.string()), ("reason", pa.string()), ("raw", pa.string())])
)


@frozen
class Fault:
    """The reason why a cell of `column` could not be converted; `raw` is its value as text.

    Bytes that cannot be decoded are shown as ``0x…``. The reason does not contain the value, so it
    may be logged.
    """

    column: str
    reason: str
    raw: str


def failing(
    count: int, convert: Callable[[int, int], object], error: type[Exception]
) -> Iterator[int]:
    """Yield, in order, the indices below `count` of the cells that cannot be converted.

    `convert` takes the index of the first cell to convert and the index after the last, and raises
    `error` if a cell cannot be converted. It is called about 2 log(count) times for each bad cell.
    """
    parts = [(0, count)]
    while parts:
        first, end = parts.pop()
        try:
            convert(first, end)
        except error:
            if end - first == 1:
                yield first
            else:
                middle = (first + end) // 2
                parts += [(middle, end), (first, middle)]


def with_faults(batch: pa.RecordBatch, found: Mapping[int, list[Fault]]) -> pa.RecordBatch:
    """Return the batch with the faults in `found`, by row, added to its existing faults."""
    if FAULTS not in batch.schema.names:
        batch = batch.append_column(FAULTS, pa.nulls(batch.num_rows, FAULTS_TYPE))
    if not found:
        return batch
    noted = batch.column(FAULTS).to_pylist()
    for row, faults in found.items():
        noted[row] = [*(noted[row] or ()), *map(asdict, faults)]
    place = batch.schema.get_field_index(FAULTS)
    return batch.set_column(place, FAULTS, pa.array(noted, FAULTS_TYPE))


def without_faults(batch: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
    """Return the batch without the faults of these columns."""
    if not (found := faults_of(batch)):
        return batch
    kept = {
        row: [fault for fault in faults if fault.column not in columns]
        for row, faults in found.items()
    }
    place = batch.schema.get_field_index(FAULTS)
    none = batch.set_column(place, FAULTS, pa.nulls(batch.num_rows, FAULTS_TYPE))
    return with_faults(none, {row: faults for row, faults in kept.items() if faults})


def is_tolerant(batch: pa.RecordBatch) -> bool:
    """Return True if the batch was converted tolerantly, with bad cells recorded as faults."""
    return FAULTS in batch.schema.names


def faults_of(batch: pa.RecordBatch) -> dict[int, list[Fault]]:
    """Return the faults of each row that has any."""
    if not has_value(batch, FAULTS):
        return {}
    return {
        row: [Fault(**fault) for fault in faults]
        for row, faults in enumerate(batch.column(FAULTS).to_pylist())
        if faults
    }

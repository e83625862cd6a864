"""Leaves out rows that could not be converted, or emits them with their original values.

An output row is bad if a log row that it shows contains a cell that could not be converted, or if
the log lacks the postimage of its change. Other output rows are not affected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader._arrow import Mask
from cdc_reader._log import get_logger
from cdc_reader._time import format_timestamp
from cdc_reader.changes.arrays import Indices, faulty
from cdc_reader.changes.frames.columns import BAD_RECORD
from cdc_reader.changes.frames.commit_time import commit_timestamps
from cdc_reader.changes.json import cell_to_json
from cdc_reader.cql.schema import FAULTS, TIME, TableSchema
from cdc_reader.decoding.faults import Fault, faults_of
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading.ports import is_of_cells

log = get_logger(__name__)

BAD_RECORD_TYPE = pa.struct(
    [
        ("reason", pa.string()),
        ("columns", pa.list_(pa.field("element", pa.string()))),
        ("record", pa.string()),
    ]
)
_NO_POSTIMAGE = "the log has no postimage of this change"
_MOST_LOGGED = 100
"""The maximum number of bad records that one read logs individually; all are counted."""


@frozen(eq=False, slots=False)
class Origins:
    """Output rows, and the rows of the log or of the table from which they are made.

    `batch` contains the original rows. `at` and `are_bad` have one item for each output row: the
    index in `batch` of its main row, and whether the output row is bad. `changes` has one item for
    each row of `batch`: the index of the change that the row belongs to.
    """

    batch: pa.RecordBatch
    at: Indices
    changes: Indices
    are_bad: Mask

    @classmethod
    def each(cls, batch: pa.RecordBatch) -> Origins:
        """Return the origins of output rows that correspond one to one to the rows of `batch`."""
        rows = np.arange(batch.num_rows)
        return cls(batch, rows, rows, faulty(batch))

    @cached_property
    def bad(self) -> Indices:
        """The indices of the bad output rows."""
        return np.flatnonzero(self.are_bad)

    @cached_property
    def _faults(self) -> dict[int, list[Fault]]:
        return faults_of(self.batch)

    @cached_property
    def _faulty_rows(self) -> dict[int, list[int]]:
        """The faulty rows of each change that has any, in order."""
        found: dict[int, list[int]] = {}
        for row in self._faults:
            found.setdefault(int(self.changes[row]), []).append(row)
        return found

    def reason(self, number: int) -> str:
        """Return the reason why an output row is bad. The text contains no values of the row."""
        faults = [fault for row in self._rows(number) for fault in self._faults.get(row, ())]
        return "; ".join(dict.fromkeys(fault.reason for fault in faults)) or _NO_POSTIMAGE

    def key(self, number: int, base: TableSchema) -> str:
        """Return the key of an output row, as JSON."""
        names = [column.name for column in base.columns if column.is_key]
        return json.dumps(self._cells(int(self.at[number]), names), ensure_ascii=False)

    def written_at(self, number: int) -> str | None:
        """Return the time of the write, or None for a row of the base table."""
        if TIME not in self.batch.schema.names:
            return None
        times = self.batch.column(TIME).slice(int(self.at[number]), 1)
        return format_timestamp(commit_timestamps(times).cast(pa.int64())[0].as_py())

    def quarantined(self) -> pa.Array:
        """Return the column of bad records, which is null for good rows."""
        cells: list[dict[str, Any] | None] = [None] * len(self.at)
        for number in self.bad.tolist():
            cells[number] = self._cell(number)
        return pa.array(cells, BAD_RECORD_TYPE)

    def _cell(self, number: int) -> dict[str, Any]:
        rows = self._rows(number)
        faults = [fault for row in rows for fault in self._faults.get(row, ())]
        names = [name for name in self.batch.schema.names if name != FAULTS]
        record = [self._cells(row, names) for row in rows]
        return {
            "reason": self.reason(number),
            "columns": list(dict.fromkeys(fault.column for fault in faults)),
            "record": json.dumps(record, ensure_ascii=False),
        }

    def _rows(self, number: int) -> list[int]:
        """Return the faulty rows of an output row's change, or the main row if none is faulty."""
        at = int(self.at[number])
        return self._faulty_rows.get(int(self.changes[at]), [at])

    def _cells(self, row: int, names: Iterable[str]) -> dict[str, Any]:
        """Return the cells of a row as JSON values.

        A faulty cell becomes the text of its original value.
        """
        raw = {fault.column: fault.raw for fault in self._faults.get(row, ())}
        return {
            name: raw[name] if name in raw else cell_to_json(self.batch.column(name)[row])
            for name in names
        }


Part: TypeAlias = tuple[Origins, Callable[[str], pa.Array]]
"""Output rows: their origins, and a function that makes a column from its name."""


def snapshot_parts(
    batches: Iterable[tuple[pa.RecordBatch, bool]], column: Callable[..., pa.Array]
) -> Iterator[Part]:
    """Yield the parts of a snapshot, one for each of the `batches`.

    Each batch has a flag that is True for static rows. `column` makes an output column from its
    name, a batch (`rows`) and the batch's flag (`is_static`).
    """
    for rows, is_static in batches:
        shown = [name for name in rows.schema.names if not is_of_cells(name)]
        yield Origins.each(rows.select(shown)), partial(column, rows=rows, is_static=is_static)


class BadRecords:
    """Applies a policy to the bad records of one read, and counts them.

    Raises ConfigurationError if the policy is to quarantine bad records but `schema` lacks the
    column `_bad_record`.
    """

    def __init__(self, policy: str, base: TableSchema, schema: pa.Schema) -> None:
        self._quarantines = policy == "quarantine"
        if self._quarantines and BAD_RECORD not in schema.names:
            remedy = f"the DataFrame lacks the column {BAD_RECORD}: load it again with that column"
            raise ConfigurationError("on_bad_record", policy, remedy)
        self._base = base
        self._schema = schema
        self._count = 0

    def rows(self, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
        """Yield the output rows of all parts, then log how many were bad."""
        for origins, column in parts:
            yield from self._rows(origins, column)
        self._log_total()

    def _rows(
        self, origins: Origins, column: Callable[[str], pa.Array]
    ) -> Iterator[pa.RecordBatch]:
        count, bad = len(origins.at), len(origins.bad)
        if bad and not self._quarantines:
            self._log_each(origins)
        self._count += bad
        if not count or (bad == count and not self._quarantines):
            return
        made = [
            origins.quarantined() if self._quarantines and name == BAD_RECORD else column(name)
            for name in self._schema.names
        ]
        batch = pa.RecordBatch.from_arrays(made, schema=self._schema)
        yield batch.filter(pa.array(~origins.are_bad)) if bad and not self._quarantines else batch

    def _log_total(self) -> None:
        if self._count:
            event = "bad_records_quarantined" if self._quarantines else "bad_records_skipped"
            log.warning(event, table=str(self._base.name), count=self._count)

    def _log_each(self, origins: Origins) -> None:
        for number in origins.bad[: max(0, _MOST_LOGGED - self._count)].tolist():
            log.warning(
                "bad_record",
                table=str(self._base.name),
                key=origins.key(number, self._base),
                written_at=origins.written_at(number),
                reason=origins.reason(number),
            )


def bad_record_field(policy: str) -> list[tuple[str, pa.DataType]]:
    """Return the name and type of the column of bad records; empty if the policy needs none."""
    return [(BAD_RECORD, BAD_RECORD_TYPE)] if policy == "quarantine" else []

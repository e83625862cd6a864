"""Leaves out the rows of a batch that were delivered before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from cdc_reader._time import Micros
from cdc_reader.reading.cursor import Mark
from cdc_reader.reading.deduplication import Deduplicator, leave_out
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.late.rows import Delivered
from cdc_reader.reading.ports import EXPIRY
from cdc_reader.streams.stream import StreamId

_NO_MARKS: Mapping[StreamId, Mark] = {}


class Undelivered:
    """Finds the undelivered rows of batches.

    `marks` identify rows that a reader before this one delivered. If `is_eager` is True, a window
    is read repeatedly, and rows that an earlier read delivered are left out.
    """

    def __init__(self, marks: Mapping[StreamId, Mark], *, is_eager: bool) -> None:
        self._deduplicator = Deduplicator() if is_eager else None
        if self._deduplicator is not None:
            self._deduplicator.add_keys(key for mark in marks.values() for key in mark.rows)
        self.marks = marks
        """The marks of rows from the position on."""
        self.move_to(0)

    def move_to(self, position: Micros) -> None:
        """Forget the rows written before `position` (µs)."""
        self.marks = {s: mark for s, mark in self.marks.items() if mark.reaches(position)}
        self._passed = {s: Mark(mark.acked_through) for s, mark in self.marks.items()}
        self._listed = {s: Mark(rows=mark.rows) for s, mark in self.marks.items()}
        if self._deduplicator is not None:
            self._deduplicator.forget(position)

    def may_be_newer(self, batch: pa.RecordBatch, *, is_checked: bool) -> bool:
        """Return whether the batch has undelivered rows that may be newer than the schema.

        Settled rows are not, if the schema was checked since the read began. Rows that may not have
        settled can be newer than any check before they arrived.
        """
        if self._deduplicator is None:
            return not is_checked
        return self._deduplicator.has_new(leave_out(batch, self.marks))

    def of(
        self,
        batch: pa.RecordBatch,
        delivered: Delivered | None,
        ttls: TtlHistory,
        now: Micros,
        *,
        behind: bool = False,
    ) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Yield the undelivered rows of a batch, and note them in `delivered`, if it is given.

        Each batch comes with a flag, which is True if rows with higher keys were delivered from the
        same streams before. With `delivered`, the batch has a column `EXPIRY`, which is dropped.
        For `behind`, see `Delivered.note`.
        """
        # Rows that a mark has passed may have arrived afterwards; those that it lists have not.
        rows = leave_out(batch, self._passed)
        if delivered is not None:
            delivered.note(rows, ttls, now, behind=behind)
            rows = rows.drop_columns([EXPIRY])
        rows = leave_out(rows, self._listed)
        if self._deduplicator is not None:
            yield from self._deduplicator.new(rows)
        elif rows.num_rows:
            yield rows, False

"""Late rows: rows with an old write timestamp that arrive behind the position.

With ``lateRows=deliver``, a micro-batch from offset a to offset b contains exactly

* the rows of its window of write time that had arrived when b was planned, and
* the late rows that b lists.

A repeated micro-batch therefore contains the same rows, and each row is in exactly one micro-batch.
Four steps ensure this:

1. Before it offers b, the driver notes the moment, `LateState.read_at`, and reads the keys
   of the window. It records the rows that may have arrived after that moment. A row's remaining TTL
   shows its time of arrival to within `DOUBT`, and the computed time is never too early.
2. An executor leaves out rows that may have arrived after that moment, except the recorded rows
   (`cdc_reader.reading.late.rows.arrived`). A row that is left out arrived after that moment;
   otherwise the driver would have recorded it. A row that arrived before that moment either arrived
   clearly before it, or was recorded.
3. Once a minute, in a sweep, the driver reads the keys of the rows behind the position. A row is
   late if it was not recorded and may have arrived after its window was planned. Offset b lists the
   late rows.
4. Offset b contains this state: the times at which windows were planned since the last sweep, and
   the recorded keys. A restarted query therefore makes the same decisions as the process before it.

Strays (`cdc_reader.reading.late.strays`) are in streams that no executor reads. The driver searches
for them in steps 1 and 3. Offset b lists the strays of the window and the late strays. A stray that
has a twin in a stream in force is left out.

After a sweep, every row that had arrived before it counts as delivered. The state keeps only the
keys of rows that arrived within `DOUBT` of a sweep, or of the time at which a window was planned.
These are few, unless the confidence window is shorter than `DOUBT`.

`cdc_reader.reading.late.rows` does the same bookkeeping, but here the driver reads only keys. With
``lateRows=report``, the driver only sweeps: it reads a sample if there are many streams, and logs
the number of late rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

import pyarrow as pa
from attrs import evolve, frozen

from cdc_reader._time import Clock, Micros
from cdc_reader.reading.cursor import Checkpoint, RowName
from cdc_reader.reading.late.rows import after_snapshot, arrived
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.task import Task
from cdc_reader.streams.window import Window

_CLOCKS = 1_000_000
"""µs by which the clocks of the driver and an executor may differ."""


@frozen
class ArrivalFilter:
    """The rows of a window that had arrived when it was planned, at `moment` (µs)."""

    moment: Micros
    known: frozenset[RowName]
    cursor: Checkpoint
    """The cursor after the window, of which only what the filter needs is kept."""

    @classmethod
    def of(cls, cursor: Checkpoint, window: Window) -> Self | None:
        """Return the filter for the rows of `window`, the last window read before `cursor`.

        Rows are judged by the TTLs that were known when the window was planned. Under a later,
        shorter TTL, a row that had arrived would seem to have arrived after that. Returns None if
        the query does not deliver late rows.
        """
        if cursor.late is None:
            return None
        known = frozenset(name for name in cursor.late.known if name[1].micros in window)
        late = evolve(cursor.late, known=frozenset())
        return cls(cursor.late.read_at, known, evolve(cursor, late=late))

    def rows(self, batches: Iterable[pa.RecordBatch], clock: Clock) -> Iterator[pa.RecordBatch]:
        """Yield the rows that had arrived by `moment`; leave out empty batches.

        The batches must have been read with this `clock`.
        """
        ttls = self.cursor.ttls
        for batch in batches:
            after = after_snapshot(batch, self.cursor, clock.now())
            rows = arrived(after, ttls, clock.now(), self.moment, self.known, error=_CLOCKS)
            if rows.num_rows:
                yield rows


def tasks_of(names: Iterable[RowName]) -> Iterator[Task]:
    """Yield tasks that read these rows, in order of write time: one for each microsecond."""
    streams: dict[int, set[StreamId]] = {}
    for stream, key in names:
        streams.setdefault(key.micros, set()).add(stream)
    for at, found in sorted(streams.items()):
        yield Task(Window(at, at + 1), tuple(sorted(found)))

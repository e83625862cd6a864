"""Rows that arrive behind the position: written with a timestamp of long ago.

No confidence window can wait for them. But a row of the log lives for the log's TTL from its
arrival on, so what it still has to live tells when it arrived: by the reader's clock,
``now - (ttl - remaining)``, give or take `_BLUR`, and too late by the time the answer took.
A row that arrived after its window was read is late; a sweep finds it. So that none is taken
for earlier than it is, `_BLUR` is added.

Where the two moments are too close to tell, keys decide: those of delivered rows that came a
confidence window after they were written, and within `DOUBT` before the read, are kept. They
are few, for most rows arrive at once. Neither the keys nor when windows were read outlasts a
restart: what came behind its time since shortly before the last sweep may then come again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen

from cdc_reader.ids import StreamId
from cdc_reader.ports import REMAINING
from cdc_reader.progress import Mark, RowKey
from cdc_reader.row_keys import keys
from cdc_reader.window import FOREVER, Window

_SECOND = 1_000_000
_BLUR = 2 * _SECOND
"""µs: the server counts in whole seconds, and its nodes' clocks may differ by one more."""
DOUBT = 2 * _BLUR + 10 * _SECOND
"""µs by which an arrival may seem too late, if an answer needs up to ten seconds."""

RowName = tuple[StreamId, RowKey]
_NO_MARK = Mark()
_NO_MARKS: Mapping[StreamId, Mark] = {}


class LateRows:
    """Knows when each part of the log before the position was read, and so which rows are late.

    Times in µs, by the reader's clock: reading begins at `position`; before it, back to
    `start`, all that had arrived by `swept` was delivered, the begin of the last sweep before
    a restart. So it is with rows that `marks` leave out without naming them: one may have come
    when its stream had been read past it. `confidence` is the confidence window.
    """

    def __init__(
        self,
        start: int,
        position: int,
        swept: int,
        confidence: int,
        marks: Mapping[StreamId, Mark] = _NO_MARKS,
    ) -> None:
        self.swept = swept
        self._left_out = marks, swept
        self._start = start
        self._confidence = confidence
        self._ends = [position]
        self._reads = [swept]
        self._doubtful: set[RowName] = set()

    def window_read(self, end: int, began: int) -> None:
        """The log from the last end to `end` has been read, in a read that began at `began`."""
        self._ends.append(end)
        self._reads.append(began)

    def delivered(self, batch: pa.RecordBatch, ttl: int, now: int) -> pa.RecordBatch:
        """The rows that are read now, without `REMAINING`; doubtful ones are noted."""
        delayed = _delayed(batch, ttl, now, self._reads[-1] - DOUBT, self._confidence - DOUBT)
        self._doubtful.update(name for _, name, _ in delayed)
        return batch.drop_columns([REMAINING])

    def sweep(self, position: int, horizon: int, began: int) -> Sweep:
        """Look back from `position` over `horizon` µs, in a read that begins at `began`."""
        window = Window(max(self._start, position - horizon), position)
        sweep = Sweep(
            window,
            began,
            self._confidence,
            tuple(self._ends),
            tuple(self._reads),
            self._doubtful,
            *self._left_out,
        )
        self._ends, self._reads = [window.start, position], [began, began]
        self._left_out = _NO_MARKS, began
        self._doubtful, self.swept = sweep.doubtful, began
        return sweep


@frozen
class Sweep:
    """One look back over `window`, which began at `began`; what is `doubtful` fills as it goes."""

    window: Window
    began: int
    _confidence: int
    _ends: tuple[int, ...]
    _reads: tuple[int, ...]
    _known: set[RowName]
    _marks: Mapping[StreamId, Mark]
    _marked: int
    doubtful: set[RowName] = field(factory=set)

    def late(self, batch: pa.RecordBatch, ttl: int, now: int) -> pa.RecordBatch:
        """Of the rows that were read back, those that were not delivered before."""
        since = min(*self._reads, self._marked) - DOUBT
        delayed = _delayed(batch, ttl, now, since, self._confidence - DOUBT)
        late = [at for at, name, arrival in delayed if self._is_late(name, arrival)]
        return batch.drop_columns([REMAINING]).take(pa.array(late, pa.int64()))

    def _is_late(self, name: RowName, arrival: int) -> bool:
        if arrival >= self.began - DOUBT:
            self.doubtful.add(name)
        is_delayed = arrival > name[1].micros + self._confidence
        return is_delayed and name not in self._known and arrival > self._read_at(*name)

    def _read_at(self, stream: StreamId, key: RowKey) -> int:
        """What had arrived by then, in µs, was delivered."""
        mark = self._marks.get(stream, _NO_MARK)
        if key in mark:
            return FOREVER if key in mark.rows else self._marked
        part = min(bisect_right(self._ends, key.micros), len(self._reads) - 1)
        return self._reads[part]


def _delayed(
    batch: pa.RecordBatch, ttl: int, now: int, since: int, delay: int
) -> Iterator[tuple[int, RowName, int]]:
    """Rows that arrived after `since`, and more than `delay` after they were written.

    For each its number, its name and its arrival. A row that did not come a confidence window
    after it was written was there whenever its window was read; but one read tells its arrival
    as late as another does only to within `DOUBT`.
    """
    arrivals = _arrivals(batch, ttl, now)
    recent = pc.indices_nonzero(pc.greater_equal(arrivals, since))
    names = keys(batch.take(recent))
    for at, arrival, name in zip(
        recent.to_pylist(), arrivals.take(recent).to_pylist(), names, strict=True
    ):
        if arrival > name[1].micros + delay:
            yield at, name, arrival


def _arrivals(batch: pa.RecordBatch, ttl: int, now: int) -> pa.Array:
    """When each row arrived, in µs by our clock: never too early, and less than `DOUBT` too late.

    A row without a TTL was written while the log had none: it counts as just arrived.
    """
    lived = pc.subtract(pa.scalar(ttl, pa.int64()), batch.column(REMAINING).cast(pa.int64()))
    arrived = pc.subtract(pa.scalar(now + _BLUR, pa.int64()), pc.multiply(lived, _SECOND))
    return pc.fill_null(arrived, now)

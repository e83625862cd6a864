"""Late rows: rows that arrive after the position has passed their write time.

No confidence window is long enough for all of these rows. However, a row of the log expires one TTL
after its arrival, so its expiry shows when it arrived. The result is wrong by at most `_BLUR` in
either direction, and the response time makes it later. `_BLUR` is added, so that no arrival is
computed too early. A row that arrived after its window was read is late, and a sweep finds it.

A row has the TTL that was in force when it arrived. After a change of the TTL, either value is
possible. The correct value yields an arrival within the time in which that value was in force. If
both values yield such an arrival, the later arrival is used. The row may then be delivered twice,
but it is not lost.

If a row arrived too close to the time of a read, its key shows whether the read delivered it. Keys
are kept only for delivered rows that arrived more than a confidence window after their write time,
and within `DOUBT` before the read. Few keys are kept, because most rows arrive promptly. The keys,
and the times of reads, are part of the cursor (`LateState`), so a restarted reader recognizes the
same rows as late.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, field, frozen

from cdc_reader._arrow import indices, scalar, to_arrow
from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.reading.cursor import Checkpoint, LateState, RowName
from cdc_reader.reading.deduplication import keys
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.ports import EXPIRY
from cdc_reader.streams.window import Window

_SECOND = 1_000_000
_BLUR = 2 * _SECOND
"""The error of a computed arrival, in µs.

A TTL is in whole seconds, and nodes' clocks may differ by 1 s."""
ARRIVAL_ERROR = 2 * _BLUR
"""µs by which a computed arrival may be too late, not counting the response time."""
LONGEST_RESPONSE = 10 * _SECOND
"""µs that a response may take."""
DOUBT = ARRIVAL_ERROR + LONGEST_RESPONSE
"""µs by which a computed arrival may be too late, including the response time."""
_SKEW = 2 * _SECOND
"""µs by which a row may seem to expire more than its TTL from now: nodes' clocks differ."""


@frozen
class Delivered:
    """Collects the names of delivered rows that may seem to have arrived after their read.

    The read began at `began` (µs), and `confidence` is the confidence window of `LateState`.
    """

    began: Micros
    confidence: int
    names: set[RowName] = field(factory=set)

    def note(
        self, batch: pa.RecordBatch, ttls: TtlHistory, now: Micros, *, behind: bool = False
    ) -> None:
        """Collect the names of such rows in a batch with `EXPIRY`.

        If `behind` is True, the batch was written before the position, so its rows may have arrived
        at any time since their window was read.
        """
        since = BEGINNING if behind else self.began - DOUBT
        delayed = _delayed(batch, ttls, now, since, self.confidence - DOUBT)
        self.names.update(name for _, name, _ in delayed)


@frozen
class Sweep:
    """A search of `window` for late rows, which began at `began`; `state` describes what was read.

    `confidence` is the reader's confidence window, in µs. The search adds the names of doubtful
    rows to `doubtful`.
    """

    window: Window
    began: Micros
    _state: LateState
    _confidence: int
    doubtful: set[RowName] = field(factory=set)

    @classmethod
    def of(
        cls, state: LateState, position: Micros, late_horizon: int, began: Micros, confidence: int
    ) -> Sweep:
        """Return a search of the `late_horizon` µs before `position`, which begins at `began`."""
        window = Window(max(state.start, position - late_horizon), position)
        return cls(window, began, state, confidence)

    @property
    def done(self) -> LateState:
        """The state after the search, whose late rows have been delivered."""
        return evolve(
            self._state,
            ends=(self.window.start, self.window.end),
            reads=(self.began, self.began),
            confidence=min(self._confidence, self.began - self.window.end),
            known=frozenset(self.doubtful),
        )

    def done_until(self, end: Micros) -> LateState:
        """Return the state if only the late rows written before `end` (µs) have been delivered."""
        before = self._state
        rest = [part for part in zip(before.ends, before.reads, strict=True) if part[0] > end]
        ends, reads = zip((end, self.began), *rest, strict=True)
        searched = {name for name in self.doubtful if name[1].micros < end}
        known = searched.union(name for name in before.known if name[1].micros >= end)
        return evolve(before, ends=ends, reads=reads, known=frozenset(known))

    def late(self, batch: pa.RecordBatch, ttls: TtlHistory, now: Micros) -> pa.RecordBatch:
        """Return the rows of `batch` that were not delivered before, without `EXPIRY`."""
        found = indices(self._late_in(batch, ttls, now))
        return batch.drop_columns([EXPIRY]).take(found)

    def delivered(self, batch: pa.RecordBatch, ttls: TtlHistory, now: Micros) -> pa.RecordBatch:
        """Return the rows of `batch` that `late` leaves out, without `EXPIRY`."""
        late = {*self._late_in(batch, ttls, now)}
        left = [at for at in range(batch.num_rows) if at not in late]
        return batch.drop_columns([EXPIRY]).take(indices(left))

    def _late_in(self, batch: pa.RecordBatch, ttls: TtlHistory, now: Micros) -> list[int]:
        since = min(self._state.reads) - DOUBT
        delayed = _delayed(batch, ttls, now, since, self._state.confidence - DOUBT)
        return [at for at, name, arrival in delayed if self._is_late(name, arrival)]

    def _is_late(self, name: RowName, arrival: Micros) -> bool:
        if arrival >= self.began - DOUBT:
            self.doubtful.add(name)
        is_delayed = arrival > name[1].micros + self._state.confidence
        is_known = name in self._state.known
        return is_delayed and not is_known and arrival > self._read_at(name[1].micros)

    def _read_at(self, written: Micros) -> Micros:
        """Return when the read began that delivered the rows written at this time, in µs."""
        reads = self._state.reads
        return reads[min(bisect_right(self._state.ends, written), len(reads) - 1)]


def arrived(
    batch: pa.RecordBatch,
    ttls: TtlHistory,
    now: Micros,
    planned: Micros,
    known: Container[RowName],
    *,
    error: int = 0,
) -> pa.RecordBatch:
    """Return the rows that had arrived by `planned` (µs), without `EXPIRY`.

    `planned` is when the read of the window was planned, and `known` contains the names of rows
    that were present at that time. Other rows that may have arrived later are left out. A window
    therefore has the same rows each time it is read. The clock by which the rows expire may be
    `error` µs behind that of the plan.
    """
    arrivals = _arrivals(batch, ttls, now, error)
    later = pc.indices_nonzero(pc.greater(arrivals, scalar(planned))).to_pylist()
    rows = batch.drop_columns([EXPIRY])
    names = keys(rows.take(indices(later)))
    left_out = {at for at, name in zip(later, names, strict=True) if name not in known}
    if not left_out:
        return rows
    kept = [at for at in range(rows.num_rows) if at not in left_out]
    return rows.take(indices(kept))


def after_snapshot(batch: pa.RecordBatch, cursor: Checkpoint, now: Micros) -> pa.RecordBatch:
    """Return the batch without rows that the snapshot contains, if reading began with one.

    It contains the changes that were written before the log's first position, and had arrived by
    the time at which the snapshot began.
    """
    late, known = cursor.late, cursor.generations
    if late is None or late.snapshot_at is None or known is None:
        return batch
    arrivals = _arrivals(batch, cursor.ttls, now)
    is_after = pc.greater(arrivals, scalar(late.snapshot_at)).to_pylist()
    names = enumerate(keys(batch))
    kept = [at for at, (_, key) in names if key.micros >= known.since or is_after[at]]
    return batch if len(kept) == batch.num_rows else batch.take(indices(kept))


def _delayed(
    batch: pa.RecordBatch, ttls: TtlHistory, now: Micros, since: Micros, delay: int
) -> Iterator[tuple[int, RowName, int]]:
    """Yield the index, name and arrival of each row that arrived late.

    These are the rows that arrived at `since` (µs) or later, and more than `delay` µs after they
    were written. A row that arrived within the confidence window was present when its window was
    read. However, the arrivals computed in two reads of one row may differ by up to `DOUBT`.
    """
    arrivals = _arrivals(batch, ttls, now)
    recent = pc.indices_nonzero(pc.greater_equal(arrivals, scalar(since)))
    names = keys(batch.take(recent))
    for at, arrival, name in zip(
        recent.to_pylist(), arrivals.take(recent).to_pylist(), names, strict=True
    ):
        if arrival > name[1].micros + delay:
            yield at, name, arrival


def _arrivals(batch: pa.RecordBatch, ttls: TtlHistory, now: Micros, error: int = 0) -> pa.Array:
    """Compute each row's arrival, in µs: never too early, and at most `DOUBT` too late.

    A row that fits no known TTL arrived before the first known TTL was in force.
    """
    now, expiry = now + error, pc.add(batch.column(EXPIRY), scalar(error))
    first = min(now, ttls.changes[0][0] + DOUBT) if ttls.changes else now
    arrivals = pa.repeat(scalar(first), batch.num_rows)
    is_explained = to_arrow(np.zeros(batch.num_rows, bool))
    for span, seconds in ttls.spans():
        arrived, is_possible = _under(seconds, expiry, now)
        is_in_time = pc.or_(pc.invert(is_explained), pc.greater_equal(arrived, scalar(span.start)))
        is_possible = pc.and_(is_possible, pc.and_(is_in_time, _before(arrived, span.end)))
        arrived = pc.min_element_wise(arrived, scalar(span.end + DOUBT))
        arrivals = pc.if_else(is_possible, arrived, arrivals)
        is_explained = pc.or_(is_explained, is_possible)
    return arrivals


def _under(ttl: int, expiry: pa.Array, now: Micros) -> tuple[pa.Array, pa.Array]:
    """Return each row's arrival under a TTL of `ttl` seconds, and whether it can have that TTL."""
    if not ttl:
        return pa.repeat(scalar(now), len(expiry)), pc.is_null(expiry)
    arrived = pc.subtract(pc.fill_null(expiry, scalar(FOREVER)), scalar(ttl * _SECOND))
    is_possible = pc.less_equal(arrived, scalar(now + _SKEW))
    return pc.add(arrived, scalar(_BLUR)), is_possible


def _before(arrived: pa.Array, end: Micros) -> pa.Array:
    """Return, for each row, whether it may have arrived under a TTL that was changed at `end`.

    Nodes may apply the old TTL a little longer, because a change takes time to reach them.
    """
    return pc.less(arrived, scalar(end + 2 * DOUBT))

"""Tracks which changes of one table are delivered and acknowledged, and derives checkpoints.

This module is pure: it uses no I/O, no threads and no clock. Changes are registered by page, in the
order of delivery, and acknowledged in any order. Two structures decide what may be saved:

- A *span* is a part of the delivery order that ends when a window is complete. The position moves
  to the end of the window when no change is outstanding in this span or in earlier spans.
- A *slice* contains the changes of one stream in one page. The stream's `acked_through` advances
  past its first slices as they are acknowledged. The exact row within a slice is determined
  only when a checkpoint is taken. Acknowledged rows that follow an unacknowledged row are listed
  individually. If a log is read before it has settled, its streams have no `acked_through`, because
  a new row may still appear between two rows.

The cost depends on the number of pages and on the number of streams in each page, but not on the
number of changes. This module keeps in memory a mark for each stream with rows after the position,
and the row keys of each page with a slice that is not acknowledged, or that follows such a slice.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from uuid import UUID

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field, frozen

from cdc_reader._arrow import to_arrow, to_numpy
from cdc_reader._time import BEGINNING, Micros
from cdc_reader.changes.arrays import NONE, Indices
from cdc_reader.changes.records import ChangeRows
from cdc_reader.cql.schema import BATCH_SEQ_NO, STREAM_ID, TIME
from cdc_reader.decoding import micros_of
from cdc_reader.reading.cursor import Checkpoint, Mark, RowKey
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window


class InFlightRows:
    """The row keys of a page's changes, and which of the changes are acknowledged.

    Changes are numbered from 0. The keys are copies, so that a handled page can be freed.
    """

    def __init__(self, batch: pa.RecordBatch, changes: ChangeRows) -> None:
        self.count = changes.count
        self.are_acknowledged = np.zeros(self.count, bool)
        self.records: Indices = np.cumsum(changes.are_last) - changes.are_last
        """For each change, the index of its record."""
        first = to_arrow(changes.first[np.flatnonzero(np.diff(self.records, prepend=NONE))])
        streams = batch.column(STREAM_ID).take(first).dictionary_encode()
        of_records: Indices = to_numpy(streams.indices)
        self._streams: Indices = of_records[self.records]
        self._changes: Indices = changes.changes
        self._times: pa.Array = batch.column(TIME).take(first)
        self._seqs: Indices = to_numpy(batch.column(BATCH_SEQ_NO)).copy()
        self._last_seqs: Indices = np.full(len(first), NONE)
        np.maximum.at(self._last_seqs, self.records[self._changes], self._seqs)
        self.span: _Span
        self.slices: list[_PageSlice] = self._divided(streams.dictionary.to_pylist(), of_records)
        """The changes of each stream."""

    def acknowledge(self, changes: Indices) -> list[_PageSlice]:
        """Record that changes are handled; return their slices."""
        self.are_acknowledged[changes] = True
        counts = np.bincount(self._streams[changes])
        found = [self.slices[number] for number in _list(np.flatnonzero(counts))]
        for part in found:
            part.outstanding -= int(counts[part.number])
        return found

    def keys(self, changes: Indices) -> Iterator[RowKey]:
        """Yield the keys of the rows of these changes."""
        are_wanted = np.zeros(self.count, bool)
        are_wanted[changes] = True
        rows = np.flatnonzero(are_wanted[self._changes])
        records = self.records[self._changes[rows]]
        for record, seq in zip(_list(records), _list(self._seqs[rows]), strict=True):
            yield RowKey(self._time(record), seq)

    def last_key(self, record: int) -> RowKey:
        """Return the key of a record's last row."""
        return RowKey(self._time(record), int(self._last_seqs[record]))

    def _divided(self, streams: list[bytes], of_records: Indices) -> list[_PageSlice]:
        """Return the slice of each stream.

        `of_records` contains, for each record, the index in `streams` of its stream.
        """
        newest = np.full(len(streams), BEGINNING)
        np.maximum.at(newest, of_records, to_numpy(micros_of(self._times)))
        order, counts = np.argsort(self._streams, kind="stable"), np.bincount(self._streams)
        changes = np.split(order, np.cumsum(counts)[:-1])
        facts = zip(map(StreamId, streams), _list(newest), changes, strict=False)
        return [_PageSlice(self, number, *each) for number, each in enumerate(facts)]

    def _time(self, record: int) -> bytes:
        return UUID(self._times[record].as_py()).bytes


def _list(numbers: Indices) -> list[int]:
    found: list[int] = numbers.tolist()
    return found


@define(eq=False)
class _PageSlice:
    """The changes of a page in one stream; `outstanding` is the number not yet acknowledged."""

    rows: InFlightRows = field(repr=False)
    number: int
    stream: StreamId
    newest: Micros
    changes: Indices
    outstanding: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.outstanding = len(self.changes)

    @property
    def last(self) -> RowKey:
        """The key of the last row."""
        return self.rows.last_key(self.rows.records[self.changes[-1]])

    def before_outstanding(self) -> tuple[RowKey | None, int]:
        """Return the last row of the leading acknowledged records, and the number of their changes.

        The row is None if the first record is outstanding.
        """
        records = self.rows.records[self.changes]
        first = np.argmin(self.rows.are_acknowledged[self.changes])
        count = int(np.searchsorted(records, records[first]))
        return self.rows.last_key(records[count - 1]) if count else None, count

    def acknowledged(self, first: int = 0) -> Iterator[RowKey]:
        """Yield the keys of the acknowledged rows, from the change with index `first` on."""
        changes = self.changes[first:]
        return self.rows.keys(changes[self.rows.are_acknowledged[changes]])


@define(eq=False)
class _Stream:
    """The acknowledged rows and the outstanding slices of a stream.

    `newest` is the newest write time, in µs, of the stream's rows.
    """

    newest: Micros
    acked_through: RowKey | None = None
    rows: set[RowKey] = field(factory=set)
    slices: deque[_PageSlice] = field(factory=deque)

    def enter(self, part: _PageSlice) -> None:
        """Append the next slice that is delivered."""
        self.newest = max(self.newest, part.newest)
        self.slices.append(part)

    def advance(self) -> int:
        """Advance `acked_through` past the first slices that are completely acknowledged.

        Returns the number of their changes.
        """
        moved = 0
        while self.slices and not self.slices[0].outstanding:
            done = self.slices.popleft()
            self._pass(done.last)
            moved += len(done.changes)
        return moved

    def list_rows(self, part: _PageSlice) -> int:
        """List the rows of a slice if all are acknowledged; return the number of its changes.

        Returns 0 if changes of the slice are outstanding.
        """
        if part.outstanding:
            return 0
        self.slices.remove(part)
        self.rows.update(part.acknowledged())
        return len(part.changes)

    def mark(self, position: Micros, *, settled: bool) -> Mark:
        """Return the mark for the acknowledged rows written at `position` or later."""
        begun = 0
        if settled and self.slices:
            before, begun = self.slices[0].before_outstanding()
            self._pass(before)
        last = self.acked_through
        if last and last.micros < position:
            last = None
        self.rows = {key for key in self.rows if key.micros >= position and not _is_in(key, last)}
        single = {
            key
            for number, part in enumerate(self.slices)
            for key in part.acknowledged(0 if number else begun)
            if not _is_in(key, last)
        }
        return Mark(last, frozenset(self.rows | single))

    def _pass(self, last: RowKey | None) -> None:
        """Advance `acked_through` to the row `last`, unless `last` is None or already passed."""
        if last is not None:
            self.acked_through = max(self.acked_through or last, last)


@frozen
class _Completion:
    """The checkpoint to save and the window to report once a span has been acknowledged."""

    checkpoint: Checkpoint
    window: Window | None = None

    def joined(self, later: _Completion) -> _Completion:
        """Return `later`, with its window extended to include the window of this completion."""
        if self.window is None:
            return later
        end = later.window.end if later.window else self.window.end
        return evolve(later, window=Window(self.window.start, end))


@define(eq=False)
class _Span:
    """The changes between two completions.

    `outstanding` is the number of changes not yet acknowledged, and `completion` ends the span.
    """

    outstanding: int = 0
    completion: _Completion | None = None


class Acknowledgements:
    """Tracks the deliveries that follow the checkpoint `start`.

    `settled` is True if rows are read only after they have settled. If `start` has a snapshot, the
    snapshot must be complete before any row of the log is delivered; see `RangeAcknowledgements`.
    """

    def __init__(self, start: Checkpoint, *, settled: bool) -> None:
        self._settled = settled
        self._reached = _Completion(evolve(start, snapshot=None))
        self._spans = deque([_Span()])
        self._changed: set[StreamId] = set()
        self._has_moved = False
        self._held = 0
        resumed = [(s, _resumed(mark)) for s, mark in start.marks.items()]
        self._streams = OrderedDict(sorted(resumed, key=lambda item: item[1].newest))

    @property
    def position(self) -> Micros:
        """The position in µs since 1970: every row written before it is acknowledged."""
        return self._reached.checkpoint.position

    @property
    def held(self) -> int:
        """The number of changes that must be remembered; callers limit it to bound memory use."""
        return self._held

    def deliver(self, rows: InFlightRows) -> None:
        """Register the changes of a page that is about to be delivered."""
        rows.span = self._spans[-1]
        rows.span.outstanding += rows.count
        self._held += rows.count
        for part in rows.slices:
            self._streams.setdefault(part.stream, _Stream(part.newest)).enter(part)
            self._streams.move_to_end(part.stream)

    def complete(self, checkpoint: Checkpoint, window: Window | None) -> Window | None:
        """Record that `checkpoint` is valid once all changes delivered so far are acknowledged.

        `window` is the completed window, or None after a sweep. Returns what `acknowledge` returns,
        because all changes may already be acknowledged.
        """
        before = (self._spans[-2].completion if len(self._spans) > 1 else None) or self._reached
        completion = _Completion(checkpoint, window)
        if len(self._spans) > 1 and not self._spans[-1].outstanding:
            self._spans[-2].completion = before.joined(completion)
        else:
            self._spans[-1].completion = completion
            self._spans.append(_Span())
        return self._advance()

    def acknowledge(self, rows: InFlightRows, changes: Indices) -> Window | None:
        """Record that changes of a delivered page are handled.

        Each change must be recorded only once; the order does not matter. Returns the window that
        is now fully acknowledged (several are merged into one), or None.
        """
        rows.span.outstanding -= len(changes)
        for part in rows.acknowledge(changes):
            self._changed.add(part.stream)
            stream = self._streams[part.stream]
            self._held -= stream.advance() if self._settled else stream.list_rows(part)
        return self._advance()

    def take(self) -> Checkpoint | None:
        """Return the checkpoint to save, or None if nothing has changed since the last call.

        The checkpoint contains only the marks that have changed since the last call.
        """
        if not (self._changed or self._has_moved):
            return None
        reached, changed = self._reached.checkpoint, self._changed & self._streams.keys()
        marks = {
            name: self._streams[name].mark(reached.position, settled=self._settled)
            for name in changed
        }
        self._changed, self._has_moved = set(), False
        said = {name: mark for name, mark in marks.items() if mark != _NOTHING}
        return evolve(reached, marks=said)

    def _advance(self) -> Window | None:
        reached: _Completion | None = None
        while (completion := self._spans[0].completion) and not self._spans[0].outstanding:
            self._spans.popleft()
            reached = reached.joined(completion) if reached else completion
        if reached is None:
            return None
        self._reached, self._has_moved = reached, True
        self._forget()
        return reached.window

    def _forget(self) -> None:
        """Drop the streams whose rows all lie before the position.

        `_streams` is ordered by age, so the search ends at the first stream that must stay.
        """
        while self._streams:
            name, stream = next(iter(self._streams.items()))
            if stream.slices or stream.newest >= self.position:
                return
            del self._streams[name]


_NOTHING = Mark()


def _is_in(key: RowKey, last: RowKey | None) -> bool:
    return last is not None and key <= last


def _resumed(mark: Mark) -> _Stream:
    keys = [*mark.rows, *([mark.acked_through] if mark.acked_through else [])]
    newest = max((key.micros for key in keys), default=BEGINNING)
    return _Stream(newest, mark.acked_through, set(mark.rows))

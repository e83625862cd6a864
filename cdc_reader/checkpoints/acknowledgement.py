"""Tracks which changes of one table are delivered and acknowledged, and derives checkpoints.

Pure: no I/O, no threads, no clock. Changes are registered in the order of delivery and acknowledged
in any order. Two structures decide what may be saved:

- *Spans* of the delivery order, each closed by the completion of a window. The position moves to
  the end of a window when nothing is outstanding in its span or in earlier spans.
- *Records* of each stream, in order. The stream's `acked_through` advances past its first records
  as they are acknowledged. Rows acknowledged after an unacknowledged one are listed one by
  one. A log that is read before it has settled has no `acked_through`: a row may still appear
  between two others.

Each change is added once and removed once, at constant cost. Memory holds the outstanding
changes, and a mark for each stream with rows after the position.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

from attrs import define, evolve, field, frozen

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.cql import timeuuid
from cdc_reader.reading.progress import Checkpoint, Mark, RowKey
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window


@define(eq=False)
class _Record:
    """The delivered part of one record: the number of its changes and the last row's key.

    It holds no change, so an acknowledged change and its page can be freed.
    """

    last: RowKey
    is_whole: bool = False
    changes: int = 0
    acknowledged: list[tuple[int, ...]] = field(factory=list)
    """The numbers of the acknowledged rows, change by change."""

    @property
    def is_done(self) -> bool:
        return self.is_whole and len(self.acknowledged) == self.changes


@define(eq=False)
class _Stream:
    """A stream's acknowledged rows, and its records that are not complete; `newest` in µs."""

    newest: Micros
    acked_through: RowKey | None = None
    rows: set[RowKey] = field(factory=set)
    records: deque[_Record] = field(factory=deque)
    begun: dict[_Record, None] = field(factory=dict)
    """The records that are partly acknowledged."""

    def enter(self, last: RowKey, *, is_last: bool) -> _Record:
        """Return the record that a change belongs to: the last one, or a new one."""
        if not self.records or self.records[-1].is_whole or self.records[-1].last.time != last.time:
            self._end_record()
            self.records.append(_Record(last))
        record = self.records[-1]
        record.changes += 1
        if last.seq > record.last.seq:
            record.last = last
        record.is_whole = is_last
        return record

    def acknowledge(self, record: _Record, seqs: tuple[int, ...]) -> int:
        """Advance `acked_through` past complete records; return the number of their changes."""
        record.acknowledged.append(seqs)
        self.begun[record] = None
        moved = 0
        while self.records and self.records[0].is_done:
            done = self.records.popleft()
            del self.begun[done]
            self.acked_through = max(self.acked_through or done.last, done.last)
            moved += done.changes
        return moved

    def mark(self, position: Micros) -> Mark:
        """Return the mark for the acknowledged rows written at `position` or later."""
        last = self.acked_through
        if last and last.micros < position:
            last = None
        self.rows = {key for key in self.rows if key.micros >= position and not _is_in(key, last)}
        begun = ((record.last.time, seqs) for record in self.begun for seqs in record.acknowledged)
        single = {key for each in begun for key in _keys(*each) if not _is_in(key, last)}
        return Mark(last, frozenset(self.rows | single))

    def _end_record(self) -> None:
        """Close the last record, because another begins, even if no change was marked as last."""
        if self.records:
            self.records[-1].is_whole = True


@frozen
class _Completion:
    """What to save and report once a span has been acknowledged: a checkpoint and a window."""

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
    """The changes between two completions: the number outstanding, and the closing completion."""

    outstanding: int = 0
    completion: _Completion | None = None


@define(eq=False)
class InFlightRows:
    """The rows of one change, from its delivery to its acknowledgement.

    The rows are in `stream`; `time` is their `cdc$time`, as 16 bytes, and `seqs` their sequence
    numbers. `is_last` is True if no other change of the record follows.
    """

    stream: StreamId
    time: bytes = field(repr=lambda raw: raw.hex())
    seqs: tuple[int, ...]
    is_last: bool
    _of_stream: _Stream = field(init=False, repr=False)
    _span: _Span = field(init=False, repr=False)
    _record: _Record | None = field(init=False, repr=False)

    def enter(self, stream: _Stream, span: _Span, *, settled: bool) -> None:
        """Count this change as outstanding in `span` and, if `settled`, in its record."""
        self._of_stream, self._span = stream, span
        span.outstanding += 1
        last = RowKey(self.time, self.seqs[-1])
        self._record = stream.enter(last, is_last=self.is_last) if settled else None

    def leave(self) -> int:
        """Count the change as acknowledged; return the number of changes that can be forgotten."""
        self._span.outstanding -= 1
        if self._record is not None:
            return self._of_stream.acknowledge(self._record, self.seqs)
        self._of_stream.rows.update(_keys(self.time, self.seqs))
        return 1


class Acknowledgements:
    """Tracks deliveries from `start`; if `settled`, rows are read only after they have settled.

    If `start` has a snapshot, the snapshot must be complete before any row of the log is delivered;
    see `RangeAcknowledgements`.
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
        """The number of changes held individually; callers limit it to limit memory use."""
        return self._held

    def deliver(self, change: InFlightRows) -> None:
        """Register a change that is about to be delivered."""
        micros = timeuuid.micros(change.time)
        if (stream := self._streams.get(change.stream)) is None:
            stream = self._streams[change.stream] = _Stream(micros)
        stream.newest = max(stream.newest, micros)
        self._streams.move_to_end(change.stream)
        self._held += 1
        change.enter(stream, self._spans[-1], settled=self._settled)

    def complete(self, checkpoint: Checkpoint, window: Window | None) -> Window | None:
        """Record that `checkpoint` is valid once all changes delivered so far are acknowledged.

        `window` is the completed window; None after a search for late rows. Returns what
        `acknowledge` returns, because all changes may already be acknowledged.
        """
        before = (self._spans[-2].completion if len(self._spans) > 1 else None) or self._reached
        completion = _Completion(checkpoint, window)
        if len(self._spans) > 1 and not self._spans[-1].outstanding:
            self._spans[-2].completion = before.joined(completion)
        else:
            self._spans[-1].completion = completion
            self._spans.append(_Span())
        return self._advance()

    def acknowledge(self, change: InFlightRows) -> Window | None:
        """Record that a delivered change is handled; call it once for each, in any order.

        Returns the window that is now fully acknowledged, several merged into one, or None.
        """
        self._changed.add(change.stream)
        self._held -= change.leave()
        return self._advance()

    def take(self) -> Checkpoint | None:
        """Return the checkpoint, with marks that changed since the last call; None if unchanged."""
        if not (self._changed or self._has_moved):
            return None
        reached, changed = self._reached.checkpoint, self._changed & self._streams.keys()
        marks = {name: self._streams[name].mark(reached.position) for name in changed}
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
        """Drop the streams whose rows all lie before the position; the oldest come first."""
        while self._streams:
            name, stream = next(iter(self._streams.items()))
            if stream.records or stream.newest >= self.position:
                return
            del self._streams[name]


_NOTHING = Mark()


def _keys(time: bytes, seqs: Iterable[int]) -> Iterator[RowKey]:
    return (RowKey(time, seq) for seq in seqs)


def _is_in(key: RowKey, last: RowKey | None) -> bool:
    return last is not None and key <= last


def _resumed(mark: Mark) -> _Stream:
    keys = [*mark.rows, *([mark.acked_through] if mark.acked_through else [])]
    newest = max((key.micros for key in keys), default=BEGINNING)
    return _Stream(newest, mark.acked_through, set(mark.rows))

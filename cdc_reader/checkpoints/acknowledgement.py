"""Tracks which changes of one table are delivered and acknowledged, and derives checkpoints.

Pure: no I/O, no threads, no clock. Changes are registered in the order of delivery and acknowledged
in any order. Two structures decide what may be saved:

- *Spans* of the delivery order, each closed by the completion of a window. The position
  moves to the end of a window once nothing is outstanding in its span and those before it.
- *Records* of each stream, in order. The stream's `acked_through` moves over its first records
  while they are acknowledged. Rows acknowledged after an unacknowledged one are listed one by
  one. A log that is read before it has settled has no `acked_through`: a row may still appear
  between two others.

Each change is entered once and removed once, at constant cost. Memory holds the outstanding
changes, and a mark for each stream with rows after the position.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from attrs import define, evolve, field, frozen

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.reading.progress import Checkpoint, Mark, RowKey
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window


@frozen
class ChangeRows:
    """A change's place in the log: its stream, the 16 bytes of `cdc$time`, and its rows' numbers.

    `is_last` is True if no other change of its record follows.
    """

    stream: StreamId
    time: bytes = field(repr=lambda raw: raw.hex())
    seqs: tuple[int, ...]
    is_last: bool = True

    def rows(self) -> Iterator[RowKey]:
        """The keys of its rows."""
        return (RowKey(self.time, seq) for seq in self.seqs)


@define(eq=False)
class _Record:
    """One record as far as it was delivered: the number of its changes and the last row's key."""

    last: RowKey
    is_whole: bool = False
    changes: int = 0
    acknowledged: list[ChangeRows] = field(factory=list)

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
    """The records of which some changes are acknowledged."""

    def enter(self, place: ChangeRows, last: RowKey) -> _Record:
        """The record that a change belongs to: the last one, or a new one."""
        if not self.records or self.records[-1].is_whole or self.records[-1].last.time != last.time:
            self._end_record()
            self.records.append(_Record(last))
        record = self.records[-1]
        record.changes += 1
        if last.seq > record.last.seq:
            record.last = last
        record.is_whole = place.is_last
        return record

    def acknowledge(self, record: _Record, place: ChangeRows) -> int:
        """Move `acked_through` over records that are done; return the number of their changes."""
        record.acknowledged.append(place)
        self.begun[record] = None
        moved = 0
        while self.records and self.records[0].is_done:
            done = self.records.popleft()
            del self.begun[done]
            self.acked_through = max(self.acked_through or done.last, done.last)
            moved += done.changes
        return moved

    def mark(self, position: Micros) -> Mark:
        """The acknowledged rows among those written at `position` or later."""
        last = self.acked_through
        if last and last.micros < position:
            last = None
        self.rows = {key for key in self.rows if key.micros >= position and not _is_in(key, last)}
        places = (place for record in self.begun for place in record.acknowledged)
        single = {key for place in places for key in place.rows() if not _is_in(key, last)}
        return Mark(last, frozenset(self.rows | single))

    def _end_record(self) -> None:
        """Close the last record because another begins, even if no change of it was the last."""
        if self.records:
            self.records[-1].is_whole = True


@frozen
class _Completion:
    """What holds once a span is acknowledged; `window` is the window to report."""

    checkpoint: Checkpoint
    window: Window | None = None

    def joined(self, later: _Completion) -> _Completion:
        """Both completions as one."""
        if self.window is None:
            return later
        end = later.window.end if later.window else self.window.end
        return evolve(later, window=Window(self.window.start, end))


@define(eq=False)
class _Span:
    """The changes between two completions: how many are outstanding, and the closing completion."""

    outstanding: int = 0
    completion: _Completion | None = None


@frozen(eq=False)
class Ticket:
    """Identifies a delivered change; passed back when the change is acknowledged."""

    place: ChangeRows
    stream: _Stream
    span: _Span
    record: _Record | None


class Acknowledgements:
    """Begins at `start`; `settled` is True if rows are read only once they have settled."""

    def __init__(self, start: Checkpoint, *, settled: bool) -> None:
        self._settled = settled
        self._reached = _Completion(start)
        self._spans = deque([_Span()])
        self._changed: set[StreamId] = set()
        self._has_moved = False
        self._held = 0
        resumed = [(s, _resumed(mark)) for s, mark in start.marks.items()]
        self._streams = OrderedDict(sorted(resumed, key=lambda item: item[1].newest))

    @property
    def position(self) -> Micros:
        """Every row written before is acknowledged; in µs since 1970."""
        return self._reached.checkpoint.position

    @property
    def held(self) -> int:
        """The number of changes remembered one by one; bounding it bounds memory."""
        return self._held

    def deliver(self, place: ChangeRows) -> Ticket:
        """Register a change that is about to be handed out."""
        last = RowKey(place.time, place.seqs[-1])
        micros = last.micros
        if (stream := self._streams.get(place.stream)) is None:
            stream = self._streams[place.stream] = _Stream(micros)
        stream.newest = max(stream.newest, micros)
        self._streams.move_to_end(place.stream)
        self._spans[-1].outstanding += 1
        self._held += 1
        record = stream.enter(place, last) if self._settled else None
        return Ticket(place, stream, self._spans[-1], record)

    def complete(self, checkpoint: Checkpoint, window: Window | None) -> Window | None:
        """Record that `checkpoint` holds once all changes delivered so far are acknowledged.

        `window` is the window that is complete; None after a search for late rows. Returns what
        `acknowledge` returns, as all changes may be acknowledged already.
        """
        before = (self._spans[-2].completion if len(self._spans) > 1 else None) or self._reached
        completion = _Completion(checkpoint, window)
        if len(self._spans) > 1 and not self._spans[-1].outstanding:
            self._spans[-2].completion = before.joined(completion)
        else:
            self._spans[-1].completion = completion
            self._spans.append(_Span())
        return self._advance()

    def acknowledge(self, ticket: Ticket) -> Window | None:
        """Record that a change is handled; call it once per ticket, in any order.

        Returns the window that is now fully acknowledged, several merged into one, or None.
        """
        self._changed.add(ticket.place.stream)
        ticket.span.outstanding -= 1
        if ticket.record is None:
            self._held -= 1
            ticket.stream.rows.update(ticket.place.rows())
        else:
            self._held -= ticket.stream.acknowledge(ticket.record, ticket.place)
        return self._advance()

    def take(self) -> Checkpoint | None:
        """The checkpoint to save, with the marks changed since the last call; None if unchanged."""
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
        """Drop the streams whose rows all lie before the position; the first are the oldest."""
        while self._streams:
            name, stream = next(iter(self._streams.items()))
            if stream.records or stream.newest >= self.position:
                return
            del self._streams[name]


_NOTHING = Mark()


def _is_in(key: RowKey, last: RowKey | None) -> bool:
    return last is not None and key <= last


def _resumed(mark: Mark) -> _Stream:
    keys = [*mark.rows, *([mark.acked_through] if mark.acked_through else [])]
    newest = max((key.micros for key in keys), default=BEGINNING)
    return _Stream(newest, mark.acked_through, set(mark.rows))

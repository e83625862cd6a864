"""Checkpoints cover exactly the acknowledged rows."""

from __future__ import annotations

import random
from itertools import accumulate, groupby
from uuid import UUID

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_reader.changes.records import ChangeRows
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.acknowledgement import Acknowledgements, InFlightRows
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, LateState, Mark, RowKey
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window

BASE = 1_700_000_000_000_000
LENGTH = 10
STREAMS = [StreamId.from_parts(token, 0, 0) for token in range(2)]
NAME = CheckpointName("app", TableName("ks", "t"))


def time(micros: int) -> bytes:
    """Return the `cdc$time` of a write at `BASE` + `micros`."""
    return timeuuid.make(BASE + micros, b"\x80" * 8).bytes


@frozen
class ReadChange:
    """The rows of a change: their stream, their `cdc$time`, and their sequence numbers."""

    stream: StreamId
    time: bytes
    seqs: tuple[int, ...]
    is_last: bool

    @property
    def names(self) -> list[tuple[StreamId, RowKey]]:
        """The stream and the key of each row."""
        return [(self.stream, RowKey(self.time, seq)) for seq in self.seqs]


def place(stream: int, micros: int, *seqs: int, is_last: bool = True) -> ReadChange:
    """Return a change whose log rows have the given sequence numbers."""
    return ReadChange(STREAMS[stream], time(micros), seqs or (0,), is_last)


def page(*changes: ReadChange) -> InFlightRows:
    """Return the rows of the changes in log order, sorted by sequence number within a record."""
    ends = [change.is_last for change in changes]
    records = [end - is_last for end, is_last in zip(accumulate(ends), ends, strict=True)]
    rows = sorted(
        (record, seq, number)
        for number, record in enumerate(records)
        for seq in changes[number].seqs
    )
    of_rows = [changes[number] for _, _, number in rows]
    batch = pa.RecordBatch.from_pydict(
        {
            "cdc$stream_id": [bytes(change.stream) for change in of_rows],
            "cdc$time": [str(UUID(bytes=change.time)) for change in of_rows],
            "cdc$batch_seq_no": pa.array([seq for _, seq, _ in rows], pa.int32()),
        }
    )
    numbers = np.array([number for _, _, number in rows])
    whole = np.array(ends)
    return InFlightRows(batch, ChangeRows(np.zeros(len(rows), np.int64), numbers, whole, whole))


def acknowledge(work: Acknowledgements, rows: InFlightRows, *changes: int) -> Window | None:
    """Acknowledge the changes with the given indices in the page."""
    return work.acknowledge(rows, np.array(changes))


def window(number: int) -> Window:
    """Return the window with the given number. Consecutive windows are contiguous."""
    return Window(BASE + number * LENGTH, BASE + (number + 1) * LENGTH)


class Log:
    """A reference model that remembers every delivered and acknowledged row."""

    def __init__(self, *, settled: bool) -> None:
        self.settled = settled
        self.store = MemoryCheckpoints()
        self.store.save(NAME, Checkpoint(BASE))
        self.delivered: list[tuple[StreamId, RowKey]] = []
        self.acknowledged: set[tuple[StreamId, RowKey]] = set()
        self.ends: list[tuple[int, int]] = []
        self.start()

    def start(self) -> None:
        """Start, or restart from the saved checkpoint."""
        self.begun = self.saved
        self.work = Acknowledgements(self.begun, settled=self.settled)
        self.outstanding: list[tuple[InFlightRows, int, ReadChange]] = []
        self.ends = []
        self.delivered = [row for row in self.delivered if row in self.acknowledged]

    @property
    def saved(self) -> Checkpoint:
        found = self.store.load(NAME)
        assert found is not None
        return found

    def those_saved(self) -> set[tuple[StreamId, RowKey]]:
        saved = self.saved
        return {
            (stream, key)
            for stream, key in self.delivered
            if key.micros < saved.position or key in saved.marks.get(stream, Mark())
        }

    def is_acknowledged(self, change: ReadChange) -> bool:
        return self.acknowledged.issuperset(change.names)

    def deliver(self, *changes: ReadChange) -> None:
        rows = page(*changes)
        self.delivered += (name for change in changes for name in change.names)
        self.work.deliver(rows)
        self.outstanding += ((rows, number, change) for number, change in enumerate(changes))

    def complete(self, number: int) -> None:
        self.ends.append((len(self.delivered), window(number).end))
        self.work.complete(Checkpoint(window(number).end), window(number))

    def acknowledge(self, order: random.Random) -> None:
        """Acknowledge one change, or several changes of a page, as a worker does."""
        if not self.outstanding:
            return
        rows, _, _ = order.choice(self.outstanding)
        of_page = [each for each in self.outstanding if each[0] is rows]
        chosen = order.sample(of_page, order.randint(1, len(of_page)))
        self.outstanding = [each for each in self.outstanding if each not in chosen]
        self.acknowledged.update(name for _, _, change in chosen for name in change.names)
        acknowledge(self.work, rows, *(number for _, number, _ in chosen))

    def save(self) -> None:
        if (checkpoint := self.work.take()) is not None:
            self.store.save(NAME, checkpoint)

    @property
    def position(self) -> int:
        """The expected position: the last window end up to which all rows are acknowledged."""
        reached = [
            end
            for count, end in self.ends
            if all(row in self.acknowledged for row in self.delivered[:count])
        ]
        return max(reached, default=self.begun.position)

    def check(self) -> None:
        """Check that the saved checkpoint covers exactly the acknowledged rows."""
        self.save()
        assert self.saved.position == self.position == self.work.position
        assert self.those_saved() == self.acknowledged


def records(draw: st.DataObject, number: int) -> list[list[ReadChange]]:
    """Draw the records of a window, sorted by stream or by time.

    The rows of a record's changes may interleave.
    """
    found = []
    for stream in range(len(STREAMS)):
        for micros in range(number * LENGTH, (number + 1) * LENGTH, 4):
            owners = draw.draw(st.lists(st.integers(0, 2), max_size=3))
            rows = sorted((owner, seq) for seq, owner in enumerate(owners))
            changes = [tuple(seq for _, seq in run) for _, run in groupby(rows, lambda row: row[0])]
            found.append(
                [place(stream, micros, *seqs, is_last=seqs is changes[-1]) for seqs in changes]
            )
    whole = [record for record in found if record]
    is_merged = draw.draw(st.booleans())
    return sorted(whole, key=lambda record: record[0].time) if is_merged else whole


@given(st.data(), st.booleans())
@settings(max_examples=60)
def test_a_checkpoint_says_what_is_acknowledged(data: st.DataObject, settled: bool) -> None:
    """Checkpoints are exact for any order of pages, acknowledgments, saves and crashes."""
    log = Log(settled=settled)
    windows = [records(data, number) for number in range(3)]
    order = random.Random(data.draw(st.integers(0, 1 << 32)))
    number = 0
    while number < len(windows):
        crashed = False
        changes: list[ReadChange] = []
        for record in windows[number]:
            left = [change for change in record if not log.is_acknowledged(change)]
            changes += (evolve(change, is_last=change is left[-1]) for change in left)
            if changes and (order.random() < 0.4 or record is windows[number][-1]):
                log.deliver(*changes)
                changes = []
            for _ in range(order.randrange(3)):
                log.acknowledge(order)
            if order.random() < 0.2:
                log.check()
        log.complete(number)
        log.check()
        if order.random() < 0.2:
            log.start()
            crashed = True
        number = (log.begun.position - BASE) // LENGTH if crashed else number + 1
    while log.outstanding:
        log.acknowledge(order)
        log.check()
    assert log.saved == Checkpoint(window(2).end)
    assert log.work.held == 0


def test_only_changed_marks_are_saved() -> None:
    """`take` returns each changed mark once, and an idle window adds no marks."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    rows = page(place(0, 1), place(1, 1))
    work.deliver(rows)
    assert work.take() is None
    acknowledge(work, rows, 0)
    assert work.take() == Checkpoint(BASE, None, {STREAMS[0]: Mark(RowKey(time(1), 0))})
    acknowledge(work, rows, 1)
    taken = work.take()
    assert taken is not None
    assert list(taken.marks) == [STREAMS[1]]
    assert work.take() is None
    work.complete(reached(window(0).end, 7), window(0))
    assert work.take() == reached(window(0).end, 7)


def test_a_change_among_the_rows_of_another_is_named_by_its_rows() -> None:
    """A mark lists a change's rows one by one if an unacknowledged row lies between them."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    rows = page(place(0, 1, 0, 3, is_last=False), place(0, 1, 1, 2))
    work.deliver(rows)
    acknowledge(work, rows, 0)
    taken = work.take()
    assert taken is not None
    single = frozenset([RowKey(time(1), 0), RowKey(time(1), 3)])
    assert taken.marks == {STREAMS[0]: Mark(None, single)}
    acknowledge(work, rows, 1)
    taken = work.take()
    assert taken is not None
    assert taken.marks == {STREAMS[0]: Mark(RowKey(time(1), 3))}


def test_eager_work_names_rows_one_by_one() -> None:
    """With eager delivery, a mark lists rows one by one: new rows may arrive between them."""
    work = Acknowledgements(Checkpoint(BASE), settled=False)
    pages = [page(place(0, micros), place(0, micros + 10)) for micros in (1, 2)]
    for rows in pages:
        work.deliver(rows)
        acknowledge(work, rows, 0)
    acknowledge(work, pages[1], 1)
    assert work.held == 2
    taken = work.take()
    assert taken is not None
    single = frozenset(RowKey(time(micros), 0) for micros in (1, 2, 12))
    assert taken.marks == {STREAMS[0]: Mark(None, single)}


def reached(position: int, at: int) -> Checkpoint:
    """Return the checkpoint of a reader that has reached a position, and knows more by then."""
    known = KnownGenerations(BASE, (BASE + at,))
    return Checkpoint(position, known, late=LateState.begin(position, BASE + at, 0))


def test_the_position_waits_for_late_rows_in_flight() -> None:
    """While a late row is unacknowledged, nothing of the checkpoint advances."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    first, second = window(0).end, window(1).end
    assert work.complete(reached(first, 5), window(0)) == window(0)
    late = page(place(0, 4))
    work.deliver(late)
    assert work.complete(reached(first, 6), None) is None
    assert work.complete(reached(second, 7), window(1)) is None
    assert work.take() == reached(first, 5)
    assert acknowledge(work, late, 0) == window(1)
    assert work.take() == reached(second, 7)


def test_windows_completed_together_are_reported_as_one() -> None:
    """Windows completed while a change is outstanding are reported as one window."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    change = page(place(0, 1))
    work.deliver(change)
    for number in range(100):
        assert work.complete(Checkpoint(window(number).end), window(number)) is None
    assert acknowledge(work, change, 0) == Window(BASE, window(99).end)


def test_rows_after_an_unacknowledged_one_are_held() -> None:
    """The changes of a stream stay in memory until all earlier changes are acknowledged."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    pages = [page(place(0, micros), place(1, micros), place(0, micros + 1)) for micros in (0, 5)]
    for rows in pages:
        work.deliver(rows)
    acknowledge(work, pages[0], 1, 2)
    acknowledge(work, pages[1], 0, 1, 2)
    assert work.held == 4
    taken = work.take()
    assert taken is not None
    single = frozenset(RowKey(time(micros), 0) for micros in (1, 5, 6))
    assert taken.marks == {
        STREAMS[0]: Mark(None, single),
        STREAMS[1]: Mark(RowKey(time(5), 0)),
    }
    acknowledge(work, pages[0], 0)
    assert work.held == 0
    taken = work.take()
    assert taken is not None
    assert taken.marks == {STREAMS[0]: Mark(RowKey(time(6), 0))}


def test_the_first_records_of_a_page_are_marked_by_their_last_row() -> None:
    """A mark stores the last row of the complete records that begin a page, and each later row."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    rows = page(
        place(0, 1, 0, 2, is_last=False),
        place(0, 1, 1, 3),
        place(0, 2),
        place(0, 3, 0, is_last=False),
        place(0, 3, 1),
    )
    work.deliver(rows)
    acknowledge(work, rows, 0, 1, 2, 3)
    taken = work.take()
    assert taken is not None
    assert taken.marks == {STREAMS[0]: Mark(RowKey(time(2), 0), frozenset([RowKey(time(3), 0)]))}

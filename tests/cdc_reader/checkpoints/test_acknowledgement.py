"""Checkpoints cover exactly the acknowledged rows."""

from __future__ import annotations

import random
from itertools import groupby

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.checkpoints.acknowledgement import Acknowledgements, InFlightRows
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.reading.progress import Checkpoint, Mark, RowKey
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window

BASE = 1_700_000_000_000_000
LENGTH = 10
STREAMS = [StreamId.from_parts(token, 0, 0) for token in range(2)]
NAME = CheckpointName("app", TableName("ks", "t"))


def time(micros: int) -> bytes:
    """Return the `cdc$time` of a write at `BASE` + `micros`."""
    return timeuuid.make(BASE + micros, b"\x80" * 8).bytes


def place(stream: int, micros: int, *seqs: int, is_last: bool = True) -> InFlightRows:
    """Return a change with the given rows."""
    return InFlightRows(STREAMS[stream], time(micros), seqs or (0,), is_last)


def names(change: InFlightRows) -> list[tuple[StreamId, RowKey]]:
    """Return the stream and the key of each row of the change."""
    return [(change.stream, RowKey(change.time, seq)) for seq in change.seqs]


def window(number: int) -> Window:
    """Return window `number`; consecutive windows adjoin."""
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
        self.outstanding: list[InFlightRows] = []
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

    def is_acknowledged(self, change: InFlightRows) -> bool:
        return self.acknowledged.issuperset(names(change))

    def deliver(self, change: InFlightRows) -> None:
        self.delivered += names(change)
        self.work.deliver(change)
        self.outstanding.append(change)

    def complete(self, number: int) -> None:
        self.ends.append((len(self.delivered), window(number).end))
        self.work.complete(Checkpoint(window(number).end), window(number))

    def acknowledge(self, choice: int) -> None:
        if self.outstanding:
            change = self.outstanding.pop(choice % len(self.outstanding))
            self.acknowledged.update(names(change))
            self.work.acknowledge(change)

    def save(self) -> None:
        if (checkpoint := self.work.take()) is not None:
            self.store.save(NAME, checkpoint)

    @property
    def position(self) -> int:
        """The reference position: the last window end before which nothing is outstanding."""
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


def records(draw: st.DataObject, number: int) -> list[list[InFlightRows]]:
    """Draw a window's records, stream by stream. Rows of one record's changes may interleave."""
    found = []
    for stream in range(len(STREAMS)):
        for micros in range(number * LENGTH, (number + 1) * LENGTH, 4):
            owners = draw.draw(st.lists(st.integers(0, 2), max_size=3))
            rows = sorted((owner, seq) for seq, owner in enumerate(owners))
            changes = [tuple(seq for _, seq in run) for _, run in groupby(rows, lambda row: row[0])]
            found.append(
                [place(stream, micros, *seqs, is_last=seqs is changes[-1]) for seqs in changes]
            )
    return [record for record in found if record]


@given(st.data(), st.booleans())
@settings(max_examples=200)
def test_a_checkpoint_says_what_is_acknowledged(data: st.DataObject, settled: bool) -> None:
    """Checkpoints are exact for any order of acknowledgements, saves and crashes."""
    log = Log(settled=settled)
    windows = [records(data, number) for number in range(3)]
    order = random.Random(data.draw(st.integers(0, 1 << 32)))
    number = 0
    while number < len(windows):
        crashed = False
        for record in windows[number]:
            left = [change for change in record if not log.is_acknowledged(change)]
            for change in left:
                log.deliver(evolve(change, is_last=change is left[-1]))
                for _ in range(order.randrange(3)):
                    log.acknowledge(order.randrange(100))
                if order.random() < 0.2:
                    log.check()
        log.complete(number)
        log.check()
        if order.random() < 0.2:
            log.start()
            crashed = True
        number = (log.begun.position - BASE) // LENGTH if crashed else number + 1
    while log.outstanding:
        log.acknowledge(order.randrange(100))
        log.check()
    assert log.saved == Checkpoint(window(2).end)
    assert log.work.held == 0


def test_only_changed_marks_are_saved() -> None:
    """`take` returns each changed mark once, and an idle window adds no marks."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    changes = [place(stream, 1) for stream in (0, 1)]
    for change in changes:
        work.deliver(change)
    assert work.take() is None
    work.acknowledge(changes[0])
    assert work.take() == Checkpoint(BASE, None, {STREAMS[0]: Mark(RowKey(time(1), 0))})
    work.acknowledge(changes[1])
    taken = work.take()
    assert taken is not None
    assert list(taken.marks) == [STREAMS[1]]
    assert work.take() is None
    work.complete(Checkpoint(window(0).end, 7, {}, 9), window(0))
    assert work.take() == Checkpoint(window(0).end, 7, {}, 9)


def test_a_change_among_the_rows_of_another_is_named_by_its_rows() -> None:
    """A mark lists the rows of a change one by one if an unacknowledged row lies between them."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    first, second = place(0, 1, 0, 3, is_last=False), place(0, 1, 1, 2)
    work.deliver(first)
    work.deliver(second)
    work.acknowledge(first)
    taken = work.take()
    assert taken is not None
    rows = frozenset([RowKey(time(1), 0), RowKey(time(1), 3)])
    assert taken.marks == {STREAMS[0]: Mark(None, rows)}
    work.acknowledge(second)
    taken = work.take()
    assert taken is not None
    assert taken.marks == {STREAMS[0]: Mark(RowKey(time(1), 3))}


def test_eager_work_names_rows_one_by_one() -> None:
    """Eager delivery marks single rows, because a row may still arrive between two of them."""
    work = Acknowledgements(Checkpoint(BASE), settled=False)
    for micros in (1, 2):
        change = place(0, micros)
        work.deliver(change)
        work.acknowledge(change)
    taken = work.take()
    assert taken is not None
    rows = frozenset([RowKey(time(1), 0), RowKey(time(2), 0)])
    assert taken.marks == {STREAMS[0]: Mark(None, rows)}


def test_late_rows_do_not_hold_up_the_position() -> None:
    """Late rows do not delay the position; only `late_scan_at` waits for them."""
    work = Acknowledgements(Checkpoint(BASE, None, {}, 1), settled=True)
    first, second = window(0).end, window(1).end
    assert work.complete(Checkpoint(first, 5, {}, 1), window(0)) == window(0)
    late = place(0, 4)
    work.deliver(late)
    assert work.complete(Checkpoint(first, 6, {}, 2), None) is None
    assert work.complete(Checkpoint(second, 7, {}, 3), window(1)) is None
    assert work.take() == Checkpoint(first, 5, {}, 1)
    assert work.acknowledge(late) == window(1)
    assert work.take() == Checkpoint(second, 7, {}, 3)


def test_windows_completed_together_are_reported_as_one() -> None:
    """Windows completed while a change is outstanding are reported as one window."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    change = place(0, 1)
    work.deliver(change)
    for number in range(100):
        assert work.complete(Checkpoint(window(number).end), window(number)) is None
    assert work.acknowledge(change) == Window(BASE, window(99).end)


def test_rows_after_an_unacknowledged_one_are_held() -> None:
    """Acknowledged changes are remembered row by row until all earlier changes are acknowledged."""
    work = Acknowledgements(Checkpoint(BASE), settled=True)
    changes = [place(0, micros) for micros in range(5)]
    for change in changes:
        work.deliver(change)
    for change in changes[1:]:
        work.acknowledge(change)
    assert work.held == 5
    work.acknowledge(changes[0])
    assert work.held == 0

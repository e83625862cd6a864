"""The laws of a snapshot, checked at each step. See "Snapshot, then follow" in the design.

A row that does not change while its range is read is delivered once, unchanged, by the shard to
which its stream belongs. A range is done when it has been read to its end and its rows are handled.
A range that is done is never read again. The log comes after all rows, and contains all changes
that the rows may lack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from attrs import define, field, frozen

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.cluster.log import CdcTable
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.snapshot import RangeComplete, SnapshotRows
from cdc_reader.streams.generation import Generation, stream_of
from cdc_reader.streams.ring import TokenRange, TokenRanges
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.window import Window
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery
from tests.cdc_reader.simulation.laws import LawBroken
from tests.cdc_reader.simulation.scenario import Scenario
from tests.cdc_reader.simulation.world import World

TABLE = TableName("ks", "t")
_SELECT = "SELECT token(p), p, c, s, v FROM ks.t"
_ALL = "SELECT * FROM ks.t"

Key = tuple[int, int | None]
"""The columns p and c of a row. If a partition has only a static row, c is None."""


@frozen
class Row:
    """A row of the table, with the token of its partition."""

    token: int
    cells: tuple[int | None, ...]

    @property
    def key(self) -> Key:
        p, c, *_ = self.cells
        assert p is not None
        return p, c


Rows = dict[Key, tuple[Row, tuple[bytes | None, ...]]]
"""Rows by key, each with all its cells as bytes. A row has changed if these cells differ."""


class Beginning:
    """The state that shards share: the start of the first snapshot, and the shard of each row."""

    def __init__(self, world: World) -> None:
        self.store = MemoryCheckpoints(clock=world.clock)
        self.start: Checkpoint | None = None
        self.began: int | None = None
        """The time when the first snapshot began, in µs by the cluster's clock."""
        self.owners: dict[Key, Shard] = {}
        self._world = world
        self._first: Rows = {}
        self._last: Rows = {}

    def begin(self, start: Checkpoint) -> None:
        """Record the start of a shard."""
        if start.snapshot is not None and self.began is None:
            self.began, self.start = self._world.clock.now(), start
            self._first = self.rows()

    def complete(self) -> None:
        """Record that a shard has read all its rows."""
        self._last = self.rows()

    def finish(self) -> None:
        """Check that each row that existed throughout the snapshots was delivered by a shard."""
        for key, row in self._first.items():
            if self._last.get(key) == row and key not in self.owners:
                raise LawBroken(f"{row} came to no shard")

    def rows(self) -> Rows:
        """Return the current rows of the table, each with all its cells."""
        execute = self._world.server.execute
        found = (
            (Row(_number(token), tuple(map(_number, cells))), tuple(every))
            for (token, *cells), every in zip(execute(_SELECT), execute(_ALL), strict=True)
        )
        return {row.key: (row, every) for row, every in found}


@define(eq=False)
class SnapshotPast:
    """The history of a shard's snapshot. `claimed` contains the ranges saved as done."""

    claimed: TokenRanges = TokenRanges()
    is_complete: bool = False


@define(eq=False)
class _Life:
    """The state of one process: the ranges and rows that it has read and handled."""

    claimed: TokenRanges
    before: dict[TokenRange, Rows] = field(factory=dict)
    delivered: dict[int, dict[Key, Row]] = field(factory=dict)
    read: TokenRanges = TokenRanges()
    outstanding: Counter[Row] = field(factory=Counter)
    handled: set[Key] = field(factory=set)


class SnapshotLaws:
    """Checks the successive processes of one shard. All of them share one `past`."""

    def __init__(
        self, world: World, scenario: Scenario, shard: Shard, past: SnapshotPast, shared: Beginning
    ) -> None:
        self._world = world
        self._scenario = scenario
        self._shard = shard
        self._past = past
        self._shared = shared
        self._life = _Life(past.claimed)
        self._generation: Generation | None = None

    def begin(self, start: Checkpoint) -> None:
        """Begin to check a process that starts at the checkpoint `start`."""
        self._life = _Life(self._past.claimed)
        self._shared.begin(start)
        if start.snapshot is None:
            return
        if start.position > start.snapshot.began - self._scenario.confidence:
            raise LawBroken(f"the snapshot begins at {start.position}, which is not settled")
        if start.snapshot.generation is not None:
            current = self._world.current
            connection = InProcessConnection(self._world.server, node=lambda _: current)
            groups = CdcTable(connection, TABLE).generations.groups(start.snapshot.generation)
            self._generation = Generation(Window(BEGINNING, FOREVER), tuple(groups))

    def ask(self, asked: RecordedQuery) -> None:
        """Check that a page request does not read a token range that was already saved as done."""
        if self.is_of_rows(asked):
            tokens = TokenRange(*asked.query.values)  # type: ignore[arg-type]
            if TokenRanges([tokens]).without(self._life.claimed).size != tokens.size:
                raise LawBroken(f"{tokens} is read again, and {self._life.claimed} is done")
            if asked.paging_state is None:
                self._life.before.setdefault(tokens, self._shared.rows())

    @staticmethod
    def is_of_rows(asked: RecordedQuery) -> bool:
        """Return True if the request is for a page of the base table."""
        return "token(" in asked.query.cql and "cdc$time" not in asked.query.cql

    def deliver(self, delivery: SnapshotRows) -> Iterator[Row]:
        """Check delivered rows, and yield each row."""
        if self._past.is_complete:
            raise LawBroken(f"rows of {delivery.tokens} come though the snapshot is complete")
        known = self._life.delivered.setdefault(delivery.reading, {})
        for cells in delivery.batch.to_pylist():
            row = self._row(cells)
            if row.token not in delivery.tokens:
                raise LawBroken(f"{row} is not in {delivery.tokens}")
            if (owner := self._shared.owners.setdefault(row.key, self._shard)) != self._shard:
                raise LawBroken(f"{row} comes to {self._shard}, and came to {owner}")
            if row.key in known:
                raise LawBroken(f"{row} comes twice in one reading")
            known[row.key] = row
            self._life.outstanding[row] += 1
            yield row

    def complete(self, read: RangeComplete) -> None:
        """Check that a completed range contains all rows that did not change while it was read."""
        delivered = self._life.delivered.pop(read.reading, {})
        if read.tokens not in self._life.before:
            raise LawBroken(f"{read.tokens} is complete, and was never read")
        after = self._shared.rows()
        for key, (row, cells) in self._life.before.pop(read.tokens).items():
            is_due = row.token in read.tokens and self._is_own(row)
            if is_due and after.get(key) == (row, cells) and delivered.get(key) != row:
                raise LawBroken(f"{row} of {read.tokens} came as {delivered.get(key)}")
        self._life.read = self._life.read.adding(read.tokens)

    def acknowledge(self, row: Row) -> None:
        """Record that the handler has finished a row."""
        self._life.outstanding[row] -= 1
        self._life.handled.add(row.key)

    def save(self, kept: Checkpoint) -> None:
        """Check that all ranges saved as done were read and that their rows were handled."""
        if kept.snapshot is None:
            if self._scenario.snapshot and not self._past.is_complete:
                self._complete()
            return
        done = kept.snapshot.done
        if new := done.without(self._life.claimed).without(self._life.read):
            raise LawBroken(f"{new} counts as done, and was not read to its end")
        for row in self._outstanding():  # one handler call is enough for a row that was read twice
            if row.key not in self._life.handled and any(row.token in each for each in done):
                raise LawBroken(f"{row} counts as done, and is not handled")
        self._past.claimed = done

    def follow(self) -> None:
        """Check that the log is delivered only after all rows of the snapshot are handled."""
        if self._scenario.snapshot and not self._past.is_complete:
            raise LawBroken("the log is followed before all rows are handled")

    def _complete(self) -> None:
        done = self._life.claimed.adding(*self._life.read)
        for row, _ in self._shared.rows().values():
            if self._is_own(row) and not any(row.token in each for each in done):
                raise LawBroken(f"{row} was never read, and the snapshot is complete")
        if left := list(self._outstanding()):
            raise LawBroken(f"{left[0]} is not handled, and the snapshot is complete")
        self._past.is_complete = True
        self._shared.complete()

    def _outstanding(self) -> Iterator[Row]:
        return (row for row, count in self._life.outstanding.items() if count)

    def _is_own(self, row: Row) -> bool:
        if self._shard.is_whole or self._generation is None:
            return self._shard.is_whole or row.token in self._shard
        return stream_of(self._generation, row.token).token in self._shard

    def _row(self, cells: dict[str, Any]) -> Row:
        token = self._world.token_of(cells["p"])
        return Row(token, tuple(cells[name] for name in ("p", "c", "s", "v")))


def _number(cell: bytes | None) -> Any:
    return None if cell is None else int.from_bytes(cell, "big", signed=True)

"""Checkpoints, which record how far a table's log has been acknowledged.

Every row written before the position has been delivered and acknowledged. Within the window that is
being read, marks identify the rows of each stream that are already acknowledged, so that none of
them is repeated after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from attrs import evolve, field, frozen

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, in_one_line
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.ring import TokenRange, TokenRanges
from cdc_reader.streams.stream import StreamId


@frozen(order=False)
class RowKey:
    """A row's place in its stream: the 16 bytes of `cdc$time`, and `cdc$batch_seq_no`.

    Keys sort in the order in which the server returns a stream's rows.
    """

    time: bytes = field(repr=lambda raw: raw.hex())
    seq: int

    @property
    def micros(self) -> Micros:
        """The write time, in µs since 1970."""
        return timeuuid.micros(self.time)

    @property
    def order(self) -> tuple[tuple[int, bytes], int]:
        return timeuuid.order_key(self.time), self.seq

    def __lt__(self, other: RowKey) -> bool:
        return self.order < other.order

    def __le__(self, other: RowKey) -> bool:
        return self.order <= other.order


LAST_KEY = RowKey(bytes.fromhex("ffffffffffff1fff7f7f7f7f7f7f7f7f"), (1 << 31) - 1)
"""Greater than the key of any row."""


@frozen
class Mark:
    """The acknowledged rows of one stream, from the position on.

    A mark covers all rows up to and including `acked_through`, and the individual `rows`. Only a
    reader that waits for rows to settle may set `acked_through`, because rows with lower keys may
    still arrive after an eager read.
    """

    acked_through: RowKey | None = None
    rows: frozenset[RowKey] = frozenset()

    def __contains__(self, key: RowKey) -> bool:
        return key in self.rows or (self.acked_through is not None and key <= self.acked_through)

    def reaches(self, position: Micros) -> bool:
        """Return True if the mark identifies rows written at `position` (µs) or later."""
        keys = self.rows if self.acked_through is None else (*self.rows, self.acked_through)
        return any(key.micros >= position for key in keys)


@frozen
class SnapshotProgress:
    """The acknowledged part of a snapshot of the table; times are in µs since 1970.

    `began` is when the snapshot began. The checkpoint's position had settled by then. `generation`
    is the start of the generation that determines which rows belong to a shard, or None if there
    was no generation. The ranges in `done` need not be read again, and contain `rows` rows.
    """

    began: Micros
    generation: Micros | None = None
    done: TokenRanges = TokenRanges()
    rows: int = 0

    def after(self, tokens: TokenRange, rows: int) -> SnapshotProgress:
        """Return the progress after the range `tokens`, which contains `rows` rows, is done."""
        return evolve(self, done=self.done.adding(tokens), rows=self.rows + rows)


@frozen
class Checkpoint:
    """The acknowledged part of a table's log; all times are in µs since 1970.

    Every row written before `position` is acknowledged, and so are the later rows that `marks`
    identify. `generation` is the start of the newest generation known when the checkpoint was made.
    If a generation is announced only later, but began before the position, it is read from its
    beginning. `late_scan_at` is when the last search for late rows began, by the reader's clock, or
    None if late rows are ignored.

    `table_id` is the id of the base table, or None if unknown; it changes when the table is dropped
    and recreated. `ttls` contains the log's TTLs and id, from which a reader computes when late
    rows arrived, and whether rows from the position on are gone. While `snapshot` is not None,
    nothing has been read from the log, because the snapshot must be completed first.
    """

    position: Micros
    generation: Micros | None = None
    marks: Mapping[StreamId, Mark] = field(factory=dict)
    late_scan_at: Micros | None = None
    table_id: UUID | None = None
    ttls: TtlHistory = TtlHistory()
    snapshot: SnapshotProgress | None = None
    table: TableName | None = field(default=None, eq=False)
    """The base table, or None if unknown; used in messages only, because stores keep it in the key.
    """

    def check(self) -> None:
        """Raise CheckpointError for values that no reader writes, as in a hand-made checkpoint."""
        times = {
            "position": self.position,
            "generation": self.generation,
            "late_scan_at": self.late_scan_at,
        }
        for name, micros in times.items():
            is_open = micros == BEGINNING or (micros is None and name != "position")
            if not (is_open or is_moment(micros)):
                raise unreadable(name, micros, "microseconds since 1970")
        for mark in self.marks.values():
            rows = mark.rows if mark.acked_through is None else (*mark.rows, mark.acked_through)
            for key in rows:
                if not timeuuid.is_valid(key.time):
                    raise unreadable("mark", key.time.hex(), "time UUIDs as in cdc$time")


def is_moment(micros: object) -> bool:
    """Return whether a stored value can be a time in µs since 1970."""
    return type(micros) is int and 0 <= micros <= timeuuid.MAX_MICROS


def unreadable(name: str, value: object, expected: str) -> CheckpointError:
    """Return the error for a part of a checkpoint that has an unexpected value."""
    return CheckpointError(
        f"the checkpoint's {name} is {in_one_line(value)}: expected {expected}; the "
        "checkpoint was not written by scylla-cdc"
    )


def check_same_table(start: Checkpoint, table: TableName, found: UUID | None) -> None:
    """Raise CheckpointError unless `start` is a checkpoint of `table`, whose id is `found`.

    A name or an id that is None is unknown, and is not compared.
    """
    is_same_id = start.table_id is None or found is None or start.table_id == found
    if start.table is not None and start.table != table:
        raise CheckpointError(
            f"the checkpoint belongs to table {start.table} with id {start.table_id}, but the "
            f"table to read is {table} with id {found}: give a checkpoint of {table}, or start "
            "over without one"
        )
    if is_same_id:
        return
    if start.table is None:
        raise CheckpointError(
            f"the checkpoint belongs to a table with id {start.table_id}, but {table} has id "
            f"{found}: either it is another table's or another cluster's, or {table} was dropped "
            "and created again; start over without the checkpoint"
        )
    raise CheckpointError(
        f"table {table} was dropped and created again, or is in another cluster: the position "
        f"belongs to the table with id {start.table_id}, but this table has id {found}; start over "
        "without the checkpoint, or under another application name"
    )

"""The cursor of a reader: all that it knows between two steps, in Python and in Spark.

A consumer's checkpoint is a cursor that was saved, and Spark's offset contains one. Nothing else
survives a restart, so the rows that a reader delivers next depend only on its cursor and the log.
Begin with `Checkpoint`. `reading.advance` decides what is read next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, dropwhile
from typing import TypeAlias
from uuid import UUID

from attrs import evolve, field, frozen

from cdc_reader._time import BEGINNING, Micros
from cdc_reader.cql import timeuuid
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError, in_one_line
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.ring import TokenRange, TokenRanges
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window

MOST_GENERATIONS = 1_000
"""The maximum number of generations in a cursor, for logs that keep rows forever.

If an older generation is announced later, its rows before the position are not read."""
_MOST_READS = 64
"""The maximum number of reads that a cursor distinguishes."""


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
class KnownGenerations:
    """The generations that a reader knows, by their `starts` in µs, ascending.

    Generations that ended before `dropped` (µs) were dropped, because they have no rows, or because
    there are too many of them. `since` (µs) is the position at which reading began. What was known
    at two cursors determines which generations were announced late between them.
    """

    since: Micros
    starts: tuple[Micros, ...]
    dropped: Micros = BEGINNING

    def seeing(self, visible: Collection[Micros], kept_since: Micros) -> KnownGenerations:
        """Return the generations known to a reader that sees those with the starts `visible`.

        What was known stays known even if it is not visible, because with tablets, a node that lags
        shows fewer. Rows written before `kept_since` (µs) no longer exist, so generations that
        ended before are dropped, once the cluster does not announce them any more. Until then, they
        can be told from one that is announced only now, and whose rows were lost.
        """
        spans = Timeline((*self.starts, *self._announced(visible))).operating()
        seen = [span for span in spans if span.end > self.dropped]
        old = {span.start for span in seen if span.end <= kept_since}.difference(visible)
        kept = [*dropwhile(lambda span: span.start in old, seen)][-MOST_GENERATIONS:]
        dropped = kept[0].start if len(kept) < len(seen) else self.dropped
        return KnownGenerations(self.since, tuple(span.start for span in kept), dropped)

    def _announced(self, visible: Collection[Micros]) -> Collection[Micros]:
        """Return the starts `visible` without one that stands for sets that the server removed."""
        first, *later = sorted(visible) or [BEGINNING]
        stands_in = any(first < start < min(later, default=first) for start in self.starts)
        return later if stands_in else visible

    def missed(
        self, before: KnownGenerations | None, first: Micros, position: Micros
    ) -> dict[Micros, Window]:
        """Return, for each generation that `before` lacks, its unread window behind `position`.

        Nothing is missed by a reader that has just begun: then, `before` is None. Rows written
        before `first` (µs) are not read.
        """
        if before is None:
            return {}
        behind, known = Window(first, position), frozenset(before.starts)
        unread = {
            span.start: span.intersect(behind)
            for span in Timeline(self.starts).operating()
            if span.start not in known
        }
        return {start: window for start, window in unread.items() if not window.is_empty}

    def new(self, before: KnownGenerations | None, position: Micros) -> frozenset[Micros]:
        """Return the starts of the generations that `before` lacks, as far as before `position`."""
        if before is None:
            return frozenset()
        return frozenset(s for s in self.starts if s < position).difference(before.starts)

    def covers(self, position: Micros) -> bool:
        """Return True if `starts` contains all generations that are in force from `position` on."""
        return bool(self.starts) and self.starts[0] <= position

    def with_older(self, visible: Collection[Micros]) -> tuple[Micros, ...]:
        """Return the `starts`, and before them those of older generations in `visible`.

        The oldest visible generation stands for sets of streams that the server has removed.
        """
        oldest = min(self.starts, default=BEGINNING)
        older = [start for start in sorted(visible) if start < oldest]
        first, *later = sorted(visible) or [BEGINNING]
        kept = (s for s in self.starts if not first < s < min(later, default=first))
        return (*older, *kept)


RowName: TypeAlias = tuple[StreamId, RowKey]
"""Identifies a row of the log."""


@frozen
class LateState:
    """What has been delivered of rows that may be late; times are in µs, by the reader's clock.

    The log was read in parts. `ends` contains the end of each part, as a write time, and `reads`
    the time at which the read of each part began, or an earlier one. `known` identifies delivered
    rows that may seem to have arrived after the read of their part. `read_at` is when the last read
    began, and `confidence` the shortest confidence window, in µs, with which a part was read.

    Rows written before `start` are ignored. If reading began with a snapshot of the table, `start`
    is BEGINNING, and `snapshot_at` is when the snapshot began: it contains the changes that were
    written before the position and had arrived by then. See `reading.late.rows`.
    """

    start: Micros
    ends: tuple[Micros, ...]
    reads: tuple[Micros, ...]
    confidence: int
    read_at: Micros
    known: frozenset[tuple[StreamId, RowKey]] = frozenset()
    snapshot_at: Micros | None = None

    @classmethod
    def begin(cls, position: Micros, now: Micros, confidence: int) -> LateState:
        """Return the state of a reader that begins at `position` at the time `now`."""
        return cls(position, (position,), (now,), confidence, now)

    @classmethod
    def begin_snapshot(cls, position: Micros, now: Micros, confidence: int) -> LateState:
        """Return the state of a reader that reads the table first, from the time `now` on."""
        return cls(BEGINNING, (position,), (now,), confidence, now, snapshot_at=now)

    @property
    def searched_at(self) -> Micros:
        """The time from which on late rows have not been looked for in every part."""
        return min(self.reads)

    def began(self, now: Micros) -> Micros:
        """Return when the next part's read began, if it begins `now`.

        The number of parts is limited. Beyond the limit, a part is added to the last one, whose
        read began earlier.
        """
        return min(now, self.reads[-1]) if len(self.reads) >= _MOST_READS else now

    def after(self, end: Micros, began: Micros, now: Micros) -> LateState:
        """Return the state after a read that began `now` covered the log up to `end`.

        `began` is what the method `began` returned, or an earlier time.
        """
        if len(self.reads) >= _MOST_READS and began == self.reads[-1]:
            return evolve(self, ends=(*self.ends[:-1], end), read_at=now)
        return evolve(self, ends=(*self.ends, end), reads=(*self.reads, began), read_at=now)

    def knowing(self, names: Iterable[tuple[StreamId, RowKey]]) -> LateState:
        """Return the state in which these delivered rows are known as well."""
        return evolve(self, known=self.known.union(names))

    def read_with(self, confidence: int) -> LateState:
        """Return the state of a reader whose confidence window is now this long, in µs."""
        return evolve(self, confidence=min(confidence, self.confidence))


@frozen
class Checkpoint:
    """The cursor of a reader: what it has delivered of a table's log, or acknowledged.

    All times are in µs since 1970. Every row written before `position` has been delivered, and so
    have the later rows that `marks` identify. `generations` are those known when the checkpoint was
    made, or None before the log is read. If a generation is announced only later, but began before
    the position, it is read from its beginning. `late` is what is known of late rows, or None if
    they are not delivered.

    `table_id` is the id of the base table, or None if unknown; it changes when the table is dropped
    and recreated. `ttls` contains the log's TTLs and id, from which a reader computes when late
    rows arrived, and whether rows from the position on are gone. While `snapshot` is not None,
    nothing has been read from the log, because the snapshot must be completed first.
    """

    position: Micros
    generations: KnownGenerations | None = None
    marks: Mapping[StreamId, Mark] = field(factory=dict)
    late: LateState | None = None
    table_id: UUID | None = None
    ttls: TtlHistory = TtlHistory()
    snapshot: SnapshotProgress | None = None
    table: TableName | None = field(default=None, eq=False)
    """The base table, or None if unknown; used in messages only, because stores keep it in the key.
    """

    @property
    def generation(self) -> Micros | None:
        """The start of the newest generation known, in µs, or None if none is known."""
        return max(self.generations.starts, default=None) if self.generations else None

    @property
    def has_read(self) -> bool:
        """True if the position was reached by reading the log; False if it was chosen."""
        return self.generations is not None

    @property
    def first(self) -> Micros:
        """The earliest write time, in µs, of rows that the reader delivers."""
        if self.late is not None and self.late.snapshot_at is not None:
            return self.late.start
        return self.generations.since if self.generations else self.position

    def check(self) -> None:
        """Raise CheckpointError for values that no reader writes, as in a hand-made checkpoint."""
        known, late, snapshot = self.generations, self.late, self.snapshot
        moments: dict[str, Iterable[object]] = {
            "position": {self.position} - {BEGINNING},
            "generations": () if known is None else (known.since, *known.starts),
            "dropped generations": () if known is None else {known.dropped} - {BEGINNING},
            "late rows": () if late is None else (*late.ends, *late.reads, late.read_at),
            "snapshot": () if late is None else {late.snapshot_at} - {None},
            "start of late rows": () if late is None else {late.start} - {BEGINNING},
            "confidence window": () if late is None else (late.confidence,),
            "TTL": chain.from_iterable(self.ttls.changes),
            "dropped log": (max(0, self.ttls.log_lost),),
            "start of a snapshot": () if snapshot is None else (snapshot.began,),
        }
        for name, times in moments.items():
            for micros in times:
                if not is_moment(micros):
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

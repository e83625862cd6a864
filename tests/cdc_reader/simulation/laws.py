"""The laws of following a log, checked at each step. The first broken law ends a run.

The design page lists the laws. Between two positions, no row is lost or delivered twice, whatever
fails or restarts. The rows of a stream, and the changes of a base partition, come in order. A
checkpoint is never ahead of the acknowledged rows. A stream is read only for write times within its
generation, according to the generations announced so far. A reader that delivers late rows also
delivers strays. It delivers only one of two twins, which are log rows of the same write in two
streams. If rows expire before they are read, each reader reports their span of write time as lost,
exactly once. No span is reported before its rows can have expired.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol
from uuid import UUID

from attrs import define, evolve, field

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import OPERATION
from cdc_reader.reading.cursor import Checkpoint, Mark, RowKey, RowName
from cdc_reader.reading.deduplication import ROW_KEY
from cdc_reader.reading.delivery import RowsRead, WindowComplete
from cdc_reader.reading.late.rows import DOUBT
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window
from cdc_reader.testing.in_process import RecordedQuery
from tests.cdc_reader.simulation.scenario import LARGEST_SKEW, SECOND, Scenario
from tests.cdc_reader.simulation.truth import LogRow
from tests.cdc_reader.simulation.world import World

_STREAM_QUERIES = (" streams FROM", "FROM system.cdc_streams ")
_GENERATION_QUERIES = ("cdc_generation_timestamps", "cdc_timestamps", "DISTINCT time")
_EARLY = 10_000_000
"""A row may expire up to this many µs before its write time plus its TTL."""
_NUMBERS = ("p", "c", "s", "v")
_NO_MARK = Mark()


class Beginning(Protocol):
    """The start of the first snapshot, in µs by the cluster's clock, or None without a snapshot."""

    began: int | None


class LawBroken(AssertionError):
    """A law was broken."""


_KEYS = {*ROW_KEY, f"ttl({OPERATION})"}
"""The columns of a request for the keys of rows."""


@define(eq=False)
class _Life:
    """The state of one reader since its start: its deliveries and its reported losses."""

    position: int
    delivered: set[RowName | RowKey] = field(factory=set)
    newest: dict[StreamId, RowKey] = field(factory=dict)
    latest: dict[int | None, int] = field(factory=dict)
    lost: list[Window] = field(factory=list)


@define(eq=False)
class _Sweep:
    """Late rows that a sweep found.

    The rows count as read once all rows in `awaits` are acknowledged.
    """

    rows: set[RowName]
    awaits: set[RowName]


@define(eq=False)
class Past:
    """The history of a shard's readers.

    The current checkpoint counts the rows in `claimed` as read. `lost` contains the spans of write
    time that were reported as lost. Rows written before `held_since` had expired, or were about to
    expire, when a reader without a checkpoint began.
    """

    first: int | None = None
    acknowledged: set[RowKey] = field(factory=set)
    claimed: set[RowName | RowKey] = field(factory=set)
    lost: list[Window] = field(factory=list)
    held_since: int = BEGINNING


class Laws:
    """Checks the successive readers of one shard.

    The processes of one shard share their `past`.
    """

    def __init__(
        self, world: World, scenario: Scenario, shard: Shard, past: Past, beginning: Beginning
    ) -> None:
        self._world = world
        self._beginning = beginning
        self._scenario = scenario
        self._shard = shard
        self.past = self._past = past
        self._refreshes: list[int] = []
        self._is_new_refresh = True
        self._claimed: set[RowName | RowKey] = set()

    def begin(self, start: Checkpoint) -> None:
        """Begin to check a reader that starts at the checkpoint `start`."""
        self._life = _Life(start.position)
        self._claimed = set(self._past.claimed)
        self._outstanding: set[RowName] = set()
        self._behind: set[RowName] = set()
        self._sweeps: list[_Sweep] = []
        self._is_chosen = start.generation is None
        if self._past.first is None and start.position > BEGINNING:
            self._past.first = start.position

    def ask(self, asked: RecordedQuery) -> None:
        """Check that the streams of a page request can receive writes in the requested window.

        A request for keys alone may find out what was delivered of a window, in other streams.
        """
        cql = asked.query.cql
        if "cdc$time" in cql:
            self._begin_reading()
        if "schema_version" in cql:
            self._is_new_refresh = True
        elif any(words in cql for words in _STREAM_QUERIES):
            self._is_new_refresh = False  # a lookup after the refresh may also query times
        elif any(words in cql for words in _GENERATION_QUERIES):
            self._refreshes = [] if self._is_new_refresh else self._refreshes
            self._world.note_everywhere()
            self._refreshes.append(self._world.clock.now())
            self._is_new_refresh = False
        elif "cdc$time" in cql and not self._wants_strays and _is_of_rows(asked):
            self._read(*asked.query.values)

    def _begin_reading(self) -> None:
        """Record, at a reader's first query, the write time from which it must find all rows."""
        ttl, start = self._scenario.ttl, self._life.position
        if ttl and self._is_chosen:
            expired = self._world.clock.now() + self._scenario.skew - ttl
            soon = max(ttl // 10, min(60 * SECOND, ttl // 2)) if start == BEGINNING else 0
            if start < expired - 60 * SECOND:  # later starts are checked after the read
                self._past.held_since = max(self._past.held_since, expired + _EARLY + soon)
        self._is_chosen = False

    def deliver(self, delivery: RowsRead, now: int) -> Iterator[LogRow]:
        """Check a delivered batch at time `now` on the reader's clock."""
        window = delivery.window
        is_settled = window.end <= now - self._scenario.confidence
        if not (is_settled or delivery.late or self._scenario.is_eager):
            raise LawBroken(f"rows of {window} are delivered at {now}, unsettled")
        columns = self._world.log_columns()
        for row in delivery.batch.to_pylist():
            found = self._row(row)
            if delivery.late or self._scenario.is_eager or self._is_in_time(found):
                self._check_cells(found, row, columns)
            self._check_once(found, delivery)
            self._check_order(found, delivery)
            yield found

    def complete(self, delivery: WindowComplete, now: int) -> None:
        """Check that a window reported as complete has settled and follows the previous window."""
        window, life = delivery.window, self._life
        self._begin_reading()  # if all rows of a window have expired, it needs no query
        if delivery.late:
            self._sweeps.append(_Sweep(self._behind, set(self._outstanding)))
            self._behind = set()
            return
        if window.end > now - self._scenario.confidence:
            raise LawBroken(f"{window} is complete at {now}, unsettled")
        if life.position not in (BEGINNING, window.start):
            raise LawBroken(f"{window} follows {life.position}")
        self._past.first = window.start if self._past.first is None else self._past.first
        life.position = window.end

    def lose(self, lost: Window, now: int) -> None:
        """Check and record a loss reported at time `now` on the reader's clock."""
        if lost.end > now - self._scenario.ttl + _EARLY:
            raise LawBroken(f"{lost} is called lost at {now}, before it can have expired")
        if not all(lost.intersect(other).is_empty for other in self._life.lost):
            raise LawBroken(f"{lost} is called lost twice")
        self._life.lost.append(lost)
        self._past.lost.append(lost)

    def acknowledge(self, name: RowName) -> None:
        """Record that the handler has finished a row."""
        self._past.acknowledged.add(name[1])
        self._outstanding.remove(name)
        for each in self._sweeps:
            each.awaits.discard(name)

    def save(self, kept: Checkpoint) -> None:
        """Check that a saved checkpoint does not count an unacknowledged row as read.

        A mark may be later than an expired row, because the row's loss is reported with the rest of
        the window.
        """
        claimed = [row for row in self._rows() if self._claims(kept, row)]
        for row in claimed:
            is_judged = row.micros < kept.position or not self._has_expired(row)
            if is_judged and not self._is_acknowledged(row) and self._is_due(row):
                raise LawBroken(f"{evolve(kept, marks={})} is ahead of {row}")
        undone = self._behind.union(*(each.rows for each in self._sweeps if each.awaits))
        self._claimed = {
            self._identity(row)
            for row in claimed
            if self._is_acknowledged(row)
            and row.name not in undone
            and not self._may_seem_late(kept, row)
        }
        self._past.claimed = set(self._claimed)

    def finish(self, until: int) -> None:
        """Check that each row due before `until` has been handled."""
        for row in self._rows():
            if row.micros < until and self._is_due(row) and not self._is_acknowledged(row):
                raise LawBroken(f"lost: {row}")

    def _rows(self) -> Iterator[LogRow]:
        return (row for row in self._world.truth.rows.values() if row.name[0].token in self._shard)

    @property
    def _wants_strays(self) -> bool:
        return self._scenario.delivers_late_rows

    def _identity(self, row: LogRow) -> RowName | RowKey:
        """Return the identity of a row. Twins share an identity if late rows are delivered."""
        return row.name[1] if self._wants_strays else row.name

    def _is_acknowledged(self, row: LogRow) -> bool:
        """Return True if the row or its twin is acknowledged."""
        return row.name[1] in self._past.acknowledged

    def _is_due(self, row: LogRow) -> bool:
        """Return True if the row must be delivered.

        A row is due if it was written after the start, or arrived after a snapshot began. Unless
        late rows are delivered, the row must also have arrived in time and must not be a stray.
        Rows that were reported as lost, or were written before `held_since`, are never due.
        """
        first = BEGINNING if self._past.first is None else self._past.first
        is_wanted = self._is_in_time(row) and not self._world.is_stray(row)
        began = FOREVER if self._beginning.began is None else self._beginning.began
        is_after = row.micros >= first or row.arrived > began
        is_kept = row.micros >= self._past.held_since and not self._is_lost(row)
        return is_after and is_kept and (is_wanted or self._is_due_late(row))

    def _has_expired(self, row: LogRow) -> bool:
        """Return True if the row may have expired.

        Each node counts whole seconds by its own clock.
        """
        expires = row.arrived + self._scenario.ttl - LARGEST_SKEW - SECOND
        return self._scenario.ttl > 0 and expires <= self._world.clock.now()

    def _is_lost(self, row: LogRow) -> bool:
        """Return True if the row was reported as lost."""
        return any(row.micros in lost for lost in self._past.lost)

    def _is_due_late(self, row: LogRow) -> bool:
        """Return True if a late row or a stray is due. A stray with a twin is never due."""
        is_twin = len(self._world.truth.twins(row)) > 1
        return self._wants_strays and not (is_twin and self._world.is_stray(row))

    def _is_in_time(self, row: LogRow) -> bool:
        return row.is_in_time(self._scenario.confidence, self._scenario.skew)

    def _may_seem_late(self, kept: Checkpoint, row: LogRow) -> bool:
        """Return True if a reader that starts from the checkpoint may take the row for a late one.

        Not if the checkpoint names the row, or if it arrived well before the last search.
        """
        if kept.late is None or row.is_in_time(
            self._scenario.confidence, self._scenario.skew + DOUBT
        ):
            return False
        is_old = row.arrived < min(kept.late.reads) - self._scenario.skew - 2 * DOUBT
        return not (is_old or row.name in kept.late.known)

    def _claims(self, kept: Checkpoint, row: LogRow) -> bool:
        """Return True if a reader that starts from the checkpoint treats the row as delivered.

        A row written before the checkpoint's position must belong to a generation that the
        checkpoint has reached. A later row must be covered by a mark. A row that arrived late must
        also be acknowledged, unless a mark lists it.
        """
        stream, key = row.name
        mark = kept.marks.get(stream, _NO_MARK)
        if row.micros < kept.position:
            is_passed = self._world.set_of(stream).start <= (kept.generation or BEGINNING)
        else:
            is_passed = key in mark
        is_expected = self._is_in_time(row) or self._is_acknowledged(row)
        return key in mark.rows or (is_passed and is_expected)

    def _read(self, *values: Any) -> None:
        *partitions, start, end = values
        window = Window(*(timeuuid.micros(bound.bytes) for bound in (start, end)))
        sets = (
            [self._world.set_of(stream) for stream in partitions[0]]
            if len(partitions) == 1
            else self._world.sets
        )
        is_removed = window.end <= self._world.oldest_set  # then all streams with rows are read
        if not is_removed and not any(self._operates(each.start, window) for each in sets):
            raise LawBroken(f"{window} is asked of streams that are not in force then")

    def _operates(self, start: int, window: Window) -> bool:
        """Return True if the set of streams from `start` may receive writes throughout the window.

        A set receives writes until the start of the next set that was announced, at all nodes,
        before the reader's last refresh. Sets that the server has removed count as one.
        """
        refreshed, oldest = min(self._refreshes, default=BEGINNING), self._world.oldest_set
        known = [
            s.start
            for s in self._world.sets
            if s.everywhere is not None and s.everywhere <= refreshed and s.start >= oldest
        ]
        return start <= window.start and not any(start < other < window.end for other in known)

    def _row(self, row: dict[str, Any]) -> LogRow:
        key = RowKey(UUID(row["cdc$time"]).bytes, row["cdc$batch_seq_no"])
        found = self._world.truth.rows.get((StreamId(row["cdc$stream_id"]), key))
        if found is None:
            raise LawBroken(f"there is no such row: {row}")
        if found.name[0].token not in self._shard:
            raise LawBroken(f"{found} is of another shard than {self._shard}")
        return found

    def _check_cells(self, found: LogRow, row: dict[str, Any], columns: set[str]) -> None:
        """Check that the row has the right value for each column that the log still has."""
        for name in found.cells.keys() & columns:
            if name not in row:
                raise LawBroken(f"{found} came without its column {name}")
            if name in _NUMBERS or name.startswith("x"):
                self._check_cell(name, found.number(name), row[name])
        if row.get("u") is not None:
            fields = found.fields("u")
            self._check_cell("u", fields, list(row["u"].values())[: len(fields)])

    def _check_cell(self, name: str, written: Any, read: Any) -> None:
        if written != read:
            raise LawBroken(f"{name} was written as {written} and read as {read}")

    def _check_once(self, row: LogRow, delivery: RowsRead) -> None:
        identity = self._identity(row)
        if identity in self._life.delivered:
            raise LawBroken(f"delivered twice without a restart: {row}, now in {delivery.window}")
        if identity in self._claimed:
            raise LawBroken(f"delivered though a checkpoint says it was: {row}")
        if row.micros not in delivery.window:
            raise LawBroken(f"{row} is not in {delivery.window}")
        self._life.delivered.add(identity)
        self._outstanding.add(row.name)

    def _check_order(self, row: LogRow, delivery: RowsRead) -> None:
        (stream, key), life = row.name, self._life
        newest = life.newest.get(stream)
        is_behind = newest is not None and key <= newest
        if delivery.late:
            if row.micros < life.position:
                self._behind.add(row.name)
            elif not is_behind and not self._world.is_stray(row):
                raise LawBroken(f"{row} is called late, and is not")
            return
        if is_behind or row.micros < life.position:
            raise LawBroken(f"{row} comes behind {newest} and is not called late")
        life.newest[stream] = key
        partition = row.number("p")
        if not self._scenario.is_eager and row.micros < life.latest.get(partition, BEGINNING):
            raise LawBroken(f"{row} comes out of its base partition's order")
        life.latest[partition] = row.micros


def _is_of_rows(asked: RecordedQuery) -> bool:
    """Return True if the request is for whole rows of the log, not only for their keys."""
    return bool({column.name for column in asked.query.columns or ()} - _KEYS)

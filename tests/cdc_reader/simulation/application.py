"""Applications that follow the table, handle rows, save checkpoints and crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
from attrs import evolve, frozen

from cdc_reader._time import BEGINNING, Clock
from cdc_reader.changes.records import ChangeRows
from cdc_reader.checkpoints.acknowledgement import Acknowledgements, InFlightRows
from cdc_reader.checkpoints.ranges import RangeAcknowledgements
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cluster import CdcTable, ClusterClock
from cdc_reader.cluster.queries import Node, Queries, Query, Request
from cdc_reader.config import ReadConfig
from cdc_reader.consumer import ConsumerConfig
from cdc_reader.consumer import snapshot_start as consumer_snapshot
from cdc_reader.cql.names import TableName
from cdc_reader.errors import LeaseLostError, RetriesExhaustedError, TransientError
from cdc_reader.reading.cursor import Checkpoint, RowName
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.follower import Follower
from cdc_reader.reading.retry import Stop
from cdc_reader.reading.snapshot import (
    RangeComplete,
    SnapshotReader,
    SnapshotRows,
    begin_snapshot,
)
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.window import Window
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery
from tests.cdc_reader.simulation.holding import Holding
from tests.cdc_reader.simulation.laws import Laws, Past
from tests.cdc_reader.simulation.scenario import SECOND, Scenario
from tests.cdc_reader.simulation.snapshot_laws import Beginning, Row, SnapshotLaws, SnapshotPast
from tests.cdc_reader.simulation.world import ReaderClock, World

T = TypeVar("T")
TABLE = TableName("ks", "t")


class Crash(BaseException):
    """A crash of the process, which handlers cannot catch."""


@frozen
class DeliveredRow:
    """A delivered row of a snapshot, and the number of the read that delivered it."""

    reading: int
    row: Row


@frozen
class DeliveredLogRow:
    """A delivered row of the log: its page, the index of its change in the page, and its name."""

    rows: InFlightRows
    number: int
    name: RowName


class _Connection(Queries):
    """A connection with one page size for ks.t and its log, and another for all other tables."""

    def __init__(self, log: Queries, other: Queries) -> None:
        self._log = log
        self._other = other

    @property
    def hosts(self) -> str:
        return self._other.hosts

    def request(self, query: Query) -> Request:
        is_large = "cdc$time" in query.cql or "token(" in query.cql
        return (self._log if is_large else self._other).request(query)

    def nodes(self) -> Sequence[Node]:
        return self._other.nodes()

    def retry(self, action: Callable[[], T]) -> T:
        return self._other.retry(action)


def rivals(
    world: World,
    scenario: Scenario,
    rng: random.Random,
    luck: random.Random,
    shard: Shard,
    beginning: Beginning,
) -> list[Application]:
    """Return the applications of one shard: one, or several that compete for the shard's lease."""
    name = CheckpointName("simulation", TABLE, str(shard))
    holding, past, rows = Holding(world, name, scenario.lease), Past(), SnapshotPast()
    if scenario.delay and shard.number > 1:
        world.pass_time(scenario.delay)
    return [
        Application(world, scenario, rng, luck, shard, holding, past, rows, beginning)
        for _ in range(scenario.rivals + 1)
    ]


class Application:
    """A shard's process and its successors after crashes, which share only `holding`."""

    def __init__(
        self,
        world: World,
        scenario: Scenario,
        rng: random.Random,
        luck: random.Random,
        shard: Shard,
        holding: Holding,
        past: Past,
        rows: SnapshotPast,
        beginning: Beginning,
    ) -> None:
        self.laws = Laws(world, scenario, shard, past, beginning)
        self.snapshot_laws = SnapshotLaws(world, scenario, shard, rows, beginning)
        self.starts = 0
        self.holding = holding
        self._world = world
        self._scenario = scenario
        self._rng = rng
        self._luck = luck
        self._shard = shard
        self._clock = ReaderClock(world, scenario.skew)
        self._beginning = beginning
        self._first_position = 0 if scenario.snapshot else self._position()
        self._ranges: RangeAcknowledgements | None = None
        self._awake_at = self._renew_at = BEGINNING
        self._start()

    def step(self) -> None:
        """Process the next delivery and do some work, or crash and restart."""
        if not (self._is_awake() and self._is_running()):
            self._world.pass_time(int(self._luck.expovariate(1) * SECOND))
            return
        try:
            if self._scenario.nap and self._luck.random() < self._scenario.saving:
                self._save()  # after a suspension, a save in another thread may run first
            self._renew()
            self._take_next()
            self._work()
        except (Crash, RetriesExhaustedError, LeaseLostError) as end:
            self._world.tell(f"{self._shard} {self._hold} ends: {end!r}")
            if isinstance(end, RetriesExhaustedError):
                self._hold.release()
            self._start()

    def is_through(self, until: int) -> bool:
        """Return True if all rows written before `until`, including late ones, have been read."""
        is_swept = not self._scenario.delivers_late_rows or (self._late_scan_at or 0) > until
        return self._position_reached > until and is_swept

    def finish(self, until: int) -> None:
        """Stop the process, and check that no row is missing.

        Before it stops, the process handles the rows in flight and saves its checkpoint. All rows
        written before `until` must be handled.
        """
        self._stop()
        self.laws.finish(until)

    def _position(self) -> int:
        match self._scenario.start:
            case "earliest":
                return BEGINNING
            case "now":
                return self._clock.now()
            case _:
                return self._clock.now() - self._rng.randrange(1, 60 * SECOND)

    def _is_awake(self) -> bool:
        return self._world.is_calm or self._clock.now() >= self._awake_at

    def _is_running(self) -> bool:
        """Return True if the process is reading.

        A process that is waiting for its lease first tries to acquire it.
        """
        if self._waits and self._hold.acquire():
            self._begin()
        return not self._waits

    def _renew(self) -> None:
        """Renew the lease well before it expires."""
        if self._clock.now() >= self._renew_at:
            self._hold.renew()
            self._renew_at = self._clock.now() + self._scenario.lease // 3

    def _start(self) -> None:
        """Start a process, which begins to read when it holds the lease."""
        self._hold = self.holding.hold(self._scenario.skew)
        self._waits, self._renew_at = True, BEGINNING
        self._position_reached = BEGINNING
        self._late_scan_at: int | None = None
        self._is_running()

    def _begin(self) -> None:
        self._waits = False
        self._outage: str | None = None
        machine = ReaderClock(self._world, self._scenario.machine)
        self._cluster_clock = ClusterClock(self._connection(), machine)
        try:
            start = self.holding.load(self._first)
        except (Crash, RetriesExhaustedError):
            self._waits = True  # the process ends before it has read anything
            return
        self._world.tell(f"{self._shard} {self._hold} starts from {_shown(start)}")
        self.starts += 1
        self._handed: list[DeliveredLogRow | DeliveredRow] = []
        self._position_reached, self._late_scan_at = start.position, _searched_at(start)
        self._acknowledgements = Acknowledgements(start, settled=not self._scenario.is_eager)
        self.laws.begin(start)
        self.snapshot_laws.begin(start)
        if start.snapshot is None:
            self._ranges = None
            self._follow(start)
        else:
            self._ranges = RangeAcknowledgements(start)
            self._reader = SnapshotReader(*self._reading(start))
            self._rows = self._reader.deliveries()

    def _follow(self, start: Checkpoint) -> None:
        self._follower = Follower(*self._reading(start), on_loss=self._lose)
        self._deliveries = self._follower.follow()

    def _lose(self, lost: Window) -> None:
        self._world.tell(f"{self._shard} lost {lost}")
        self.laws.lose(lost, self._clock.now())

    def _reading(self, start: Checkpoint) -> tuple[CdcTable, Clock, ReadConfig, Checkpoint, Shard]:
        table = CdcTable(self._connection(), TABLE)
        return table, self._cluster_clock, self._scenario.config, start, self._shard

    def _first(self) -> Checkpoint:
        """Return the checkpoint from which the shard is first read."""
        if not self._scenario.snapshot:
            return Checkpoint(self._first_position)
        table = CdcTable(self._connection(), TABLE)
        begin = partial(begin_snapshot, table, self._cluster_clock, self._scenario.config)
        shared, name = self._beginning.store, self.holding.name
        return consumer_snapshot.snapshot_start(name, shared, ConsumerConfig(), Stop(), begin)

    def _connection(self) -> _Connection:
        scenario = self._scenario
        small = evolve(scenario.config, fetch_size=scenario.small_pages)
        return _Connection(*map(self._connected, (scenario.config, small)))

    def _connected(self, config: ReadConfig) -> InProcessConnection:
        return InProcessConnection(
            self._world.server,
            config,
            before=self._before,
            sleep=lambda seconds: self._world.pass_time(int(seconds * SECOND)),
            node=self._world.answering,
        )

    def _take_next(self) -> None:
        if self._ranges is not None:
            self._take_rows(self._ranges)
            return
        delivery = next(self._deliveries)
        self.snapshot_laws.follow()
        self._world.tell(f"{self._shard} has {_said(delivery)}")
        if isinstance(delivery, WindowComplete):
            self.laws.complete(delivery, self._clock.now())
            window = None if delivery.late else delivery.window
            self._acknowledgements.complete(delivery.checkpoint, window)
            self._late_scan_at = _searched_at(delivery.checkpoint)
            self._position_reached = delivery.position
        else:
            names = [row.name for row in self.laws.deliver(delivery, self._clock.now())]
            rows = InFlightRows(delivery.batch, ChangeRows.of_snapshot(len(names)))
            self._acknowledgements.deliver(rows)
            self._handed += (DeliveredLogRow(rows, *each) for each in enumerate(names))

    def _take_rows(self, ranges: RangeAcknowledgements) -> None:
        """Take the next rows of the snapshot. Follow the log once all rows are acknowledged."""
        delivery = next(self._rows, None)
        match delivery:
            case SnapshotRows():
                self._world.tell(f"{self._shard} has rows of {delivery.tokens}")
                for row in self.snapshot_laws.deliver(delivery):
                    self._handed.append(DeliveredRow(delivery.reading, row))
                    ranges.deliver(delivery.reading)
            case RangeComplete():
                self._world.tell(f"{self._shard} has all of {delivery.tokens}")
                self.snapshot_laws.complete(delivery)
                ranges.complete(delivery)
            case None if not self._handed:
                self._keep(self._reader.complete)
                self._ranges = None
                self._follow(self._reader.complete)

    def _work(self) -> None:
        """Acknowledge some rows in any order, save and pause, then maybe crash or stop."""
        if self._rng.random() >= self._scenario.laziness:
            self._rng.shuffle(self._handed)
            self._acknowledge(self._rng.randint(0, len(self._handed)))
        if self._naps():
            return
        if self._rng.random() < self._scenario.saving:
            self._save()
        if self._world.is_calm:
            return
        self._world.pass_time(int(self._rng.expovariate(10) * SECOND))
        if self._scenario.stall and self._luck.random() < self._scenario.stall:
            self._world.pass_time(int(self._luck.uniform(0.3, 1.5) * self._scenario.ttl))
        if self._rng.random() < self._scenario.crash:
            raise Crash
        if self._rng.random() < self._scenario.stop:
            self._world.tell(f"{self._shard} {self._hold} stops")
            self._stop()
            self._hold.release()
            self._start()

    def _naps(self) -> bool:
        """Maybe suspend the process. Return True if it is suspended."""
        if not self._scenario.nap or self._luck.random() >= self._scenario.nap:
            return False
        micros = int(self._luck.uniform(0.8, 3) * self._scenario.lease)
        self._world.tell(f"{self._shard} {self._hold} naps for {micros} µs")
        self._awake_at = self._clock.now() + micros
        return True

    def _acknowledge(self, count: int) -> None:
        if count:
            self._hold.keep()
        for _ in range(count):
            handed = self._handed.pop()
            if isinstance(handed, DeliveredRow):
                if self._ranges is not None:
                    self._ranges.acknowledge(handed.reading)
                self.snapshot_laws.acknowledge(handed.row)
                continue
            self._acknowledgements.acknowledge(handed.rows, np.array([handed.number]))
            self.laws.acknowledge(handed.name)

    def _save(self) -> None:
        checkpoint = (self._ranges or self._acknowledgements).take()
        if checkpoint is not None:
            reading = self._follower if self._ranges is None else self._reader
            self._keep(reading.with_table_facts(checkpoint))

    def _keep(self, checkpoint: Checkpoint) -> None:
        kept = self._hold.save(checkpoint)
        self.laws.save(kept)
        self.snapshot_laws.save(kept)

    def _stop(self) -> None:
        if self._ranges is None:
            self._follower.stop()
            for _ in self._rest():
                pass
        self._acknowledge(len(self._handed))
        self._save()

    def _rest(self) -> Iterator[None]:
        """Process the remaining deliveries after the follower has been stopped."""
        while True:
            try:
                self._take_next()
            except StopIteration:
                return
            yield

    def _before(self, asked: RecordedQuery) -> None:
        """Let time pass before a page request. The request may fail, or the process may crash."""
        if not self._world.is_calm:
            self._world.pass_time(int(self._rng.expovariate(20) * SECOND))
            self._strike(asked)
        self._renew()
        self.snapshot_laws.ask(asked)
        self.laws.ask(asked)

    def _strike(self, asked: RecordedQuery) -> None:
        scenario, chance = self._scenario, self._rng.random()
        if chance < scenario.crash:
            raise Crash
        if chance < scenario.crash + scenario.outage:
            self._outage = asked.query.cql
        if self._outage == asked.query.cql or chance > 1 - scenario.fault:
            raise TransientError(f"{asked.query.purpose}: no answer")


def _said(delivery: Delivery) -> str:
    rows = f"{delivery.batch.num_rows} rows" if isinstance(delivery, RowsRead) else "complete"
    return f"{rows} of {delivery.window}{', late' * delivery.late}"


def _shown(start: Checkpoint) -> str:
    """Return the checkpoint as text, without the marks and ids, which differ between runs."""
    plain = evolve(start, marks={}, table_id=None, ttls=evolve(start.ttls, logs=()))
    return f"{plain} with marks on {len(start.marks)} streams"


def _searched_at(checkpoint: Checkpoint) -> int | None:
    """Return when the last search for late rows began, or None if they are not delivered."""
    return None if checkpoint.late is None else checkpoint.late.searched_at

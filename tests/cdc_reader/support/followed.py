"""A table on an in-process embedded server, and readers with a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from attrs import define, evolve, field

from cdc_reader._time import FOREVER, Micros
from cdc_reader.cluster.log import CdcTable
from cdc_reader.config import ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint, Mark
from cdc_reader.reading.deduplication import key_at, runs
from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
from cdc_reader.reading.follower import Follower
from cdc_reader.streams.shard import Shard
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.embedded.topology.ring import Node
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery

SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND


@define(slots=False)
class Followed:
    """A server that has the table ks.t and records the queries sent to it.

    `node` returns the node that answers a page request, or None for the first.
    """

    clock: ManualClock = field(factory=lambda: ManualClock(EPOCH))
    config: ReadConfig = ReadConfig()
    options: str = "'enabled': true"
    tablets: bool = False
    asked: list[RecordedQuery] = field(factory=list)
    before: Callable[[RecordedQuery], None] = lambda _asked: None
    nodes: int = 1
    node: Callable[[RecordedQuery], Node | None] = lambda _asked: None

    def __attrs_post_init__(self) -> None:
        self.server = EmbeddedScylla(
            clock=self.clock, nodes=self.nodes, vnodes=3, shards=2, ring_delay_ms=10_000
        )
        kind = "NetworkTopology" if self.tablets else "Simple"
        self.execute(
            "CREATE KEYSPACE ks WITH replication = "
            f"{{'class': '{kind}Strategy', 'replication_factor': 1}}"
            + " AND tablets = {'initial': 4}"
            * self.tablets
        )
        self.execute(
            "CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c)) "
            f"WITH cdc = {{{self.options}}}"
        )

    def execute(self, cql: str) -> Any:
        return self.server.execute(cql)

    def insert(self, p: int, c: int, at: int | None = None) -> None:
        """Insert a row with the timestamp `at` (in µs), by default the current time."""
        at = self.clock.now() if at is None else at
        self.execute(f"INSERT INTO ks.t (p, c, v) VALUES ({p}, {c}, {c}) USING TIMESTAMP {at}")

    def follower(
        self, start: Checkpoint | int, shard: Shard | None = None, **changed: Any
    ) -> Follower:
        """Return a reader that starts at `start`. Keyword arguments override `config`."""
        if not isinstance(start, Checkpoint):
            start = Checkpoint(start)
        table = CdcTable(self.connection(), TableName("ks", "t"))
        return Follower(table, self.clock, evolve(self.config, **changed), start, shard)

    def connection(self) -> InProcessConnection:
        return InProcessConnection(
            self.server,
            self.config,
            before=self._note,
            sleep=self._pass_time,
            node=self._choose,
        )

    def follow(self, start: Checkpoint | int, end: int = FOREVER, **changed: Any) -> list[Delivery]:
        """Return all deliveries from `start` to `end`."""
        return list(self.follower(start, **changed).follow(end))

    def _pass_time(self, seconds: float) -> None:
        self.clock.advance(int(seconds * SECOND))

    def _choose(self, asked: RecordedQuery) -> Node | None:
        return self.node(asked)

    def _note(self, asked: RecordedQuery) -> None:
        self.asked.append(asked)
        self.before(asked)


def last_marks(batch: pa.RecordBatch) -> dict[StreamId, Mark]:
    """Return marks that acknowledge all rows of the batch."""
    return {stream: Mark(key_at(batch, end - 1)) for stream, _, end in runs(batch)}


def rows_read(deliveries: Iterable[Delivery]) -> list[RowsRead]:
    """Return only the deliveries that contain rows."""
    return [delivery for delivery in deliveries if isinstance(delivery, RowsRead)]


def cells(deliveries: Iterable[Delivery], *names: str) -> list[tuple[Any, ...]]:
    """Return the named columns of all delivered rows."""
    return [
        tuple(row[name] for name in names)
        for read in rows_read(deliveries)
        for row in read.batch.to_pylist()
    ]


def next_window(deliveries: Iterator[Delivery]) -> tuple[list[Delivery], WindowComplete]:
    """Return the deliveries up to the end of the next window, and the end."""
    taken: list[Delivery] = []
    for delivery in deliveries:
        if isinstance(delivery, WindowComplete):
            return taken, delivery
        taken.append(delivery)
    raise AssertionError("expected a reader that follows the log for ever")


def read_to(position: Micros, deliveries: Iterator[Delivery]) -> list[Delivery]:
    """Return the deliveries up to the first window that ends at `position` (µs) or later."""
    read: list[Delivery] = []
    while True:
        found, window = next_window(deliveries)
        read += found
        if window.position >= position:
            return read

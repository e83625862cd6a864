"""The cluster, its clock, and the events during a read.

Events happen only when a query, a pause or a slow handler lets time pass. Each run of a seed is
therefore the same, and events may happen between any two pages.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from attrs import define

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.cluster.values import murmur3
from cdc_reader.testing import EmbeddedScylla, ManualClock
from cdc_reader.testing.embedded.errors import CqlError
from cdc_reader.testing.embedded.topology.ring import Node
from tests.cdc_reader.simulation.scenario import LARGEST_SKEW, SECOND, Scenario
from tests.cdc_reader.simulation.truth import LogRow, Truth
from tests.cdc_reader.simulation.writing import Writer

EPOCH = 1_700_000_000 * SECOND
_LONG_SLEEP = 15 * SECOND
_KNOWN_SETS = (
    "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = 'ks' AND table_name = 't'"
)
_MOST_NODES, _MOST_TABLETS, _MOST_COLUMNS = 4, 16, 4


@define(eq=False)
class StreamSet:
    """Streams that take effect together at `start`.

    From `announced` on, clients can see the streams, and from `everywhere` on at all nodes. The
    times are in µs. `is_stored` is True if some of the streams were stored before `announced`, so
    that readers can wait for the others.
    """

    start: int
    streams: frozenset[bytes]
    announced: int | None
    is_stored: bool
    everywhere: int | None = None


class World:
    """A cluster with the table ks.t. `happened` is the list of its events.

    `turns` decides which node answers a page, and which node lags.
    """

    def __init__(self, scenario: Scenario, rng: random.Random, turns: random.Random) -> None:
        self.happened: list[str] = []
        self.sets: list[StreamSet] = []
        self.clock = ManualClock(EPOCH)
        self._scenario = scenario
        self._rng = rng
        self._turns = turns
        self._behind: Node | None = None
        self._answered: Node | None = None
        self._next = FOREVER
        self._ends = FOREVER
        self._is_holding = False
        self._is_storing = True
        self._set_of: dict[bytes, StreamSet] = {}
        self._writer = Writer(rng)
        self.server = self._make_server()
        self._make_table()
        self.truth = Truth(self.server)
        self._note_sets()

    def begin(self) -> None:
        """Start the events, and let the events before the reader's start happen."""
        self._next, self._ends = self.clock.now(), FOREVER
        if self._scenario.differs:
            self._differ()
        self.pass_time(self._scenario.history)
        self._ends = self.clock.now() + self._scenario.activity

    @property
    def is_calm(self) -> bool:
        """True if no more events will happen."""
        return self._next == FOREVER

    def pass_time(self, micros: int) -> None:
        """Advance time by `micros`, and let the events due by then happen."""
        until = self.clock.now() + micros
        while self._next <= until:
            self.clock.advance(max(0, self._next - self.clock.now()))
            self._happen()
        self.clock.advance(max(0, until - self.clock.now()))

    def answering(self, _asked: object = None) -> Node:
        """Return the node that answers the next page."""
        nodes = self.server.nodes
        if self._scenario.nodes == 1:
            return nodes[0]
        if self._answered not in nodes or self._turns.random() >= self._scenario.sticks:
            self._answered = self._turns.choice(nodes)
        return self._answered

    @property
    def current(self) -> Node:
        """A node that knows everything."""
        return next(node for node in self.server.nodes if node is not self._behind)

    def note_everywhere(self) -> None:
        """Record which sets of streams all nodes know by now."""
        for each in self.sets:
            if each.everywhere is None and each.announced is not None and self._all_know(each):
                each.everywhere = self.clock.now()

    def set_of(self, stream: bytes) -> StreamSet:
        """Return the set of streams that contains a stream."""
        return self._set_of[stream]

    def is_stray(self, row: LogRow) -> bool:
        """Return True if the row's stream was not in force at the row's write time."""
        in_force = [each for each in self.sets if each.start <= row.micros][-1:]
        return in_force != [self._set_of[row.name[0]]]

    def token_of(self, p: int) -> int:
        """Return the token of a partition of the table."""
        return murmur3(p.to_bytes(4, "big", signed=True))

    def log_columns(self) -> set[str]:
        """Return the names of the current columns of the log."""
        return {
            column.name for column in self.server.catalog.table("ks", "t_scylla_cdc_log").columns
        }

    def _happen(self) -> None:
        if self.clock.now() >= self._ends:
            self._next = FOREVER
            self._complete_publications()
            return
        acts = self._acts()
        self._rng.choices(list(acts), list(acts.values()))[0]()
        self._note_sets()
        self._next = self.clock.now() + int(self._rng.expovariate(1 / self._scenario.gap))

    def _acts(self) -> dict[Callable[[], None], float]:
        acts: dict[Callable[[], None], float] = {self._write: 40, self._alter: 2}
        match self._scenario.topology:
            case "tablets":
                acts[self._resize] = 8 if self._scenario.differs else 3
            case "4.3":
                acts |= {self._change_ring: 3, self._hold: 2, self._complete_publications: 2}
                acts[self._upgrade] = 1
            case _:
                acts |= {self._change_ring: 3, self._hold: 2, self._complete_publications: 2}
        acts[self._go_astray] = 3
        if self._scenario.differs:
            acts[self._differ] = 4
        return acts

    def _make_server(self) -> EmbeddedScylla:
        return EmbeddedScylla(
            clock=self.clock,
            nodes=self._scenario.nodes,
            vnodes=self._scenario.vnodes,
            shards=self._scenario.node_shards,
            ring_delay_ms=self._scenario.ring_delay,
            version="4.3" if self._scenario.topology == "4.3" else "2026.1",
            seed=self._rng.getrandbits(32),
        )

    def _make_table(self) -> None:
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        tablets = {
            "tablets": " AND tablets = {'initial': 4}",
            "vnodes": " AND tablets = {'enabled': false}",
        }
        self.server.execute(
            f"CREATE KEYSPACE ks WITH replication = {replication}"
            + tablets.get(self._scenario.topology, "")
        )
        ttl = f", 'ttl': {self._scenario.ttl // SECOND}" if self._scenario.ttl else ""
        self.server.execute("CREATE TYPE ks.u (f0 int)")
        self.server.execute(
            "CREATE TABLE ks.t (p int, c int, s int static, v int, u u, PRIMARY KEY (p, c)) "
            f"WITH cdc = {{'enabled': true{self._scenario.images}{ttl}}}"
        )

    def _execute(self, cql: str) -> None:
        """Execute a statement. The server may reject it, for example because of its timestamp."""
        try:
            self.server.execute(cql, node=self.current)
        except CqlError as error:
            self.tell(f"{cql}: {error.message}")
        else:
            self.tell(f"{cql}: {self.truth.note(self.clock.now())} rows")

    def _write(self) -> None:
        """Write a burst of rows through a node whose clock is wrong."""
        node = self.current
        self.server.skew_clock(node, self._rng.randint(-LARGEST_SKEW, LARGEST_SKEW))
        for _ in range(self._rng.choice([1, 1, 2, 5])):
            self._execute(self._writer.statement(self.clock.now(), EPOCH))
            self.clock.advance(self._rng.choice([0, 1, 1_000]))
        self.server.skew_clock(node, 0)

    def _alter(self) -> None:
        """Add a column or a field, or drop a column."""
        columns, fields = self._writer.columns, self._writer.fields
        kind = self._rng.choice(["add", "drop", "grow"])
        if kind == "add" and len(columns) < _MOST_COLUMNS:
            columns.append(f"x{len(self.happened)}")
            self._execute(f"ALTER TABLE ks.t ADD {columns[-1]} int")
        elif kind == "drop" and len(columns) > 1:
            self._execute(f"ALTER TABLE ks.t DROP {columns.pop()}")
        elif kind == "grow":
            fields.append(f"f{len(fields)}")
            self._execute(f"ALTER TYPE ks.u ADD {fields[-1]} int")

    def _change_ring(self) -> None:
        nodes = self.server.cluster.nodes
        match self._rng.choice(["join", "leave", "repair", "empty"]):
            case "join" if len(nodes) < _MOST_NODES:
                self.server.join(self._rng.randint(1, 4), self._rng.randint(1, 3))
                self.tell("join")
            case "leave" if len(nodes) > self._scenario.nodes:
                self._behind = None if self._behind is nodes[-1] else self._behind
                self.server.leave(nodes[-1])
                self.tell("leave")
            case "empty":
                self.server.add_empty_generation()
                self.tell("an empty generation")
            case _:
                self.server.check_and_repair_streams()
                self.tell("repair")

    def _hold(self) -> None:
        rows = self._rng.choice([None, 0, 1])
        self._is_holding = True
        self._is_storing = rows != 0 and self._scenario.topology != "4.3"
        self.server.hold_publication(rows)
        self.tell(f"publications are held, {rows} rows each")

    def _complete_publications(self) -> None:
        self._is_holding = False
        self.server.complete_publication()
        for each in self.sets:
            each.announced = self.clock.now() if each.announced is None else each.announced
        self.tell("publications complete")

    def _upgrade(self) -> None:
        self.server.upgrade_streams()
        self.tell("upgrade")

    def _resize(self) -> None:
        count = len(self.server.tablets.histories()[0].newest.streams)
        if self._rng.random() < 0.5 and count < _MOST_TABLETS:
            self.server.split_tablets("ks", "t")
            self.tell("split")
        elif count > 1:
            self.server.merge_tablets("ks", "t")
            self.tell("merge")

    def _go_astray(self) -> None:
        """Start or stop misplacing writes into an adjacent generation."""
        misplacing = self.server.misplacing
        misplacing.by = 0 if misplacing.by else self._rng.choice([-1, -1, 1])
        misplacing.twice = self._rng.random() < 0.5
        self.tell(f"{misplacing}")

    def _differ(self) -> None:
        """Let a node lag or be frozen, and the one that did know everything again."""
        if self._behind is not None:
            self.server.release(self._behind)
            self.tell(f"{self._behind.address} knows everything again")
            self._behind = None
            if self._turns.random() < 0.3:
                return
        self._behind = self._turns.choice(self.server.nodes)
        seconds = self._turns.choice([2, 15, 60, None, None])
        if seconds is None:
            self.server.freeze(self._behind)
        else:
            self.server.lag(self._behind, seconds * SECOND)
        self.tell(f"{self._behind.address} lags by {seconds} s")

    def _all_know(self, found: StreamSet) -> bool:
        """Return True if clients see a set at each node; with vnodes, they read at QUORUM."""
        if self._scenario.topology != "tablets" or self._behind is None:
            return True
        known = self.server.execute(_KNOWN_SETS, node=self._behind)
        return (found.start // 1_000).to_bytes(8, "big") in {start for (start,) in known}

    def _note_sets(self) -> None:
        """Record the sets of streams that have appeared since the last call.

        The server may have removed older sets, whose rows have expired.
        """
        newest = self.sets[-1].start if self.sets else BEGINNING
        for start, streams in self._all_sets():
            if start <= newest:
                continue
            announced = None if self._is_holding else self.clock.now()
            is_stored = announced is not None or self._is_storing
            found = StreamSet(start, frozenset(streams), announced, is_stored)
            self.sets.append(found)
            self._set_of.update(dict.fromkeys(streams, found))
            self.tell(f"generation {(start - EPOCH) / SECOND}: {len(streams)} streams")

    @property
    def oldest_set(self) -> int:
        """The start of the oldest set of streams that the server has not removed, in µs."""
        return min(start for start, _ in self._all_sets())

    def _all_sets(self) -> list[tuple[int, list[bytes]]]:
        if self._scenario.topology == "tablets":
            return [
                (each.start_us, list(each.streams))
                for each in self.server.tablets.histories()[0].sets
            ]
        return [
            (each.start_us, [stream for span in each.ranges for stream in span.streams])
            for each in self.server.cluster.generations
        ]

    def tell(self, what: str) -> None:
        """Append an event to `happened`."""
        self.happened.append(f"{(self.clock.now() - EPOCH) / SECOND:.6f} {what}")


@define
class ReaderClock:
    """A reader's clock that is `ahead` µs ahead of the cluster's. Its sleeps let events happen.

    When no more events will happen, each sleep lasts at least `_LONG_SLEEP`.
    """

    _world: World
    _ahead: int

    def now(self) -> int:
        return self._world.clock.now() + self._ahead

    def sleep(self, micros: int, wake: threading.Event) -> None:
        if not wake.is_set():
            self._world.pass_time(max(micros, _LONG_SLEEP) if self._world.is_calm else micros)

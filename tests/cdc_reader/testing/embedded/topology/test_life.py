"""Tests, for random cluster histories, that log rows are in the published streams.

All data is read as a client reads it. Expected streams are computed from ScyllaDB's documentation,
not by the code under test.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_reader.cql import timeuuid
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock
from cdc_reader.testing.embedded.codec.order import read_fields
from cdc_reader.testing.embedded.codec.token import token_of
from cdc_reader.testing.embedded.errors import CqlError
from cdc_reader.testing.embedded.query.engine import Engine
from cdc_reader.testing.embedded.query.model import QueryOptions
from cdc_reader.testing.embedded.query.result import Rows
from cdc_reader.testing.embedded.schema.table import MURMUR3

SECOND = 1_000_000
START = 1_795_220_000 * SECOND
LEEWAY = 5 * SECOND
CDC = "WITH cdc = {'enabled': true, 'ttl': 0}"
NTS = "WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
CURRENT, CLOSED, OPENED = range(3)

counts = st.integers(1, 4)
actions = st.one_of(
    st.tuples(st.just("join"), counts, counts),
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["repair", "empty", "split", "merge", "hold", "complete"])),
    st.tuples(st.just("pass"), st.integers(0, 100 * SECOND)),
    st.tuples(st.just("write"), st.integers(0, 99), st.integers(-150 * SECOND, 6 * SECOND)),
)


@define
class Life:
    """A cluster without sockets, with a table that uses vnodes and one that uses tablets."""

    ring_delay_ms: int
    clock: ManualClock = field(factory=lambda: ManualClock(START))
    server: EmbeddedScylla = field(init=False)
    written: dict[str, list[tuple[int, int]]] = field(factory=lambda: {"vk": [], "tk": []})

    def __attrs_post_init__(self) -> None:
        self.server = EmbeddedScylla(
            clock=self.clock, vnodes=3, shards=2, seed=1, ring_delay_ms=self.ring_delay_ms
        )
        self.run(f"CREATE KEYSPACE vk {NTS} AND tablets = {{'enabled': false}}")
        self.run(f"CREATE KEYSPACE tk {NTS} AND tablets = {{'initial': 2}}")
        for keyspace in self.written:
            self.run(f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, v int) {CDC}")

    @property
    def engine(self) -> Engine:
        return self.server._engine(self.server.nodes[0])

    def run(self, cql: str) -> Any:
        return self.engine.query(cql, (), QueryOptions())

    def rows(self, cql: str) -> Sequence[tuple[Any, ...]]:
        result = self.run(cql)
        assert isinstance(result, Rows)
        return result.rows

    def act(self, name: str, *arguments: int) -> None:
        getattr(self, f"_{name}")(*arguments)

    def _join(self, vnodes: int, shards: int) -> None:
        self.server.join(vnodes, shards)

    def _leave(self, index: int) -> None:
        nodes = self.server.cluster.nodes
        if len(nodes) > 1:
            self.server.leave(nodes[index % len(nodes)])

    def _repair(self) -> None:
        newest, ring = self.server.cluster.generations[-1], self.server.cluster.ring
        made = self.server.check_and_repair_streams()
        assert (made is None) is (newest.range_ends == ring.tokens)
        assert made is None or made.range_ends == ring.tokens

    def _empty(self) -> None:
        self.server.add_empty_generation()

    def _split(self) -> None:
        if len(self.server.tablets.histories()[0].newest.streams) < 16:
            self.server.split_tablets("tk", "t")

    def _merge(self) -> None:
        if len(self.server.tablets.histories()[0].newest.streams) > 1:
            self.server.merge_tablets("tk", "t")

    def _hold(self) -> None:
        self.server.hold_publication(1)

    def _complete(self) -> None:
        self.server.complete_publication()

    def _pass(self, micros: int) -> None:
        self.clock.advance(micros)

    def _write(self, pk: int, offset: int) -> None:
        """Write to both tables, and check that each accepts or rejects the write as documented."""
        now, write = self.clock.now(), self.clock.now() + offset
        for keyspace, written in self.written.items():
            expected = self.accepts(keyspace, write, now)
            try:
                self.run(f"INSERT INTO {keyspace}.t (pk, v) VALUES ({pk}, 1) USING TIMESTAMP "
                         f"{write}")  # fmt: skip
            except CqlError:
                assert not expected
            else:
                assert expected
                written.append((pk, write))

    def accepts(self, keyspace: str, write: int, now: int) -> bool:
        """Return True if the documented rules accept a write."""
        if write > now + LEEWAY:
            return False
        if keyspace == "tk":
            return write >= START - LEEWAY
        generations = self.server.cluster.generations
        current = [g for g in generations if g.start_us <= now][-1]
        of_write = [g for g in generations if g.start_us <= write]
        recent = write > now - LEEWAY or write >= current.start_us
        return recent and bool(of_write) and bool(of_write[-1].ranges)

    def log(self, keyspace: str) -> list[tuple[StreamId, int, int]]:
        """Return (stream, key, time in µs) of all rows of a log."""
        columns = '"cdc$stream_id", pk, "cdc$time"'
        found = self.rows(f"SELECT {columns} FROM {keyspace}.t_scylla_cdc_log")
        return [(StreamId(s), number(pk), timeuuid.micros(time)) for s, pk, time in found]


def number(cell: bytes) -> int:
    """Decode a signed integer of any size."""
    return int.from_bytes(cell, "big", signed=True)


def newest_at(timestamps: Iterable[int], write_us: int) -> int:
    """Return the timestamp (ms) of the streams that are current at a write's time."""
    return max(timestamp for timestamp in timestamps if timestamp * 1000 <= write_us)


def generations_of(life: Life) -> dict[int, list[tuple[int, list[StreamId]]]]:
    """Return each published generation as a list of (range end, streams), keyed by timestamp."""
    times = life.rows(
        "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
    )
    found: dict[int, list[tuple[int, list[StreamId]]]] = {number(row[0]): [] for row in times}
    for time, end, streams in life.rows(
        "SELECT time, range_end, streams FROM system_distributed.cdc_streams_descriptions_v2"
    ):
        cells = read_fields(streams[4:])
        found[number(time)].append((number(end), [StreamId(c or b"") for c in cells]))
    return found


def check_generation(ranges: list[tuple[int, list[StreamId]]]) -> None:
    """Check that stream ids are distinct and have the right version, index and token range."""
    ends = [end for end, _ in ranges]
    assert ends == sorted(set(ends))
    for index, (end, streams) in enumerate(ranges):
        start = ends[index - 1]
        size = (end - start - 1) % 2**64
        for stream in streams:
            assert (stream.index, stream.version) == (index, 1)
            assert (stream.token - start - 1) % 2**64 <= size
    everything = [stream for _, streams in ranges for stream in streams]
    assert len(set(everything)) == len(everything)


def vnode_stream(ranges: list[tuple[int, list[StreamId]]], token: int) -> StreamId:
    """Return the stream of a token, computed by ScyllaDB's documented rule."""
    streams = next((s for end, s in ranges if end >= token), ranges[0][1])
    return streams[((token + 2**63 << 12) % 2**64) * len(streams) >> 64]


def tablet_sets(life: Life) -> dict[int, dict[int, list[StreamId]]]:
    """Return the streams of the table that uses tablets, in order, by timestamp and state."""
    where = "WHERE keyspace_name = 'tk' AND table_name = 't'"
    times = life.rows(f"SELECT timestamp FROM system.cdc_timestamps {where}")
    found: dict[int, dict[int, list[StreamId]]] = {
        number(t[0]): {CURRENT: [], CLOSED: [], OPENED: []} for t in reversed(times)
    }
    for time, state, stream in life.rows(
        f"SELECT timestamp, stream_state, stream_id FROM system.cdc_streams {where}"
    ):
        found[number(time)][number(state)].append(StreamId(stream))
    return found


def check_sets(sets: dict[int, dict[int, list[StreamId]]]) -> None:
    """Check the times, tokens and order of the stream sets, and the differences between them."""
    times = list(sets)
    assert times[0] == START // 1000 - 5000
    assert all(earlier < later for earlier, later in pairwise(times))
    previous: set[StreamId] = set()
    for states in sets.values():
        for streams in states.values():
            assert [s.token for s in streams] == sorted(s.token for s in streams)
        current, closed, opened = (set(states[s]) for s in (CURRENT, CLOSED, OPENED))
        assert closed <= previous
        assert not opened & previous
        assert previous - closed | opened == current
        tokens = [s.token for s in states[CURRENT]]
        assert tokens == [(n + 1) * 2**64 // len(tokens) - 2**63 - 1 for n in range(len(tokens))]
        assert all((s.index, s.version) == (0, 1) for s in current)
        previous = current


def check_internal_tables(life: Life, sets: dict[int, dict[int, list[StreamId]]]) -> None:
    """Check that the internal tables agree with `sets`.

    They contain the oldest stream set, and the streams that each later set closes and opens.
    """
    log_id = life.server.catalog.table("tk", "t_scylla_cdc_log").id
    first, *later = sets
    state = life.rows(
        "SELECT timestamp, last_token, stream_id FROM system.cdc_streams_state "
        f"WHERE table_id = {log_id}"
    )
    assert {number(row[0]) for row in state} == {first}
    assert [row[2] for row in state] == sets[first][CURRENT]
    assert [number(row[1]) for row in state] == [s.token for s in sets[first][CURRENT]]
    history = life.rows(
        "SELECT timestamp, stream_state, stream_id FROM system.cdc_streams_history "
        f"WHERE table_id = {log_id}"
    )
    assert [(number(t), number(s), stream) for t, s, stream in history] == [
        (time, state, stream)
        for time in later
        for state in (CLOSED, OPENED)
        for stream in sets[time][state]
    ]


@settings(max_examples=60)
@given(st.sampled_from([1, 30_000]), st.lists(actions, max_size=20))
def test_every_log_row_is_in_a_stream_of_its_time(
    ring_delay_ms: int, life_story: list[tuple[Any, ...]]
) -> None:
    """Each log row is in a stream that is current at its time.

    This holds for joins, leaves, repairs, splits, merges, and early and late writes. It does not
    hold without a ring delay, because then a generation starts before coordinators know of it.
    """
    life = Life(ring_delay_ms)
    for action in life_story:
        life.act(*action)
    life.server.complete_publication()

    generations, sets = generations_of(life), tablet_sets(life)
    assert sorted(generations) == [g.timestamp for g in life.server.cluster.generations]
    for ranges in generations.values():
        check_generation(ranges)
    check_sets(sets)
    check_internal_tables(life, sets)

    for keyspace, written in life.written.items():
        log = life.log(keyspace)
        assert sorted((pk, time) for _, pk, time in log) == sorted(written)
        for stream, pk, time in log:
            token = token_of(MURMUR3, (pk.to_bytes(4, "big"),))
            if keyspace == "vk":
                assert stream == vnode_stream(generations[newest_at(generations, time)], token)
            else:
                current = sets[newest_at(sets, time)][CURRENT]
                assert stream == next(s for s in current if s.token >= token)

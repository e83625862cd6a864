"""Generations as clients see them: in 4.3's table, in the newer ones, and half published."""

import random
from collections.abc import Iterator

import pytest

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.clock import ManualClock
from cdc_reader.testing.embedded.codec.order import read_fields
from cdc_reader.testing.embedded.errors import CqlError, ServerError, Unauthorized
from cdc_reader.testing.embedded.query.model import QueryOptions
from cdc_reader.testing.embedded.query.result import Rows
from cdc_reader.testing.embedded.topology.generation import Generation

NOW = 1_795_220_000_000_000
TIMES = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
RANGES = "SELECT time, range_end, streams FROM system_distributed.cdc_streams_descriptions_v2"
LEGACY = "SELECT time, streams, expired FROM system_distributed.cdc_streams_descriptions"
REWRITTEN = "SELECT streams_timestamp FROM system.cdc_local WHERE key = 'rewritten'"


def scylla(version: str = "2026.2") -> EmbeddedScylla:
    """A cluster without sockets, with a manual clock."""
    return EmbeddedScylla(clock=ManualClock(NOW), version=version, vnodes=4, shards=3, seed=1)


def rows(server: EmbeddedScylla, cql: str) -> list[tuple[bytes | None, ...]]:
    """Return the first node's answer."""
    engine = server._host(server.cluster.nodes[0]).engine
    result = engine.query(cql, (), QueryOptions())
    assert isinstance(result, Rows)
    return result.rows


def number(cell: bytes | None) -> int:
    """Decode a timestamp or bigint."""
    assert cell is not None
    return int.from_bytes(cell, "big", signed=True)


def times(server: EmbeddedScylla) -> list[int]:
    """Return the timestamps that clients see, newest first."""
    return [number(row[0]) for row in rows(server, TIMES)]


def described(server: EmbeddedScylla, generation: Generation) -> list[int]:
    """Return the ends of the ranges that clients see of a generation."""
    return [number(e) for t, e, _ in rows(server, RANGES) if number(t) == generation.timestamp]


def test_a_generation_is_published_at_once() -> None:
    """The generation's ranges and timestamp are visible; the newest comes first."""
    server = scylla()
    joined = server.join(vnodes=2, shards=1)
    assert described(server, joined) == list(joined.range_ends)
    assert times(server) == [joined.timestamp, NOW // 1000]


@pytest.mark.parametrize(("held", "seen"), [(0, 0), (3, 3), (None, 6)])
def test_a_publication_is_held_half_way(held: int | None, seen: int) -> None:
    """Some or all description rows are visible, but no timestamp until `complete`."""
    server = scylla()
    server.hold_publication(held)
    joined = server.join(vnodes=2, shards=1)
    assert len(described(server, joined)) == seen
    assert times(server) == [NOW // 1000]
    assert server.complete_publication() == (joined,)
    assert len(described(server, joined)) == 6
    assert times(server) == [joined.timestamp, NOW // 1000]
    assert server.complete_publication() == ()
    assert server.join(vnodes=1).timestamp in times(server)


def test_writes_do_not_wait_for_publication() -> None:
    """A generation takes writes of its time whether clients see it or not."""
    server = scylla()
    server.hold_publication()
    joined = server.join(vnodes=2, shards=1)
    assert server.cluster.streams.generation_for(joined.start_us, joined.start_us) is joined


def test_an_empty_generation() -> None:
    """An empty generation has a timestamp and no ranges; its writes fail, until repaired."""
    server = scylla()
    empty = server.add_empty_generation()
    assert times(server) == [empty.timestamp, NOW // 1000]
    assert described(server, empty) == []
    with pytest.raises(ServerError, match="could not find any CDC stream for timestamp"):
        server.cluster.streams.generation_for(empty.start_us, empty.start_us)
    repaired = server.check_and_repair_streams()
    assert repaired is not None
    assert repaired.timestamp == empty.timestamp + 1
    assert server.cluster.streams.generation_for(repaired.start_us, repaired.start_us) is repaired


def legacy(server: EmbeddedScylla) -> Iterator[tuple[int, list[bytes | None]]]:
    """Return (timestamp, streams) from the table of 4.3."""
    for time, streams, expired in rows(server, LEGACY):
        assert streams is not None
        assert expired is None
        yield number(time), read_fields(streams[4:])


def streams_of(generation: Generation) -> list[bytes]:
    """Return all streams, range by range."""
    return [stream for span in generation.ranges for stream in span.streams]


def test_the_table_of_4_3() -> None:
    """Each generation is one row with all its streams; there are no newer tables and no mark."""
    server = scylla("4.3")
    server.join(vnodes=2, shards=1)
    assert sorted(legacy(server)) == [
        (g.timestamp, streams_of(g)) for g in server.cluster.generations
    ]
    assert rows(server, REWRITTEN) == []
    for cql in (TIMES, RANGES):
        with pytest.raises(CqlError, match="unconfigured table"):
            rows(server, cql)


def test_the_first_generation_of_4_3_waits_like_any_other() -> None:
    """Since 4.4 the first generation operates at once."""
    assert scylla("4.3").cluster.generations[0].timestamp == NOW // 1000 + 65_000
    assert scylla("4.4").cluster.generations[0].timestamp == NOW // 1000


def test_a_held_publication_of_4_3_shows_nothing() -> None:
    """A single row cannot be published in part."""
    server = scylla("4.3")
    server.hold_publication()
    joined = server.join()
    assert joined.timestamp not in dict(legacy(server))
    server.complete_publication()
    assert joined.timestamp in dict(legacy(server))


def test_the_upgrade_from_4_3() -> None:
    """Old generations are copied to the new tables, later ones are only there; the mark is set."""
    server = scylla("4.3")
    server.join(vnodes=2, shards=1)
    old = dict(legacy(server))
    server.upgrade_streams()
    joined = server.join(vnodes=1)
    assert dict(legacy(server)) == old
    assert times(server) == [g.timestamp for g in reversed(server.cluster.generations)]
    for generation in server.cluster.generations:
        assert described(server, generation) == list(generation.range_ends)
    assert joined.timestamp not in old
    assert rows(server, REWRITTEN) == [(None,)]
    server.upgrade_streams()
    assert len(times(server)) == 3


def test_the_upgrade_respects_what_is_held() -> None:
    """A generation that is held back appears only when it is completed, in the new tables."""
    server = scylla("4.3")
    server.hold_publication()
    joined = server.join()
    server.upgrade_streams()
    assert joined.timestamp not in times(server)
    server.complete_publication()
    assert times(server)[0] == joined.timestamp


def test_the_same_seed_gives_the_same_streams() -> None:
    """The streams are equal even after joins."""
    first, second = scylla(), scylla()
    assert first.join() == second.join()
    assert Generation.empty(1, random.Random(1)) == Generation.empty(1, random.Random(1))


@pytest.mark.parametrize("table", ["cdc_generation_timestamps", "cdc_streams_descriptions_v2"])
def test_clients_may_write_descriptions_but_not_alter_them(table: str) -> None:
    """INSERT and DELETE are allowed, ALTER and DROP are not."""
    server, name = scylla(), f"system_distributed.{table}"
    key = "key = 'timestamps'" if table.endswith("timestamps") else f"time = {NOW // 1000}"
    engine = server._host(server.cluster.nodes[0]).engine
    engine.query(f"DELETE FROM {name} WHERE {key}", (), QueryOptions())
    assert rows(server, f"SELECT * FROM {name}") == []
    for cql in (f"ALTER TABLE {name} ADD x int", f"DROP TABLE {name}"):
        with pytest.raises(Unauthorized, match=table):
            engine.query(cql, (), QueryOptions())

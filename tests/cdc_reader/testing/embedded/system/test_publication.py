"""Tests how generations are published to clients, in the tables of 4.3 and of newer versions."""

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
    """Return a cluster without sockets, with a manual clock."""
    return EmbeddedScylla(clock=ManualClock(NOW), version=version, vnodes=4, shards=3, seed=1)


def rows(server: EmbeddedScylla, cql: str) -> list[tuple[bytes | None, ...]]:
    """Return the rows of a query on the first node."""
    engine = server._engine(server.nodes[0])
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
    """Return the range ends in the published description of a generation."""
    return [number(e) for t, e, _ in rows(server, RANGES) if number(t) == generation.timestamp]


def test_a_generation_is_published_at_once() -> None:
    """A new generation's ranges and timestamp are visible at once, and the newest comes first."""
    server = scylla()
    joined = server.join(vnodes=2, shards=1)
    assert described(server, joined) == list(joined.range_ends)
    assert times(server) == [joined.timestamp, NOW // 1000]


@pytest.mark.parametrize(("held", "seen"), [(0, 0), (3, 3), (None, 6)])
def test_a_publication_is_held_half_way(held: int | None, seen: int) -> None:
    """While publication is held, none, some or all rows are visible, but not the timestamp."""
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
    """Writes are logged to the generation of their time even if it is not published."""
    server = scylla()
    server.hold_publication()
    joined = server.join(vnodes=2, shards=1)
    assert server.cluster.streams.generation_for(joined.start_us, joined.start_us) is joined


def test_an_empty_generation() -> None:
    """An empty generation has no ranges, and writes to it fail until the streams are repaired."""
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
    """Yield each generation's (timestamp, streams) from the table that ScyllaDB 4.3 uses."""
    for time, streams, expired in rows(server, LEGACY):
        assert streams is not None
        assert expired is None
        yield number(time), read_fields(streams[4:])


def streams_of(generation: Generation) -> list[bytes]:
    """Return all streams of a generation, in order of its ranges."""
    return [stream for span in generation.ranges for stream in span.streams]


def test_the_table_of_4_3() -> None:
    """In 4.3, a generation is one row with all its streams, and the newer tables do not exist."""
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
    """In 4.3, the first generation starts after the delay. Since 4.4, it starts at once."""
    assert scylla("4.3").cluster.generations[0].timestamp == NOW // 1000 + 65_000
    assert scylla("4.4").cluster.generations[0].timestamp == NOW // 1000


def test_a_held_publication_of_4_3_shows_nothing() -> None:
    """A held generation of 4.3 is not visible at all, because it is a single row."""
    server = scylla("4.3")
    server.hold_publication()
    joined = server.join()
    assert joined.timestamp not in dict(legacy(server))
    server.complete_publication()
    assert joined.timestamp in dict(legacy(server))


def test_the_upgrade_from_4_3() -> None:
    """The upgrade copies all generations to new tables, and only these show later generations."""
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
    """After the upgrade, completing a held publication shows its generation in the new tables."""
    server = scylla("4.3")
    server.hold_publication()
    joined = server.join()
    server.upgrade_streams()
    assert joined.timestamp not in times(server)
    server.complete_publication()
    assert times(server)[0] == joined.timestamp


def test_the_same_seed_gives_the_same_streams() -> None:
    """Clusters with the same seed have the same streams, even after a node joins."""
    first, second = scylla(), scylla()
    assert first.join() == second.join()
    assert Generation.empty(1, random.Random(1)) == Generation.empty(1, random.Random(1))


@pytest.mark.parametrize("table", ["cdc_generation_timestamps", "cdc_streams_descriptions_v2"])
def test_clients_may_write_descriptions_but_not_alter_them(table: str) -> None:
    """Clients may write to the description tables, but not alter or drop them."""
    server, name = scylla(), f"system_distributed.{table}"
    key = "key = 'timestamps'" if table.endswith("timestamps") else f"time = {NOW // 1000}"
    engine = server._engine(server.nodes[0])
    engine.query(f"DELETE FROM {name} WHERE {key}", (), QueryOptions())
    assert rows(server, f"SELECT * FROM {name}") == []
    for cql in (f"ALTER TABLE {name} ADD x int", f"DROP TABLE {name}"):
        with pytest.raises(Unauthorized, match=table):
            engine.query(cql, (), QueryOptions())

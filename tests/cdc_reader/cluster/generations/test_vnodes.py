from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cdc_reader.cluster import Connection
from cdc_reader.cluster.generations import VnodeGenerations
from cdc_reader.cluster.queries import Query
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.errors import TransientError
from cdc_reader.streams.generation import StreamGroup
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.in_process import InProcessConnection, RecordedQuery
from tests.recordings.loading import published

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

LONG_AGO = 1_000_000_000_000  # ms since 1970: a time in 2001, before any other generation
GROUPS = (
    StreamGroup(-5, (StreamId(bytes(16)), StreamId(b"\xff" * 16))),
    StreamGroup(7, (StreamId(b"\x01" * 16),)),
)


@pytest.fixture
def generations(connection: ConnectionConfig) -> Iterator[VnodeGenerations]:
    """The server's generations, read with one group per page."""
    opened = Connection(connection, ReadConfig(fetch_size=1))
    yield VnodeGenerations(opened)
    opened.close()


@pytest.mark.needs("generations")
def test_a_published_generation_is_found_with_its_streams(
    scylla: Scylla, generations: VnodeGenerations
) -> None:
    """A published generation is found with all its streams, which span several pages."""
    with published(scylla.session, LONG_AGO, GROUPS):
        assert LONG_AGO * 1_000 in generations.timestamps()
        assert tuple(generations.groups(LONG_AGO * 1_000)) == GROUPS
    assert LONG_AGO * 1_000 not in generations.timestamps()


def test_a_generation_that_was_never_published_has_no_streams(
    generations: VnodeGenerations,
) -> None:
    """A generation that was never published has no streams, which is no error."""
    assert tuple(generations.groups(LONG_AGO * 1_000)) == ()


def test_the_cluster_s_own_generation_is_there(generations: VnodeGenerations) -> None:
    """A new cluster has a generation, which its first node started."""
    newest = max(generations.timestamps())
    streams = [stream for group in generations.groups(newest) for stream in group.streams]
    assert len(streams) == len(set(streams)) > 0


@pytest.mark.needs("topology")
@pytest.mark.parametrize("rows", [0, 1, None], ids=["nothing", "a row", "all rows"])
def test_a_generation_with_streams_but_no_timestamp_is_unpublished(rows: int | None) -> None:
    """A generation without a timestamp is unpublished, even if all of its streams are stored."""
    server = EmbeddedScylla()
    generations = VnodeGenerations(InProcessConnection(server))
    assert list(generations.unpublished()) == []
    server.hold_publication(rows)
    joined = server.join()
    assert list(generations.unpublished()) == [joined.start_us] * (rows != 0)
    assert joined.start_us not in generations.timestamps()
    server.complete_publication()
    assert list(generations.unpublished()) == []
    assert joined.start_us in generations.timestamps()


@pytest.mark.needs("topology")
def test_a_generation_announced_between_two_queries_is_published() -> None:
    """A generation announced between the two queries of `unpublished` counts as published."""
    server = EmbeddedScylla()

    def announce(asked: RecordedQuery) -> None:
        if "cdc_generation_timestamps" in asked.query.cql:
            server.complete_publication()

    generations = VnodeGenerations(InProcessConnection(server, before=announce))
    server.hold_publication()
    server.join()
    assert list(generations.unpublished()) == []


@pytest.mark.needs("topology")
def test_several_nodes_are_read_at_quorum_alone() -> None:
    """The level costs no query of its own, and nothing is read at ONE, even after an error."""
    server, asked = EmbeddedScylla(nodes=3), list[Query]()
    unavailable = [False, True, True, True, False]

    def note(recorded: RecordedQuery) -> None:
        asked.append(recorded.query)
        if unavailable.pop(0):
            raise TransientError("Cannot achieve consistency level for cl QUORUM")

    connection = InProcessConnection(server, before=note, sleep=lambda _: None)
    generations = VnodeGenerations(connection)
    assert generations.timestamps() == generations.timestamps()
    assert len(asked) == 5
    assert {query.consistency for query in asked} == {"QUORUM"}


@pytest.mark.needs("topology")
def test_a_single_node_is_read_at_one_until_another_joins() -> None:
    """QUORUM is tried first, and again from time to time: another node may have joined."""
    server, asked = EmbeddedScylla(), list[Query]()
    connection = InProcessConnection(server, before=lambda recorded: asked.append(recorded.query))
    generations = VnodeGenerations(connection)
    found = [tuple(generations.timestamps()) for _ in range(20)]
    assert len({*found}) == 1
    assert found[0]
    levels = Counter(query.consistency for query in asked if "peers" not in query.cql)
    assert levels == {"QUORUM": 2, "ONE": 20}
    asked.clear()
    joined = server.join()
    assert joined.start_us in generations.timestamps()
    assert {query.consistency for query in asked} == {"QUORUM"}

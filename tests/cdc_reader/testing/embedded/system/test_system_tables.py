"""Tests that queries of system tables return the bytes recorded from ScyllaDB 5.2."""

import base64
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cassandra.protocol import QueryMessage

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded.protocol.body import string_multimap
from cdc_reader.testing.embedded.protocol.connection import Connection, State
from cdc_reader.testing.embedded.protocol.frame import HEADER, Opcode
from cdc_reader.testing.embedded.session import Reply, Session
from tests.drivers import read_result

SOME_SYSTEM_COLUMNS = (
    "SELECT * FROM system_schema.columns WHERE keyspace_name='system' AND table_name IN "
    "('local','peers','cdc_local','versions','clients')"
)
DATA = Path(__file__).parents[4] / "data"


def recorded() -> dict[str, bytes]:
    """Return the recorded RESULT bodies, by query."""
    with gzip.open(DATA / "scylla-5.2-frames.json.gz", "rt") as file:
        return {cql: base64.b64decode(body) for cql, body in json.load(file)["system"].items()}


@pytest.fixture(scope="module")
def session() -> Session:
    """A session, without a socket, with a server that is set up like the recorded one."""
    scylla = EmbeddedScylla(version="5.2", vnodes=16, shards=2)
    host = scylla._host(scylla.cluster.nodes[0])
    return Session(host, peer=("127.0.0.1", 1), connection=Connection(State.READY))


def body_of(session: Session, cql: str) -> bytes:
    """Return the body of the response to a query."""
    request = io.BytesIO()
    QueryMessage(cql, 1).send_body(request, 4)
    size = len(request.getvalue())
    data = HEADER.pack(4, 0, 0, Opcode.QUERY, size) + request.getvalue()
    (answer,) = session.receive(data)
    assert isinstance(answer, Reply)
    return answer.data[HEADER.size :]


def decoded(body: bytes) -> Any:
    """Decode a RESULT with the driver."""
    return read_result(body)


@pytest.mark.parametrize(
    "cql",
    [
        "SELECT * FROM system_schema.keyspaces",
        "SELECT * FROM system_schema.tables WHERE keyspace_name='system_distributed'",
        "SELECT * FROM system_schema.columns WHERE keyspace_name='system_distributed'",
        "SELECT * FROM system_schema.scylla_tables WHERE keyspace_name='system_distributed'",
        "SELECT * FROM system_schema.columns WHERE keyspace_name='system_schema'",
        SOME_SYSTEM_COLUMNS,
        "SELECT * FROM system.peers",
    ],
)
def test_a_recorded_query_is_answered_with_the_recorded_bytes(session: Session, cql: str) -> None:
    """The response is equal to the recorded one, byte for byte."""
    assert body_of(session, cql) == recorded()[cql]


def columns_only(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name and type of each column of a RESULT."""
    result = decoded(body)
    for name, cql_type in zip(result.column_names, result.column_types, strict=True):
        yield name, cql_type.cql_parameterized_type()


@pytest.mark.parametrize("cql", [cql for cql in recorded() if "SELECT *" in cql])
def test_every_recorded_query_has_the_recorded_columns(session: Session, cql: str) -> None:
    """All recorded queries return the recorded columns, even if their rows differ by cluster."""
    assert list(columns_only(body_of(session, cql))) == list(columns_only(recorded()[cql]))


def test_the_local_row_differs_only_where_clusters_do(session: Session) -> None:
    """`system.local` differs from the recording only in values that are specific to a cluster."""
    cql = "SELECT * FROM system.local WHERE key='local'"
    expected, found = decoded(recorded()[cql]), decoded(body_of(session, cql))
    own = {
        "cluster_name",
        "gossip_generation",
        "host_id",
        "schema_version",
        "supported_features",
        "tokens",
    }
    for name, real, ours in zip(
        expected.column_names, expected.parsed_rows[0], found.parsed_rows[0], strict=True
    ):
        assert (real == ours) is (name not in own), name


def test_options_are_those_recorded(session: Session) -> None:
    """The supported options are equal to the recorded ones, in the same order."""
    with gzip.open(DATA / "scylla-5.2-frames.json.gz", "rt") as file:
        expected = json.load(file)["supported"]
    (answer,) = session.receive(HEADER.pack(4, 0, 0, Opcode.OPTIONS, 0))
    assert isinstance(answer, Reply)
    assert answer.data[4] == Opcode.SUPPORTED
    assert answer.data[HEADER.size :] == string_multimap(expected)


def test_cdc_local_shows_the_newest_generation(session: Session) -> None:
    """`system.cdc_local` has a row for the newest generation, and one that marks the upgrade."""
    rows = decoded(body_of(session, "SELECT * FROM system.cdc_local")).parsed_rows
    assert [row[0] for row in rows] == ["cdc_local", "rewritten"]
    assert [cell is None for cell in rows[0] + rows[1]] == [False] * 4 + [True] * 2


def test_config_shows_the_limits_in_force() -> None:
    """Clients can read the maximum numbers of keys in IN lists."""
    scylla = EmbeddedScylla(most_partitions=7)
    cql = "SELECT value FROM system.config WHERE name = 'max_{}_key_restrictions_per_query'"
    shown = [scylla.execute(cql.format(key)) for key in ("partition", "clustering")]
    assert shown == [[(b"7",)], [(b"100",)]]

"""Tests that the raw responses to 88 requests equal those recorded from real servers.

The tests compare opcode, flags, kind, metadata, error code and message. They do not compare ids,
times, tokens or paging states, which differ even between runs of a real server. `DIFFERENT` lists
the requests whose responses differ here, with the reason.
"""

import base64
import gzip
import json
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_reader.testing import EmbeddedScylla
from tests.drivers import read_result
from tests.recordings.bare_client import ERROR, RESULT, SUPPORTED, Answer, Client, ask

DATA = Path(__file__).parents[3] / "data"
VERSIONS = sorted(path.name.split("-")[1] for path in DATA.glob("scylla-*-responses.json.gz"))

DIFFERENT = {
    "QUERY CREATE INDEX i ON t (a)": "secondary indexes are not simulated",
    "QUERY DROP INDEX i": "secondary indexes are not simulated",
    "QUERY CREATE MATERIALIZED VIEW mv AS SELECT * FROM t WHERE pk IS NOT NULL AND ck IS NOT NULL "
    "PRIMARY KEY (ck, pk)": "materialized views are not simulated",
    "QUERY DROP MATERIALIZED VIEW mv": "materialized views are not simulated",
    "QUERY LIST ROLES": "roles are not simulated",
}


def recorded(version: str) -> Any:
    """Load the recorded requests and responses of a version."""
    with gzip.open(DATA / f"scylla-{version}-responses.json.gz", "rt") as file:
        return json.load(file)


@pytest.fixture(scope="module")
def client(version: str) -> Iterator[Client]:
    """A minimal client of a server that behaves like the recorded version."""
    with (
        EmbeddedScylla(version=version) as server,
        socket.create_connection((server.host, server.port)) as connection,
    ):
        connection.settimeout(20)
        yield Client(connection)


def comparable(answer: Answer) -> object:
    """Return the parts of a response that are the same in every run."""
    body = answer.body
    warnings: list[str] = []
    if answer.flags & 0x08:
        count, body = struct.unpack(">H", body[:2])[0], body[2:]
        for _ in range(count):
            size = struct.unpack(">H", body[:2])[0]
            warnings.append(body[2 : 2 + size].decode())
            body = body[2 + size :]
    # Connections are assigned to a node's shards in turn.
    body = re.sub(rb"(SCYLLA_SHARD\x00\x01\x00\x01)\d", rb"\1?", body)
    if answer.opcode == SUPPORTED:  # the recorded server had no shard-aware port
        body = re.sub(rb"\x00\x17SCYLLA_SHARD_AWARE_PORT\x00\x01\x00.\d+", b"", body[2:])
    if answer.opcode != RESULT:
        return answer.opcode, answer.flags, warnings, body
    result = read_result(body, [])
    return (
        answer.opcode,
        answer.flags,
        warnings,
        result.kind,
        columns(result.column_metadata),
        columns(result.bind_metadata),
        result.pk_indexes,
        result.schema_change_event,
        result.new_keyspace,
        len(result.parsed_rows) if result.parsed_rows is not None else None,
    )


def columns(metadata: Any) -> list[tuple[object, ...]]:
    """Return (keyspace, table, name, type) of each column."""
    return [(*column[:3], column[3].cql_parameterized_type()) for column in metadata or ()]


@pytest.mark.parametrize("version", VERSIONS, scope="module")
def test_raw_answers_repeat(client: Client, version: str) -> None:
    """Every response has the recorded opcode, kind, metadata, error code and message.

    All requests use one connection in order, because responses depend on earlier requests.
    """
    wrong = []
    for entry in recorded(version)["responses"]:
        request = entry["request"]
        answer = ask(client, request)
        if "header" in entry:
            number, flags, _, opcode, _ = struct.unpack(">BBhBI", bytes.fromhex(entry["header"]))
            expected = Answer(number, flags, opcode, base64.b64decode(entry["body"]))
        else:
            expected = Answer(
                0x84, entry["flags"], entry["opcode"], base64.b64decode(entry["body"])
            )
        if request in DIFFERENT:
            continue
        if comparable(expected) != comparable(answer):
            wrong.append(
                f"{request}\n  expected {comparable(expected)}\n  found    {comparable(answer)}"
            )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("version", VERSIONS, scope="module")
def test_what_is_not_simulated_is_refused_with_the_reason(client: Client) -> None:
    """Statements that are not simulated are rejected as not supported."""
    for request in DIFFERENT:
        answer = ask(client, request)
        assert answer.opcode == ERROR
        assert b"is not supported by this server" in answer.body, answer.body

"""Tests the part of the REST API that test suites use."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from cdc_reader.testing import EmbeddedScylla


@pytest.fixture
def scylla() -> Iterator[EmbeddedScylla]:
    """A two-node server with a table."""
    with EmbeddedScylla(nodes=2, api_port=0, ring_delay_ms=0) as server:
        server.execute("CREATE KEYSPACE ks WITH replication = "
                       "{'class': 'SimpleStrategy', 'replication_factor': 1}")  # fmt: skip
        server.execute("CREATE TABLE ks.t (pk int PRIMARY KEY)")
        yield server


def ask(scylla: EmbeddedScylla, method: str, path: str, host: str | None = None) -> Any:
    """Send a request to a node, by default the first, and return the decoded JSON response."""
    url = f"http://{host or scylla.host}:{scylla.api_port}/{path}"
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=120) as answer:
        return json.load(answer)


def refusal(scylla: EmbeddedScylla, method: str, path: str) -> tuple[int, str]:
    """Send a request that must fail, and return (status, message)."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(scylla, method, path)
    with refused.value as answer:
        found = json.load(answer)
    assert found["code"] == answer.code
    return answer.code, found["message"]


@pytest.mark.parametrize(
    "path",
    [
        "storage_service/keyspace_flush/ks",
        "storage_service/keyspace_flush/ks?cf=t,t",
        "storage_service/keyspace_compaction/ks?cf=t",
        "storage_service/flush",
        "storage_service/compact",
        "column_family/major_compaction/ks:t",
    ],
)
def test_commands_about_files_are_accepted(scylla: EmbeddedScylla, path: str) -> None:
    """Commands that only affect files are accepted."""
    assert ask(scylla, "POST", path) is None


def test_a_keyspace_or_table_that_is_not_there_is_refused(scylla: EmbeddedScylla) -> None:
    """Requests for an unknown keyspace, table or path are rejected with ScyllaDB's errors."""
    unknown = refusal(scylla, "POST", "storage_service/keyspace_flush/nope")
    assert unknown == (400, "Can't find a keyspace nope")
    status, message = refusal(scylla, "POST", "storage_service/keyspace_compaction/ks?cf=nope")
    assert (status, "nope" in message) == (400, True)
    assert refusal(scylla, "POST", "storage_service/nothing") == (404, "Not found")
    assert refusal(scylla, "GET", "storage_service/nothing") == (404, "Not found")


def test_a_decommissioned_node_leaves_and_the_streams_are_repaired(scylla: EmbeddedScylla) -> None:
    """A decommissioned node leaves the ring, and repairing the streams creates a generation."""
    first, last = scylla.cluster.nodes
    assert ask(scylla, "POST", "storage_service/decommission", last.address) is None
    assert scylla.cluster.nodes == (first,)
    before = scylla.cluster.generations
    assert ask(scylla, "POST", "storage_service/cdc_streams_check_and_repair") is None
    assert len(scylla.cluster.generations) == len(before) + 1
    status, _ = refusal(scylla, "POST", "storage_service/decommission")
    assert status == 500  # the last node cannot leave


@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "PUT", "DELETE"])
def test_other_methods_do_nothing(scylla: EmbeddedScylla, method: str) -> None:
    """HTTP methods other than POST do not decommission a node."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(scylla, method, "storage_service/decommission")
    with refused.value as answer:
        assert answer.code == 404
    assert len(scylla.cluster.nodes) == 2


def test_nodes_are_listed_and_removed_by_id(scylla: EmbeddedScylla) -> None:
    """Nodes are listed with their ids, and a node that is down can be removed by id."""
    scylla.join()
    first, second, third = scylla.cluster.nodes
    scylla.take_down(second)
    assert ask(scylla, "GET", "gossiper/endpoint/live") == [first.address, third.address]
    assert ask(scylla, "GET", "gossiper/endpoint/down") == [second.address]
    listed = ask(scylla, "GET", "storage_service/host_id", third.address)
    assert {each["value"] for each in listed} == {str(n.host_id) for n in scylla.cluster.nodes}
    assert ask(scylla, "GET", "storage_service/hostid/local") == str(first.host_id)
    ask(scylla, "POST", f"storage_service/remove_node?host_id={second.host_id}")
    assert scylla.cluster.nodes == (first, third)


def test_facts_about_the_server_are_returned(scylla: EmbeddedScylla) -> None:
    """The API returns the operation mode, the version and the keyspaces."""
    assert ask(scylla, "GET", "storage_service/operation_mode") == "NORMAL"
    assert ask(scylla, "GET", "storage_service/scylla_release_version") == scylla.profile.version
    assert "ks" in ask(scylla, "GET", "storage_service/keyspaces")


def test_malformed_requests_are_refused(scylla: EmbeddedScylla) -> None:
    """A malformed request gets an error, and the server keeps running."""
    assert scylla.api_port is not None
    with socket.create_connection((scylla.host, scylla.api_port), timeout=120) as connection:
        connection.sendall(b"\x00\xff\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert ask(scylla, "GET", "storage_service/operation_mode") == "NORMAL"

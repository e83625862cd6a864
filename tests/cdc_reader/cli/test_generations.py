"""`scylla-cdc generations` on the server under test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from cdc_reader.cli.command import main
from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla


def run(contact_point: str, *arguments: str) -> str:
    """Return the output of the command."""
    outcome = CliRunner().invoke(main, ["generations", "--hosts", contact_point, *arguments])
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def rows(contact_point: str, *arguments: str) -> list[dict[str, Any]]:
    """Return the objects of the command's JSON output."""
    return [json.loads(line) for line in run(contact_point, "--json", *arguments).splitlines()]


@pytest.mark.needs("topology")
def test_the_generations_of_a_cluster_on_vnodes() -> None:
    """The output shows a current, a future and an unannounced generation."""
    with EmbeddedScylla(vnodes=3, shards=2) as server:
        first = server.cluster.generations[0]
        second = server.join(vnodes=2, shards=3)
        server.hold_publication(1)
        third = server.join(vnodes=1)
        found = rows(server.contact_point)
        keys = ("start_micros", "end_micros", "state", "groups", "streams")
        assert [tuple(row[key] for key in keys) for row in found] == [
            (first.start_us, second.start_us, "in force", 3, 6),
            (second.start_us, None, "to come", 5, 12),
            (third.start_us, None, "not announced", None, None),
        ]
        assert {row["kind"] for row in found} == {"vnodes"}
        lines = run(server.contact_point, "--no-count").splitlines()
    assert [line.split()[0] for line in lines] == ["BEGINS", *(row["start"] for row in found)]
    assert lines[1].split()[-3:] == ["in", "force", "vnodes"]


@pytest.mark.needs("topology")
def test_a_table_on_tablets_has_its_own_generations() -> None:
    """Given a table that uses tablets, the command lists the table's own generations."""
    with EmbeddedScylla() as server:
        session = open_session(server.host, server.port)
        session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
            "'replication_factor': 1} AND tablets = {'initial': 4}"
        )
        session.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        session.cluster.shutdown()
        server.split_tablets("ks", "t")
        found = rows(server.contact_point, "ks.t")
    assert [(row["kind"], row["groups"], row["streams"]) for row in found] == [
        ("tablets", 4, 4),
        ("tablets", 8, 8),
    ]


@pytest.mark.needs("topology")
def test_a_past_generation_of_4_3_is_listed() -> None:
    """A ScyllaDB 4.3 generation, which has no token ranges, is listed with kind "4.3"."""
    with EmbeddedScylla(version="4.3", ring_delay_ms=0) as server:
        server.join()
        found = rows(server.contact_point)
    assert [(row["kind"], row["state"]) for row in found] == [("4.3", "over"), ("4.3", "in force")]


def test_a_missing_table_is_reported_in_one_line(scylla: Scylla, keyspace: str) -> None:
    """A missing table is reported with exit status 1 and a one-line error on stderr."""
    arguments = ["generations", "--hosts", scylla.contact_point, f"{keyspace}.nonesuch"]
    outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 1
    assert outcome.stdout == ""
    [line] = outcome.stderr.splitlines()
    assert line.startswith(f"Error: table {keyspace}.nonesuch was not found at ")

"""`scylla-cdc streams` on the server under test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from cdc_reader.cli.command import main
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing import EmbeddedScylla

if TYPE_CHECKING:
    from click.testing import Result

    from cdc_reader.testing import Scylla

COUNT = 20


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """A table with a composite partition key and 20 rows in its log."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (a int, b text, PRIMARY KEY ((a, b))) "
        "WITH cdc = {'enabled': true}"
    )
    for number in range(COUNT):
        scylla.session.execute(f"INSERT INTO {keyspace}.t (a, b) VALUES ({number}, 'b{number}')")
    return f"{keyspace}.t"


def invoke(scylla: Scylla, *arguments: str) -> Result:
    """Run the command, and return its result when it ends."""
    return CliRunner().invoke(main, ["streams", "--hosts", scylla.contact_point, *arguments])


def rows(scylla: Scylla, *arguments: str) -> list[dict[str, Any]]:
    """Return the objects of the command's JSON output."""
    outcome = invoke(scylla, "--json", *arguments)
    assert outcome.exit_code == 0, outcome.output
    return [json.loads(line) for line in outcome.output.splitlines()]


def test_the_streams_in_force_with_the_parts_of_their_ids(scylla: Scylla, table: str) -> None:
    """The current streams are listed in ring order, as text and as JSON."""
    found = rows(scylla, table)
    for row in found:
        stream = StreamId(bytes.fromhex(row["stream"]))
        parts = (stream.token, stream.random, stream.index, stream.version)
        assert (row["token"], row["random"], row["index"], row["version"]) == parts
        assert row["version"] == 1
    ends = [row["range_end"] for row in found]
    assert ends == sorted(ends)
    outcome = invoke(scylla, table)
    title, heading, *lines = outcome.output.splitlines()
    assert title.startswith("generation from ")
    assert heading.split() == ["RANGE", "END", "TOKEN", "STREAM", "RANDOM", "INDEX", "VERSION"]
    names = ("range_end", "token", "stream", "random", "index", "version")
    assert [line.split() for line in lines] == [[str(row[n]) for n in names] for row in found]


def test_the_stream_of_a_key_is_where_its_rows_are(scylla: Scylla, table: str) -> None:
    """The streams that the command prints for a key include the stream of the key's rows."""
    log = scylla.session.execute(f'SELECT "cdc$stream_id", a, b FROM {table}_scylla_cdc_log')
    streams = {(row[1], row[2]): row[0].hex() for row in log}
    assert len(streams) == COUNT
    for (a, b), stream in list(streams.items())[:5]:
        found = rows(scylla, table, "--key", json.dumps({"b": b, "a": a}))
        assert stream in [row["stream"] for row in found]
        assert rows(scylla, table, "--key", json.dumps([a, b])) == found
        printed = invoke(scylla, table, "--key", json.dumps([a, b])).output
        assert printed.startswith(f"token {found[0]['key_token']}\n")
        assert stream in printed


@pytest.mark.needs("topology")
def test_a_generation_is_named_by_a_time_in_it() -> None:
    """`--generation` accepts any time from a generation's start up to the start of the next."""
    with EmbeddedScylla(vnodes=2, shards=1) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', "
            "'replication_factor': 1} AND tablets = {'enabled': false}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        first, second = server.cluster.generations[0], server.join(vnodes=3, shards=1)
        base = ["streams", "--hosts", server.contact_point, "ks.t", "--json"]
        for moment, count, start in (
            (first.timestamp, 2, first.start_us),
            (second.timestamp - 1, 2, first.start_us),
            (second.timestamp, 5, second.start_us),
        ):
            outcome = CliRunner().invoke(main, [*base, "--generation", str(moment)])
            found = [json.loads(line) for line in outcome.output.splitlines()]
            assert len(found) == count
            assert {row["generation_micros"] for row in found} == {start}
        outcome = CliRunner().invoke(main, [*base, "--key", "7"])
        chosen = [json.loads(line) for line in outcome.output.splitlines()]
        assert [row["generation_micros"] for row in chosen] == [first.start_us, second.start_us]
        outcome = CliRunner().invoke(main, [*base, "--generation", "1999-01-01"])
        assert outcome.exit_code == 2
        assert outcome.stderr.startswith(
            "Error: --generation is '1999-01-01T00:00:00Z': give a time"
        )


@pytest.mark.needs("topology")
def test_no_stream_is_guessed_without_known_ranges() -> None:
    """With ScyllaDB 4.3, streams are listed, but `--key` is rejected.

    ScyllaDB 4.3 does not publish token ranges.
    """
    with EmbeddedScylla(version="4.3", ring_delay_ms=0, vnodes=2) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        base = ["streams", "--hosts", server.contact_point, "ks.t"]
        listed = CliRunner().invoke(main, [*base, "--json"])
        assert [json.loads(line)["range_end"] for line in listed.output.splitlines()] == [None] * 4
        outcome = CliRunner().invoke(main, [*base, "--key", "1"])
    assert outcome.exit_code == 1
    assert outcome.stderr.startswith("Error: ScyllaDB 4.3 does not publish token ranges")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("{", "Error: key is '{': give JSON: an object keyed by column, "),
        (
            '{"a": 1}',
            "Error: key is '{\"a\": 1}': the key is a, b: give an object keyed by column, ",
        ),
        ("[1]", "Error: key is '[1]': the key is a, b: give "),
        ('["x", "y"]', "Error: key column a is 'x': give a value of type int"),
        ("[1, 2]", "Error: key column b is 2: give a value of type text"),
        ('[4294967296, "y"]', "Error: key column a is 4294967296: give a value of type int"),
    ],
)
def test_an_unusable_key_is_refused_in_one_line(
    scylla: Scylla, table: str, key: str, message: str
) -> None:
    """An invalid key is rejected with exit status 2 and a one-line error."""
    outcome = invoke(scylla, table, "--key", key)
    assert outcome.exit_code == 2
    [line] = outcome.stderr.splitlines()
    assert line.startswith(message)

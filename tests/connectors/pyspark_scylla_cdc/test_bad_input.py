"""At ``load()`` or ``start()``, invalid input raises a one-line error with the valid values."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from cdc_reader.errors import CdcError
from pyspark_scylla_cdc import ScyllaCdcDataSource
from pyspark_scylla_cdc.options.table import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Execute = Callable[..., None]
Load = Callable[..., "DataFrame"]
Ways = dict[str, Callable[..., object]]

AT_LOAD = re.compile(
    r"\[PYTHON_DATA_SOURCE_ERROR\] Failed to \w+ Python data source \w+: "
    r"cdc_reader\.errors\.\w+: (.*)\s+SQLSTATE: \w+\s*"
)
"""Spark's whole message: its own text and this project's error, without Python frames."""
NO_PEM = str(Path(__file__))
CERTIFICATES = Path(__file__).parents[2] / "data" / "tls"
FAR = "9" * 30

WRONG: dict[str, list[tuple[str, str]]] = {
    "hosts": [
        ("", "hosts is '': give hosts, contact points"),
        ("h:0", "hosts is 'h:0': give each host as 'host' or 'host:port'"),
        ("[::1", "hosts is '[::1': give each host as 'host' or 'host:port'"),
        ("http://127.0.0.1:9042", "hosts is 'http://127.0.0.1:9042': give each host"),
    ],
    "keyspace": [
        ("nowhere", "keyspace nowhere of table nowhere.t was not found"),
        ('"; DROP', 'keyspace "; DROP of table'),
    ],
    "table": [
        ("missing", ".missing was not found"),
        ("two\nlines", ".two\\nlines was not found"),
        ("nul\0", "table is 'nul\\x00': remove the NUL character"),
        ("pt", "did you mean t?"),
        ("Plain", "did you mean plain?"),
        ("plain", "WITH cdc = {'enabled': true}"),
        ("counters", "is a counter table, which cannot have a CDC log"),
        ("t_scylla_cdc_log", "is itself a CDC log; give its base table"),
    ],
    "path": [
        ("nowhere", "path is 'nowhere': give it as keyspace.table"),
        ("other.t", "path is 'other.t' and names another keyspace: leave one of them out"),
    ],
    "username": [("u", "password is None: give username and password, or neither")],
    "password": [("p", "username is None: give username and password, or neither")],
    "passwordFile": [
        ("/none", "passwordFile is '/none': it cannot be read (No such file"),
        ("/", "passwordFile is '/': it cannot be read (Is a directory)"),
        ("nul\0", "passwordFile is 'nul\\x00': remove the NUL character"),
    ],
    "ssl.enabled": [("on", "ssl.enabled is 'on': give true or false")],
    "ssl.verifyHostname": [("0", "ssl.verifyHostname is '0': give true or false")],
    "ssl.caFile": [
        ("/none", "ssl.caFile is '/none': give a readable PEM file"),
        (NO_PEM, f"ssl.caFile is '{NO_PEM}': give a readable PEM file"),
    ],
    "ssl.certFile": [("/none", "give ssl.certFile and ssl.keyFile, or neither")],
    "ssl.keyFile": [("/none", "give ssl.certFile and ssl.keyFile, or neither")],
    "localDC": [("nowhere", "localDC is 'nowhere': the cluster has datacenter1")],
    "consistencyLevel": [("MOST", "consistencyLevel is 'MOST': give one of ONE")],
    "requestTimeout": [
        ("0s", "requestTimeout is '0s': give a duration above zero"),
        ("-1s", "requestTimeout is '-1s': give a duration such as"),
    ],
    "retryTimeout": [(FAR + "s", f"retryTimeout is '{FAR}s': give a duration")],
    "format": [("rows", "format is 'rows': give log, changes or envelope")],
    "includeDelta": [
        ("yes", "includeDelta is 'yes': give true or false"),
        ("true", "includeDelta is 'true': log rows already show what they changed"),
    ],
    "rangeDeletes": [("drop", "rangeDeletes is 'drop': give fail, emit or skip")],
    "preimages": [("all", "preimages is 'all': give auto, none or require")],
    "columns": [
        ("v,nothing", "columns is"),
        ("[1]", "columns is '[1]': give names separated by commas, or a JSON array"),
    ],
    "partitionKey": [
        ("[1]", "partitionKey is '[1]': give a JSON object"),
        ("{}", "partitionKey is '{}'"),
        ('{"pk": "x"}', "partitionKey is"),
    ],
    "decimalType": [("decimal(39, 2)", "decimalType is 'decimal(39, 2)': give 'string', or")],
    "onBadRecord": [("drop", "onBadRecord is 'drop': give fail, skip or quarantine")],
    "schemaMode": [("drop", "schemaMode is 'drop': give keep or fail")],
    "startingTimestamp": [
        ("soon", "startingTimestamp is 'soon': give 'earliest', 'latest', 'now', a time ago"),
        ("1795322564", "seconds since 1970, but milliseconds are expected: give 1795322564000"),
        ("NaN", "startingTimestamp is 'NaN': give"),
    ],
    "startingOffsets": [
        ('{"version": 9, "position": 1}', "give 'earliest', 'latest', or an offset of version 1"),
        ('{"ks.t": 7}', "give 'earliest', 'latest', or an offset as a checkpoint"),
        ('{"version": 1, "position": 1}', "give 'earliest', 'latest', or an offset as a check"),
    ],
    "snapshot": [
        ("initial", "snapshot is 'initial': a snapshot has rows of the table, not of its log")
    ],
    "endingTimestamp": [
        (FAR, f"endingTimestamp is '{FAR}': not a likely time of a change in millis")
    ],
    "onDataLoss": [
        ("warn", "onDataLoss is 'warn': give continue, fail or resnapshot"),
        ("resnapshot", "onDataLoss is 'resnapshot': a snapshot has rows of the table, not of"),
    ],
    "lateRows": [("drop", "lateRows is 'drop': give ignore, report or deliver")],
    "lateHorizon": [("0s", "lateHorizon is '0s': give a duration above zero")],
    "confidenceWindow": [("30", "confidenceWindow is '30': give a unit, such as '30s'")],
    "maxWindowPerTrigger": [("0s", "maxWindowPerTrigger is '0s': give a duration above zero")],
    "maxRowsPerTrigger": [("-1", "maxRowsPerTrigger is '-1': give a whole number above zero")],
    "maxBytesPerTrigger": [
        ("64 MiB", "maxBytesPerTrigger is '64 MiB': give a number of bytes, such as"),
        ("0", "maxBytesPerTrigger is '0': give a number of bytes"),
    ],
    "fetchSize": [(FAR, f"fetchSize is '{FAR}': give a whole number above zero that fits 64 bits")],
    "maxQueriesPerSecond": [("0.5", "maxQueriesPerSecond is '0.5': give a whole number above")],
    "maxPartitions": [("many", "maxPartitions is 'many': give a whole number above zero")],
    "minPartitions": [("9", "minPartitions is 9: give no more than maxPartitions, which is 8")],
    "fetchsise": [("1", "fetchsise is '1': no such option; did you mean fetchSize?")],
    "xyzzy": [("1", "xyzzy is '1': no such option; the options are hosts, keyspace")],
}
"""Wrong values of each option, with a part of the error, and two unknown options."""


@pytest.fixture
def tables(scylla: Scylla, keyspace: str) -> None:
    """Tables with and without a log."""
    for statement in (
        "CREATE TABLE {ks}.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}",
        "CREATE TABLE {ks}.plain (pk int PRIMARY KEY, v int)",
        "CREATE TABLE {ks}.counters (pk int PRIMARY KEY, v counter)",
    ):
        scylla.session.execute(statement.format(ks=keyspace))


@pytest.fixture(scope="module")
def in_turn() -> Iterator[str]:
    """The ways to use the source, in turn. Each use is slow, so each case tries only one way."""
    return cycle(("batch", "stream", "view"))


@pytest.fixture
def ways(spark: SparkSession, load: Load, options: dict[str, str]) -> Ways:
    """The ways to use the source. Each takes options."""

    def view(**more: str) -> None:
        given = ", ".join(f"{quoted(k)} {quoted(v)}" for k, v in {**options, **more}.items())
        spark.sql(f"CREATE TEMPORARY VIEW refused USING scylla_cdc OPTIONS ({given})")

    return {"batch": load, "stream": lambda **more: load(stream=True, **more), "view": view}


def quoted(text: str) -> str:
    """Quote the text for SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def refusal(way: Callable[..., object], **given: str) -> str:
    """Return this project's error, as Spark shows it for these options."""
    with pytest.raises(AnalysisException) as refused:
        way(**given)
    found = AT_LOAD.fullmatch(str(refused.value))
    assert found, str(refused.value)
    return found[1].rstrip()


def test_every_option_is_given_wrongly() -> None:
    """`WRONG` contains a case for each option."""
    assert {option.name for option in OPTIONS} == set(WRONG) - {"fetchsise", "xyzzy"}


@pytest.mark.nightly
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("name", list(WRONG))
def test_refused(ways: Ways, in_turn: Iterator[str], options: dict[str, str], name: str) -> None:
    """Each wrong value raises an error, which Spark shows for a batch, a stream or SQL."""
    for value, expected in WRONG[name]:
        with pytest.raises(CdcError) as refused:
            ScyllaCdcDataSource(lower({**options, name: value})).schema()
        assert expected in str(refused.value)
        assert "\n" not in str(refused.value)
    value, expected = WRONG[name][0]
    assert expected in refusal(ways[next(in_turn)], **{name: value})


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    "given",
    [
        {"table": "plain"},
        pytest.param({"fetchSize": "many"}, marks=pytest.mark.slow),
        pytest.param({"format": "changes"}, marks=pytest.mark.slow),
    ],
)
def test_batch_stream_and_sql_raise_the_same_line(ways: Ways, given: dict[str, str]) -> None:
    """Batch, stream and SQL raise the same error for the same input."""
    assert len({refusal(way, **given) for way in ways.values()}) == 1


def lower(options: dict[str, str]) -> dict[str, str]:
    """Return the options with lower-case names, as Spark passes them."""
    return {name.lower(): value for name, value in options.items()}


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"startingTimestamp": "2026-11-22T00:00:00Z", "endingTimestamp": "2026-11-21"},
            "startingTimestamp is '2026-11-22T00:00:00Z': it is after endingTimestamp",
        ),
        (
            {"startingTimestamp": "latest", "startingOffsets": "latest"},
            "give startingTimestamp or startingOffsets, not both",
        ),
        ({"username": "u", "password": "p", "passwordFile": "/"}, "password or passwordFile, not"),
        ({"format": "changes"}, "ALTER TABLE"),
        ({"format": "envelope", "preimages": "require"}, "ALTER TABLE"),
        ({"format": "envelope", "rangeDeletes": "emit"}, "rangeDeletes is 'emit'"),
    ],
)
def test_contradictions(options: dict[str, str], given: dict[str, str], expected: str) -> None:
    """Options that exclude each other, or that the table's log does not support, raise an error."""
    with pytest.raises(CdcError) as refused:
        ScyllaCdcDataSource(lower({**options, **given})).schema()
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_missing_option(spark: SparkSession) -> None:
    """The error names the missing option and its purpose."""
    with pytest.raises(AnalysisException, match=r"hosts is .*give hosts, contact points"):
        spark.read.format("scylla_cdc").load()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["silent_port", "closed_port"])
def test_unreachable_host(load: Load, request: pytest.FixtureRequest, kind: str) -> None:
    """If the host refuses connections or does not respond, `load()` fails within the timeout."""
    hosts = f"127.0.0.1:{request.getfixturevalue(kind)}"
    message = refusal(load, hosts=hosts)
    assert f"hosts is '{hosts}': cannot connect to {hosts}" in message
    assert "check host, port and that the node is up" in message


@pytest.mark.slow
def test_unknown_host(load: Load) -> None:
    """If a host name cannot be resolved, `load()` fails within the connect timeout."""
    message = refusal(load, hosts="no-such-host.invalid")
    assert "hosts is 'no-such-host.invalid': cannot connect to no-such-host.invalid:9042" in message
    assert "{}" not in message


def test_a_certificate_of_another_host() -> None:
    """If the certificate belongs to another host, the error names the Spark options to change."""
    from cdc_reader.testing import EmbeddedScylla

    given = {"keyspace": "k", "table": "t", "ssl.enabled": "true"}
    elsewhere, key = (str(CERTIFICATES / f"{name}.pem") for name in ("elsewhere", "key"))
    with EmbeddedScylla(certificate=elsewhere, key=key) as server:
        given = {**given, "hosts": server.contact_point}
        with pytest.raises(CdcError, match=r"give the authority that signed it as ssl\.caFile"):
            ScyllaCdcDataSource(lower(given)).schema()
        given = {**given, "ssl.caFile": elsewhere}
        with pytest.raises(CdcError, match=r"turn ssl\.verifyHostname off"):
            ScyllaCdcDataSource(lower(given)).schema()
        given = {**given, "ssl.verifyHostname": "false"}
        with pytest.raises(CdcError, match=r"keyspace k of table k\.t was not found"):
            ScyllaCdcDataSource(lower(given)).schema()


@pytest.mark.slow
def test_wrong_password(load: Load) -> None:
    """The error reports the rejected login, but shows neither the right nor the wrong password."""
    from cdc_reader.testing import EmbeddedScylla

    with EmbeddedScylla(credentials=("reader", "right-one")) as server:
        message = refusal(load, hosts=server.contact_point, username="reader", password="wrong-one")
    assert "username is 'reader'" in message
    assert "check both" in message
    assert "right-one" not in message
    assert "wrong-one" not in message


@pytest.mark.slow
def test_a_password_is_not_parsed(spark: SparkSession) -> None:
    """A password may contain any characters, including a space at either end."""
    from cdc_reader.testing import EmbeddedScylla

    password = " p@ \"ss'ü "
    with EmbeddedScylla(credentials=("reader", password)) as server:
        reader = spark.read.format("scylla_cdc").options(
            hosts=server.contact_point, username="reader", password=password
        )
        with pytest.raises(AnalysisException, match=r"keyspace k of table k\.t was not found"):
            reader.options(keyspace="k", table="t").load()


SCHEMAS = [
    ("pk long", "column pk is of type int, and the DataFrame has it as bigint: load it again"),
    ("key int", "the DataFrame has a column key, but format 'log' of this table has the columns"),
]


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(("schema", "expected"), SCHEMAS)
def test_a_schema_that_does_not_fit(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, schema: str, expected: str
) -> None:
    """If the schema is not part of the table's schema, the error states what is expected."""
    batch = spark.read.format("scylla_cdc").options(**options).schema(schema).load()
    assert expected in refusal(batch.count)
    stream = spark.readStream.format("scylla_cdc").options(**options).schema(schema).load()
    assert expected in failure(stream, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
def test_dropped_after_load(load: Load, execute: Execute, tmp_path: Path) -> None:
    """If the table is dropped before the query starts, the error is the same as at `load()`."""
    batch, stream = load(), load(stream=True)
    execute("DROP TABLE {t}")
    assert "t was not found" in refusal(batch.count)
    assert "t was not found" in failure(stream, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
def test_dropped_while_running(load: Load, execute: Execute, tmp_path: Path) -> None:
    """A table dropped during or after the read ends the query with the error of `load()`."""
    stream = load(stream=True, confidenceWindow="0s").writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path / "c")).start()
    while len(query.recentProgress) < 3:
        assert not query.awaitTermination(1)
    execute("DROP TABLE {t}")
    with pytest.raises(StreamingQueryException) as ended:
        query.awaitTermination(60)
    assert "t was not found: it has been dropped" in our_line(ended.value)


@pytest.mark.slow
def test_failed_while_running(
    scylla: Scylla, keyspace: str, execute: Execute, load: Load, tmp_path: Path
) -> None:
    """A value that Spark cannot hold ends a query with a one-line error that names the column."""
    execute("CREATE TABLE {t} (pk int PRIMARY KEY, ts timestamp) WITH cdc = {'enabled': true}")
    insert = scylla.session.prepare(f"INSERT INTO {keyspace}.t (pk, ts) VALUES (1, ?)")
    scylla.session.execute(insert, (2**63 - 1,))
    with pytest.raises(PythonException) as failed:
        load().collect()
    ended = failure(load(stream=True, confidenceWindow="0s"), tmp_path)
    for told in (str(failed.value), ended):
        assert "Traceback" not in told
        assert "column ts holds a timestamp outside the years" in told
        assert "use the option columns to leave the column out" in told


def failure(stream: DataFrame, folder: Path) -> str:
    """Return this project's line in the error of a failed streaming query."""
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(folder / "c"))
    with pytest.raises(StreamingQueryException) as ended:
        writer.trigger(availableNow=True).start().awaitTermination()
    return our_line(ended.value)


def our_line(error: StreamingQueryException) -> str:
    """Return the line of Spark's message with this project's error. Fail if it has a traceback."""
    told, _, _ = str(error).partition("=== Streaming Query ===")
    assert "Traceback" not in told
    (line,) = [line for line in told.splitlines() if "cdc_reader.errors." in line]
    return line

"""What cannot be read is refused at ``load()``, in one line with option, value and remedy."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark


@pytest.fixture
def tables(scylla: Scylla, keyspace: str) -> None:
    """A table with a log, and one without."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': true}}"
    )
    scylla.session.execute(f"CREATE TABLE {keyspace}.plain (pk int PRIMARY KEY)")


def refusal(load: Callable[..., DataFrame], *, stream: bool = False, **given: str) -> str:
    """The line of Spark's error that our message is in."""
    with pytest.raises(AnalysisException) as refused:
        load(stream=stream, **given)
    text = str(refused.value)
    (message,) = [m for m in text.splitlines() if m.startswith("cdc_reader.errors.")]
    # Nothing may follow on further lines but Spark's own code.
    assert re.fullmatch(r"\s*SQLSTATE: \w+\s*", text.partition(message)[2]), text
    return message


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"table": "missing"}, ".missing was not found"),
        ({"table": "two\nlines"}, ".two\\nlines was not found"),
        ({"localDC": "nowhere"}, "localDC is 'nowhere': the cluster has datacenter1"),
        ({"ssl.caFile": "/none"}, "ssl.caFile is '/none': give a readable PEM file"),
        ({"ssl.certFile": "/none"}, "give ssl.certFile and ssl.keyFile, or neither"),
        ({"hosts": "http://127.0.0.1:9042"}, "hosts is 'http://127.0.0.1:9042': give each host"),
        ({"hosts": "h:0"}, "hosts is 'h:0': give each host as 'host' or 'host:port'"),
        ({"hosts": "[::1"}, "hosts is '[::1': give each host as 'host' or 'host:port'"),
        ({"table": "pt"}, "did you mean t?"),
        ({"keyspace": "nowhere"}, "keyspace nowhere of table nowhere.t was not found"),
        ({"table": "plain"}, "WITH cdc = {'enabled': true}"),
        ({"table": "t_scylla_cdc_log"}, "is itself a CDC log; give its base table"),
        ({"fetchsise": "1"}, "fetchsise is '1': no such option; did you mean fetchSize?"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is 'soon': give an ISO-8601 time"),
        ({"startingTimestamp": "soon"}, "or 'earliest' or 'latest'"),
        (
            {"startingTimestamp": "2026-11-22T00:00:00Z", "endingTimestamp": "2026-11-21"},
            "startingTimestamp is '2026-11-22T00:00:00Z': it is after endingTimestamp",
        ),
        ({"maxPartitions": "many"}, "maxPartitions is 'many': give a whole number above zero"),
        ({"hosts": ""}, "hosts is '': give hosts, contact points"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["batch", "stream"])
def test_refused(
    load: Callable[..., DataFrame], given: dict[str, str], expected: str, *, stream: bool
) -> None:
    """Batch and stream refuse the same input with the same line."""
    assert expected in refusal(load, stream=stream, **given)


def test_missing_option(spark: SparkSession) -> None:
    """Without a required option the line says which one, and what it is for."""
    with pytest.raises(AnalysisException, match=r"hosts is .*give hosts, contact points"):
        spark.read.format("scylla_cdc").load()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("kind", ["silent_port", "closed_port"])
def test_unreachable_host(
    load: Callable[..., DataFrame], request: pytest.FixtureRequest, kind: str
) -> None:
    """A host that is not there, or mute, is given up within the connect timeout."""
    hosts = f"127.0.0.1:{request.getfixturevalue(kind)}"
    began = time.monotonic()
    message = refusal(load, hosts=hosts, connectTimeout="2s")
    assert time.monotonic() - began < 10
    assert f"hosts is '{hosts}': cannot connect to {hosts}" in message
    assert "check host, port and that the node is up" in message


def test_unknown_host(load: Callable[..., DataFrame]) -> None:
    """A name that no name server knows is given up as well."""
    message = refusal(load, hosts="no-such-host.invalid", connectTimeout="2s")
    assert "hosts is 'no-such-host.invalid': cannot connect to no-such-host.invalid:9042" in message
    assert "{}" not in message


def test_wrong_password(load: Callable[..., DataFrame]) -> None:
    """A refused login says so, and neither password is in the error."""
    from cdc_reader.testing import EmbeddedScylla

    with EmbeddedScylla(credentials=("reader", "right-one")) as server:
        message = refusal(load, hosts=server.contact_point, username="reader", password="wrong-one")
    assert "username is 'reader'" in message
    assert "check both" in message
    assert "right-one" not in message
    assert "wrong-one" not in message


def test_a_password_is_taken_as_it_is(spark: SparkSession) -> None:
    """Blanks at its ends and every character count: the login works, the keyspace is missing."""
    from cdc_reader.testing import EmbeddedScylla

    password = " p@ \"ss'ü "
    with EmbeddedScylla(credentials=("reader", password)) as server:
        reader = spark.read.format("scylla_cdc").options(
            hosts=server.contact_point, username="reader", password=password
        )
        with pytest.raises(AnalysisException, match=r"keyspace k of table k\.t was not found"):
            reader.options(keyspace="k", table="t").load()


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("pk long", "column pk is of type int, and the DataFrame has it as bigint: load it again"),
        ("key int", "the DataFrame has a column key, and format 'log' of this table has the"),
    ],
)
def test_schema_of_ones_own(
    spark: SparkSession, options: dict[str, str], schema: str, expected: str
) -> None:
    """A schema given by hand that is no part of the table's is refused, and the remedy named."""
    reader = spark.read.format("scylla_cdc").options(**options).schema(schema)
    with pytest.raises(AnalysisException, match=expected):
        reader.load().count()

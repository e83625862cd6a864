"""The table of options: parsing, errors, and the reference page generated from it."""

from __future__ import annotations

import json
import pickle
import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from cdc_reader import ChangeFormat
from cdc_reader._time import BEGINNING, FOREVER, SystemClock
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError, ConnectionFailedError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.offset import Offset
from pyspark_scylla_cdc.options.kinds import POSITIVE_DURATION, Option
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.options.table import GONE, OPTIONS, SchemaMode, markdown
from pyspark_scylla_cdc.schema import markdown as types_markdown

REQUIRED = {"hosts": "db1,db2:9043", "keyspace": "shop", "table": "orders"}
OFFSET = json.dumps(
    Offset(Checkpoint(1_795_219_200_000_000, table_id=UUID(int=1)), "shop.orders").to_json()
)
REFERENCE = Path(__file__).parents[4] / "docs/reference/spark-options.md"


def parse(**given: str) -> SourceOptions:
    """Parse these options together with the required ones."""
    return SourceOptions.parse(REQUIRED | given)


def refusal(**given: str) -> str:
    """Return the one-line error for these options."""
    with pytest.raises(ConfigurationError) as refused:
        parse(**given)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_defaults() -> None:
    """The three required options are enough for a query of the whole log."""
    options = parse()
    assert options.connection().endpoints() == [("db1", 9042), ("db2", 9043)]
    assert str(options.table) == "shop.orders"
    assert options.window(now=7) == Window(BEGINNING, FOREVER)
    assert options.confidence == 30_000_000
    assert options.max_window is None


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_no_option_may_be_empty(option: Option) -> None:
    """An empty option is rejected with a short message that names the option and valid values."""
    for text in [""] if option.secret else ["", " "]:
        refused = refusal(**{option.name: text})
        assert re.match(rf"{option.name} is '(|{text}|\(not shown\))': give ", refused)
        assert len(refused) < 300


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "ssl.caFile",
            "ssl.caFile is '': give the PEM file of the CA certificates to trust, or leave",
        ),
        ("username", "username is '': give the role to log in as, or leave it out"),
        ("password", "password is '': give the password of the role, or leave it out"),
        ("localDC", "localDC is '': give the datacenter whose nodes receive the queries, or leave"),
        ("startingTimestamp", "startingTimestamp is '': give 'earliest', 'latest', 'now', a time"),
        (
            "consistencyLevel",
            "consistencyLevel is '': give the consistency of log reads, or leave it out",
        ),
        ("requestTimeout", "requestTimeout is '': give a duration such as '30s'"),
        ("columns", "columns is '': give names separated by commas"),
    ],
)
def test_the_message_of_an_empty_option(name: str, message: str) -> None:
    """The message for an empty option names the valid values."""
    assert refusal(**{name: ""}).startswith(message)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_options_that_cannot_be_zero(option: Option) -> None:
    """Options that take a number, a duration or a word reject `0`, unless zero is valid for them.

    Names may be `0`.
    """
    may_be = {"hosts", "ssl.caFile", "localDC", "columns", "startingTimestamp", "retryTimeout"}
    if option.name in {*may_be, "confidenceWindow"}:
        parse(**{option.name: "0"})
    elif option.name not in ("keyspace", "table"):
        given = {"username": "passwordFile", "password": "username"}.get(option.name)
        refused = refusal(**{option.name: "0"})
        assert given or option.name in refused or option.name.startswith("ssl."), refused
    if option.kind is POSITIVE_DURATION:
        assert "is '0': give a duration above zero, such as '30s'" in refusal(**{option.name: "0"})


def test_a_query_that_begins_after_its_end_is_refused() -> None:
    """A start after the end is rejected.

    `latest` is compared with the end only when a new query starts, because a restarted query starts
    at its checkpoint, which may be before the end.
    """
    end = 1_795_219_200_000_000
    options = parse(startingTimestamp="latest", endingTimestamp="2026-11-21")
    assert options.window(now=end - 1) == Window(end - 1, end)
    with pytest.raises(ConfigurationError, match=r"^startingTimestamp is .* endingTimestamp, 20"):
        options.window(now=end + 1)


def test_options_of_this_source() -> None:
    """Options for formats, bounds and limits are parsed into values."""
    options = parse(
        format="Changes",
        includeDelta="TRUE",
        rangeDeletes="emit",
        preimages="require",
        onBadRecord="Skip",
        columns='["a", "b,c"]',
        decimalType="Decimal(20, 3)",
        schemaMode="fail",
        snapshot="none",
        startingTimestamp="1970-01-01T00:00:01Z",
        endingTimestamp="1970-01-01T00:00:02Z",
        onDataLoss="continue",
        maxRowsPerTrigger="7",
        maxBytesPerTrigger="64m",
        minPartitions="3",
        partitionKey='{"a": 1}',
    )
    assert options.format == ChangeFormat(
        name="changes",
        columns=["a", "b,c"],
        include_delta=True,
        range_deletes="emit",
        preimages="require",
        decimal_type="Decimal(20, 3)",
        on_bad_record="skip",
    )
    assert options.window(now=0) == Window(1_000_000, 2_000_000)
    assert options.max_bytes == 64 << 20
    assert (options.data_loss, options.max_rows, options.min_partitions) == ("continue", 7, 3)
    assert options.schema_mode is SchemaMode.FAIL
    assert options.partition_key == '{"a": 1}'
    assert parse(snapshot="initial", format="envelope").snapshot
    assert parse(startingOffsets=OFFSET).starting == 1_795_219_200_000_000
    assert parse(columns="a, b").format.columns == ("a", "b")


def test_times_ago_count_from_when_the_options_are_read() -> None:
    """Relative times are resolved once, when the options are parsed."""
    before = SystemClock().now()
    options = parse(startingTimestamp="-1h", endingTimestamp="-30m")
    after = SystemClock().now()
    assert before <= options.starting + 3_600_000_000 <= after
    assert options.ending is not None
    assert before <= options.ending + 1_800_000_000 <= after
    assert pickle.loads(pickle.dumps(options)).starting == options.starting


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("shop.orders", TableName("shop", "orders")),
        ('shop."a.b"', TableName("shop", "a.b")),
        ('"Shop".Orders', TableName("Shop", "Orders")),
    ],
)
def test_a_path_names_keyspace_and_table(path: str, expected: TableName) -> None:
    """The argument of `load` is the path. The options `keyspace` and `table` may repeat it."""
    alone = {"hosts": "db1", "path": path}
    assert SourceOptions.parse(alone).table == expected
    assert SourceOptions.parse(alone | {"table": expected.name}).table == expected
    with pytest.raises(ConfigurationError, match=r"^table is 'other': path is .* leave one of"):
        SourceOptions.parse(alone | {"table": "other"})


def test_names_are_case_insensitive() -> None:
    """Spark converts names to lower case, and users may use any case."""
    assert parse(maxpartitions="3").max_partitions == 3
    assert parse(maxPartitions="3") == parse(MAXPARTITIONS="3")


def test_every_option_is_read() -> None:
    """Each option in the table has an effect on the parsed options."""
    options = parse(
        **{
            "username": "u",
            "password": "p",
            "ssl.enabled": "true",
            "ssl.caFile": "/ca",
            "ssl.verifyHostname": "false",
            "ssl.certFile": "/cert",
            "ssl.keyFile": "/key",
            "localDC": "dc1",
            "consistencyLevel": "local_quorum",
            "requestTimeout": "2s",
            "retryTimeout": "3s",
            "startingTimestamp": "1970-01-01T00:00:01Z",
            "endingTimestamp": "1970-01-01T00:00:02+00:00",
            "confidenceWindow": "0s",
            "maxWindowPerTrigger": "5 minutes",
            "fetchSize": "10",
            "maxQueriesPerSecond": "250",
            "maxPartitions": "4",
        }
    )
    connection = options.connection()
    assert (connection.username, connection.password) == ("u", "p")
    assert (connection.tls_ca, connection.tls_cert, connection.tls_key) == ("/ca", "/cert", "/key")
    assert (connection.tls, connection.tls_verify_hostname) == (True, False)
    assert (connection.local_dc, connection.consistency) == ("dc1", "LOCAL_QUORUM")
    assert connection.request_timeout == timedelta(seconds=2)
    assert options.window(now=0) == Window(1_000_000, 2_000_000)
    assert options.read.fetch_size == 10
    assert options.read.max_queries_per_second == 250
    assert options.read.retry_deadline == timedelta(seconds=3)
    assert options.max_window == timedelta(minutes=5)
    assert options.confidence == 0


def test_latest_is_the_moment_of_the_query() -> None:
    """`latest` is the time at which the query starts."""
    assert parse(startingTimestamp="latest").window(now=42).start == 42


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"hots": "db1"}, "did you mean hosts?"),
        ({"startingTimestmap": "earliest"}, "did you mean startingTimestamp?"),
        ({"xyzzy": "red"}, "the options are hosts, keyspace"),
        ({"hosts": " "}, "hosts is"),
        ({"hosts": "db1:x"}, "hosts is 'db1:x': give each host as 'host' or 'host:port'"),
        (
            {"hosts": "cql://me:secret,with:comma@db1:9042,db2"},
            "hosts is '...@db1:9042,db2': give the login as username and password, not",
        ),
        ({"maxQueriesPerSecond": "0"}, "maxQueriesPerSecond is '0': give a whole number above"),
        ({"onBadRecord": "drop"}, "onBadRecord is 'drop': give fail, skip or quarantine"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday': give 'earliest', "),
        (
            {"endingTimestamp": "2026-13-01"},
            "endingTimestamp is '2026-13-01': give 'now', a time ago",
        ),
        (
            {"startingTimestamp": "1795322564"},
            "it counts seconds since 1970, but milliseconds are expected: give 1795322564000",
        ),
        ({"endingTimestamp": "1795322564000000"}, "but milliseconds are expected: give 1795322564"),
        (
            {"startingTimestamp": "2026-11-21T00:00:01Z", "endingTimestamp": "2026-11-21"},
            "it is after endingTimestamp, 2026-11-21T00:00:00Z: give an earlier start or",
        ),
        (
            {"startingTimestamp": "latest", "endingTimestamp": "-1h"},
            "it is after endingTimestamp, 20",
        ),
        (
            {"startingOffsets": "latest", "endingTimestamp": "-1h"},
            "startingOffsets is '20",
        ),
        (
            {
                "startingOffsets": OFFSET,
                "endingTimestamp": "2026-11-20",
            },
            "startingOffsets is '2026-11-21T00:00:00Z': it is after endingTimestamp, 2026-11-20",
        ),
        ({"endingTimestamp": "0"}, "endingTimestamp is '0': not a likely time of a change"),
        ({"confidenceWindow": "30"}, "confidenceWindow is '30': give a unit, such as '30s'"),
        ({"maxWindowPerTrigger": "0s"}, "maxWindowPerTrigger is '0s': give a duration above zero"),
        ({"format": "rows"}, "format is 'rows': give log, changes or envelope"),
        ({"includeDelta": "yes"}, "includeDelta is 'yes': give true or false"),
        (
            {"includeDelta": "true"},
            (
                "includeDelta is 'true': log rows already show what they changed: leave it out, "
                "or give"
            ),
        ),
        ({"rangeDeletes": "drop"}, "rangeDeletes is 'drop': give fail, emit or skip"),
        ({"preimages": "all"}, "preimages is 'all': give auto, none or require"),
        ({"columns": "a,,b"}, "columns is 'a,,b': give names separated by commas, or a JSON"),
        ({"columns": "[1]"}, "columns is '[1]': give names separated by commas, or a JSON"),
        ({"decimalType": "decimal(39, 2)"}, "decimalType is 'decimal(39, 2)': give 'string', or"),
        ({"decimalType": "decimal(3, 4)"}, "decimalType is 'decimal(3, 4)': give 'string', or"),
        ({"schemaMode": "x"}, "schemaMode is 'x': give keep, fail or hold"),
        ({"startingOffsets": "{}"}, "startingOffsets is '{}': give 'earliest', 'latest', or an"),
        ({"startingOffsets": "[" * 9_999}, "give 'earliest', 'latest', or an"),
        ({"partitionKey": "[" * 9_999}, "give a JSON object"),
        ({"startingOffsets": "7"}, "startingOffsets is '7': give 'earliest', 'latest', or an"),
        (
            {"startingOffsets": "latest", "startingTimestamp": "latest"},
            "startingTimestamp is 'latest': give startingTimestamp or startingOffsets, not both",
        ),
        ({"maxRowsPerTrigger": "-1"}, "maxRowsPerTrigger is '-1': give a whole number above zero"),
        ({"minPartitions": "9"}, "minPartitions is 9: give no more than maxPartitions, which is 8"),
        ({"maxPartitions": "100001"}, "maxPartitions is '100001': give 100000 or fewer"),
        ({"partitionKey": "[1]"}, "partitionKey is '[1]': give a JSON object"),
        ({"snapshot": "always"}, "snapshot is 'always': give none or initial"),
        ({"fetchSize": "0"}, "fetchSize is '0': give a whole number above zero"),
        ({"fetchSize": "2000000"}, "fetchSize is 2000000"),
        ({"consistencyLevel": "MOST"}, "consistencyLevel is 'MOST': give one of ONE"),
        ({"ssl.certFile": "/cert"}, "ssl.keyFile"),
        (
            {"ssl.certFile": "/cert", "ssl.keyFile": "/key"},
            "ssl.caFile is None: give the authority that signs the servers' certificates, or turn ",
        ),
        (
            {"ssl.enabled": "false", "ssl.caFile": "/ca"},
            "ssl.enabled is 'false': leave ssl.caFile out, or turn ssl.enabled on",
        ),
        ({"username": "u"}, "password"),
        ({"username": "u", "passwordFile": "/none"}, "passwordFile is '/none': it cannot be read"),
        (
            {"username": "u", "password": "p", "passwordFile": "/none"},
            "passwordFile is '/none': give password or passwordFile, not both",
        ),
    ],
)
def test_refusals(given: dict[str, str], expected: str) -> None:
    """The error names the option, its value, and the valid values."""
    assert expected in refusal(**given)


@pytest.mark.parametrize("name", GONE)
def test_what_to_do_instead(name: str) -> None:
    """The error for an option that other sources have says what to do instead."""
    value = "(not shown)" if name.endswith("password") else "x1"
    assert refusal(**{name: "x1"}) == f"{name} is {value!r}: no such option; {GONE[name]}"


@pytest.mark.parametrize("name", list(REQUIRED))
def test_required_options(name: str) -> None:
    """The error for a missing option states its name and its purpose."""
    given = {key: value for key, value in REQUIRED.items() if key != name}
    with pytest.raises(ConfigurationError, match=f"^{name} is .*give {name}, "):
        SourceOptions.parse(given)


@pytest.mark.parametrize("name", ["pasword", "secretKey", "sessionToken"])
def test_misspelt_secrets_are_not_shown(name: str) -> None:
    """If the name of an unknown option looks like that of a secret, the message omits the value."""
    assert "hunter2" not in refusal(**{name: "hunter2"})


def test_password_shows_nowhere() -> None:
    """Neither the options nor the connection show the password as text."""
    options = parse(username="u", password="hunter2")
    assert "hunter2" not in repr(options) + str(options) + repr(options.connection())


def test_password_file_is_read_on_the_spot(tmp_path: Path) -> None:
    """Only the path of a password file is sent. Each machine reads its own file."""
    secret = tmp_path / "password"
    secret.write_text("hunter2\n")
    options = parse(username="u", passwordFile=str(secret))
    travelled = pickle.dumps(options)
    assert b"hunter2" not in travelled
    assert pickle.loads(travelled).connection().password == "hunter2"


def test_reference_page_is_current() -> None:
    """The page contains the current tables of options and types."""
    page = REFERENCE.read_text(encoding="utf-8")
    assert markdown() in page
    assert types_markdown() in page


def test_every_option_has_its_reason() -> None:
    """There are at most 40 options, each with a description and a reason that fit a table row."""
    assert len(OPTIONS) <= 40
    for option in OPTIONS:
        assert option.doc.endswith(".")
        assert option.reason
        assert not {"|", "\n"} & {*option.doc, *option.reason}


def test_defaults_are_those_of_python() -> None:
    """A setting that both sides have has one default."""
    options = parse()
    assert options.read == ReadConfig()
    assert options.connection() == ConnectionConfig(REQUIRED["hosts"])
    assert options.late_horizon == ReadConfig().late_horizon
    assert (options.late_rows, options.data_loss) == (
        ReadConfig().late_rows,
        ReadConfig().data_loss,
    )


def test_the_words_of_servers_and_hosts_are_kept() -> None:
    """Only the remedy has names of settings, which become options; what was found is quoted."""
    options = SourceOptions.parse({"hosts": "tls.example.com", "path": "ks.t"})
    found = "cannot connect to tls.example.com:9042: Cannot achieve consistency level ONE"
    with pytest.raises(ConnectionFailedError) as raised, options.as_option_errors():
        raise ConnectionFailedError(found, "check the port, or turn tls off")
    assert str(raised.value) == (
        f"hosts is 'tls.example.com': {found}; check the port, or turn ssl.enabled off"
    )

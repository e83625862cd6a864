"""The table of the data source's options, from which parsers, errors and docs are derived.

Spark passes option names in lower case; messages use the spelling in the table.

``python -m pyspark_scylla_cdc.options.table`` prints the table as Markdown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from itertools import chain
from typing import Any

from cdc_reader.changes.frames.change_format import (
    FORMATS,
    ON_BAD_RECORD,
    PREIMAGES,
    RANGE_DELETES,
)
from cdc_reader.config import DataLossMode, SnapshotMode
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.options.kinds import (
    BYTES,
    COUNT,
    DECIMAL_TYPE,
    DURATION,
    EARLIEST,
    FLAG,
    JSON,
    NAMES,
    OFFSET,
    PARTITIONS,
    POSITIVE_DURATION,
    START,
    TABLE,
    TEXT,
    TIMESTAMP,
    Option,
    choice,
)
from pyspark_scylla_cdc.options.late_rows import LateRowsChoice


class SchemaMode(StrEnum):
    """How to treat a column added to the table after the DataFrame was loaded."""

    KEEP = "keep"
    FAIL = "fail"
    HOLD = "hold"


_CLUSTER = (
    Option(
        "hosts",
        TEXT,
        "Contact points: `host` or `host:port` (default 9042), separated by commas.",
        "always",
        required=True,
    ),
    Option(
        "keyspace",
        TEXT,
        "Keyspace of the table, case-sensitive.",
        "unless `path` names it",
    ),
    Option(
        "table",
        TEXT,
        "The base table, not its log table; case-sensitive.",
        "unless `path` names it",
    ),
    Option(
        "path",
        TABLE,
        'Both, as `load("shop.orders")` sets it. Quote parts that contain a dot with `"`.',
        "instead of `keyspace` and `table`",
    ),
    Option(
        "username",
        TEXT,
        "Role to log in as.",
        "when the cluster requires a login",
    ),
    Option(
        "password",
        TEXT,
        "Password of the role. Never shown in plans or errors, but sent to executors.",
        "with `username`",
        secret=True,
    ),
    Option(
        "passwordFile",
        TEXT,
        "File whose first line is the password, on the driver and on every executor.",
        "when the password must not be sent with the query",
    ),
    Option(
        "ssl.enabled",
        FLAG,
        "Whether to connect with TLS, and trust the system's CAs.",
        "when nodes have certificates of a public CA",
    ),
    Option(
        "ssl.caFile",
        TEXT,
        "PEM file of the CA certificates to trust; turns TLS on.",
        "when nodes have certificates of your own CA",
    ),
    Option(
        "ssl.verifyHostname",
        FLAG,
        "Whether certificates must contain the host or address used to reach a node. See "
        "[TLS](tls.md).",
        "when certificates do not name the nodes",
        default="true",
    ),
    Option(
        "ssl.certFile",
        TEXT,
        "PEM file of the client's certificate.",
        "when the cluster requires client certificates",
    ),
    Option(
        "ssl.keyFile",
        TEXT,
        "PEM file of the client's private key.",
        "with `ssl.certFile`",
    ),
    Option(
        "localDC",
        TEXT,
        "Datacenter whose nodes receive the queries. Default: that of the contact point reached "
        "first.",
        "when the cluster has several datacenters",
    ),
    Option(
        "consistencyLevel",
        TEXT,
        "Consistency of log reads.",
        "when writes use less; otherwise, lower levels miss rows",
        default="QUORUM",
    ),
    Option(
        "requestTimeout",
        POSITIVE_DURATION,
        "How long to wait for one page of rows.",
        "when a slow cluster needs longer",
        default="20s",
    ),
    Option(
        "retryTimeout",
        DURATION,
        "How long to retry after nodes are down, time out or lose connections.",
        "when outages last longer",
        default="2m",
    ),
)
_ROWS = (
    Option(
        "format",
        choice(FORMATS),
        "What a row is: a log row, a changed row of the table, or a Debezium message. See "
        "[Formats](#formats).",
        "to get rows of the table, or messages",
        default="log",
    ),
    Option(
        "includeDelta",
        FLAG,
        "With format `changes`: adds columns that show what each change wrote.",
        "when the log has no postimages, or single writes matter",
        default="false",
    ),
    Option(
        "rangeDeletes",
        choice(RANGE_DELETES),
        "With formats `changes` and `envelope`: what to do with deletes of partitions and ranges; "
        "`emit` (`changes` only) returns them with their bounds.",
        "when the application deletes partitions or ranges",
        default="fail",
    ),
    Option(
        "preimages",
        choice(PREIMAGES),
        "With formats `changes` and `envelope`: return rows before their change if the table's "
        "`cdc` options enable complete preimages (`auto`), never, or fail if they do not.",
        "when old values are not needed, or must not be missing",
        default="auto",
    ),
    Option(
        "columns",
        NAMES,
        "Columns to read in addition to the key, separated by commas or as a JSON array. Default: "
        "all.",
        "when few columns are needed, or the log lacks others",
    ),
    Option(
        "partitionKey",
        JSON,
        "The partition to read, as a JSON object of its key columns.",
        "when you need one partition",
    ),
    Option(
        "decimalType",
        DECIMAL_TYPE,
        "Spark type of decimal and varint, for all columns or by column, as in "
        "`price: decimal(18, 2)`. Values are never rounded: `onBadRecord` applies.",
        "when Spark should calculate with them",
        default="string",
    ),
    Option(
        "onBadRecord",
        choice(ON_BAD_RECORD),
        "What to do with a row that cannot be converted. See [`_bad_record`](#_bad_record).",
        "when a bad row must not end the query",
        default="fail",
    ),
    Option(
        "schemaMode",
        choice(SchemaMode),
        "What to do if the table has gained columns since `load()`: continue without them, end, or "
        "read no further until the program, which then watches the columns itself, starts the "
        "query again, as `mirror` does.",
        "when new columns must not be missed",
        default=SchemaMode.KEEP.value,
    ),
)
_SPAN = (
    Option(
        "startingTimestamp",
        START,
        "Write time to start at (inclusive) without a checkpoint. `latest` is the query's start.",
        "when you do not need older changes",
        default=EARLIEST,
    ),
    Option(
        "startingOffsets",
        OFFSET,
        "Where to start, instead of `startingTimestamp`: an offset from a checkpoint or a query's "
        "progress.",
        "to continue where another query stopped",
    ),
    Option(
        "snapshot",
        choice(SnapshotMode),
        "With formats `changes` and `envelope`: `initial` reads the rows of the table first. See "
        "[Snapshot](#snapshot).",
        "when you need all rows of the table",
        default=SnapshotMode.NONE.value,
    ),
    Option(
        "endingTimestamp",
        TIMESTAMP,
        "Write time to end at (exclusive).",
        "when you need a span of time",
    ),
)
_LOSS = (
    Option(
        "onDataLoss",
        choice(DataLossMode),
        "What to do if unread changes have expired. See [Data loss](#data-loss).",
        "when a loss must not end the query",
        default=DataLossMode.FAIL.value,
    ),
    Option(
        "lateRows",
        choice(LateRowsChoice),
        "What a stream does with rows that arrive behind its position. Default: `report` if the "
        "log has a TTL, else `ignore`. See [Late rows](#late-rows).",
        "when clients set timestamps: `deliver`",
    ),
    Option(
        "lateHorizon",
        POSITIVE_DURATION,
        "How far behind the position to search for late rows.",
        "when rows arrive later",
        default="10m",
    ),
    Option(
        "confidenceWindow",
        DURATION,
        "How far a stream stays behind the present.",
        "when writes arrive later, or rows are needed sooner",
        default="30s",
    ),
)
_SIZE = (
    Option(
        "maxWindowPerTrigger",
        POSITIVE_DURATION,
        "Most write time in one micro-batch; exact.",
        "when a stream that is behind should advance in even steps",
    ),
    Option(
        "maxRowsPerTrigger",
        COUNT,
        "Most rows in one micro-batch; estimated from 512 streams, so it can miss a hot one.",
        "when micro-batches take too long or too much memory",
    ),
    Option(
        "maxBytesPerTrigger",
        BYTES,
        "Most Arrow data in one micro-batch, such as `64m`; estimated from a few rows of 512 "
        "streams.",
        "when rows differ in size",
    ),
    Option(
        "fetchSize",
        COUNT,
        "Most rows in a page; the server ends a page after 1 MiB of one stream.",
        "when pages take too much memory",
        default="5000",
    ),
    Option(
        "maxQueriesPerSecond",
        COUNT,
        "Most pages per second of all tasks together. See [Load on the cluster](#load-on-the-"
        "cluster).",
        "when applications need the cluster's capacity",
    ),
    Option(
        "maxPartitions",
        PARTITIONS,
        "Most Spark partitions; each costs 35 ms per micro-batch.",
        "when a query does not keep up, and Spark has more cores",
        default="8",
    ),
    Option(
        "minPartitions",
        PARTITIONS,
        "Fewest Spark partitions; divides streams. See [Partitions and order](#partitions-and-"
        "order).",
        "when one partition key gets most of the writes",
    ),
)
GROUPS = {
    "Cluster and table": _CLUSTER,
    "What a row is": _ROWS,
    "Where to start and end": _SPAN,
    "Completeness": _LOSS,
    "Size and speed": _SIZE,
}
OPTIONS = tuple(chain.from_iterable(GROUPS.values()))

GONE = {
    "port": "give the port in hosts, as 'host:9042'",
    "startingBoundInclusive": (
        "startingTimestamp is included: to leave it out, start a microsecond later"
    ),
    "endingBoundInclusive": "endingTimestamp is left out: to include it, end a microsecond later",
    "failOnDataLoss": "give onDataLoss, 'fail' or 'continue'",
    "connectTimeout": "leave it out: connecting is tried for ten seconds",
    "minAdvance": "give the trigger an interval, as trigger(processingTime='10 seconds')",
    "idleAdvance": "leave it out: an idle stream moves its position by itself",
    "minRowsPerTrigger": "give the trigger an interval, as trigger(processingTime='5 minutes')",
    "maxTriggerDelay": "give the trigger an interval, as trigger(processingTime='5 minutes')",
    "chunkSize": "leave it out: the source learns how many streams a query may name",
    "inFlight": "leave it out: the source adapts it; to limit the load, give maxQueriesPerSecond",
    "readStrategy": "leave it out: the source measures which way of reading is faster",
    "reportTo": "leave it out: a ScyllaCdcListener needs no reports from tasks",
    "envelopeOutput": "leave it out: format 'envelope' always has plain values",
    "includeBefore": "leave it out: before is the whole row if the log has full preimages",
    "includeAfter": "leave it out: after is always the whole row",
    "keyPlacement": "leave it out: the key is always in the column key",
    **{
        f"spark.cassandra.{name}": instead
        for name, instead in {
            "connection.host": "give hosts",
            "connection.port": "give the port in hosts, as 'host:9042'",
            "connection.localDC": "give localDC",
            "connection.ssl.enabled": "give ssl.enabled",
            "connection.timeoutMS": "leave it out: connecting is tried for ten seconds",
            "auth.username": "give username",
            "auth.password": "give password",
            "input.consistency.level": "give consistencyLevel",
            "input.fetch.sizeInRows": "give fetchSize",
            "read.timeoutMS": "give requestTimeout, as '20s'",
        }.items()
    },
}
"""What to do instead of giving an option that only other sources have, or that none needs."""

_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
_INSTEAD = {name.lower(): (name, instead) for name, instead in GONE.items()}
_OF_TABLE = ("provider", "owner")
"""Properties of tables that Spark passes to a source when a table is created."""
_SECRET_NAME = re.compile("pass|secret|token|pwd", re.IGNORECASE)


def parse_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsed value of every option, by name.

    Raises ConfigurationError, which names the option, for an invalid value or an unknown name.
    """
    _refuse_created_table(given)
    texts = {_named(name, text).name: text for name, text in given.items()}
    return {option.name: option.value(texts.get(option.name)) for option in OPTIONS}


def _refuse_created_table(given: Mapping[str, str]) -> None:
    """Raise ConfigurationError for what Spark passes while it creates or reads a table in SQL."""
    instead = (
        "Spark does not keep the options of a table that CREATE TABLE made: use CREATE TEMPORARY "
        "VIEW ... USING scylla_cdc OPTIONS (...) or, from Spark 4.2 on, SELECT ... FROM ... WITH "
        "(hosts = ...)"
    )
    if not given:
        raise ConfigurationError("hosts", None, f"give hosts, contact points, and table; {instead}")
    if any(name.lower() in _OF_TABLE or name.lower().startswith("option.") for name in given):
        raise ConfigurationError("statement", "CREATE TABLE", instead)


def _named(name: str, text: str) -> Option:
    """Return the option with this name; raise ConfigurationError with a suggestion otherwise."""
    lowered = name.lower()
    if (option := _BY_LOWER_NAME.get(lowered)) is not None:
        return option
    spelled, instead = _INSTEAD.get(lowered, (name, ""))  # Spark passes names in lower case
    nearest = None if instead else _nearest(lowered)
    secret = _SECRET_NAME.search(name) or (nearest and nearest.secret)
    known = f"the options are {', '.join(option.name for option in OPTIONS)}"
    remedy = instead or (f"did you mean {nearest.name}?" if nearest else known)
    shown = "(not shown)" if secret else text
    raise ConfigurationError(spelled, shown, f"no such option; {remedy}")


def _nearest(name: str) -> Option | None:
    close = difflib.get_close_matches(name, _BY_LOWER_NAME, n=1, cutoff=0.5)
    return _BY_LOWER_NAME[close[0]] if close else None


def markdown() -> str:
    """Return the table of options for the reference page, with a row above each group."""
    rows = ["| option | value | default | meaning | set it |", "|---|---|---|---|---|"]
    for group, options in GROUPS.items():
        rows.append(f"| **{group}** | | | | |")
        for option in options:
            default = "" if option.default is None else f"`{option.default}`"
            cells = f"`{option.name}`", option.kind.name, default, option.doc, option.reason
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the module's output

"""The table of the data source's options, from which parsers, errors and docs are derived.

Spark passes option names in lower case; messages use the spelling in the table.

``python -m pyspark_scylla_cdc.options.table`` prints the table as Markdown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from cdc_reader.changes.frames.options import (
    BadRecord,
    FormatName,
    Preimages,
    RangeDelete,
)
from cdc_reader.config import DataLossMode, LateRowsMode, SnapshotMode
from cdc_reader.errors import ConfigurationError
from cdc_reader.streams.strategy import Strategy
from pyspark_scylla_cdc.options.kinds import (
    ADDRESS,
    BYTES,
    CONSISTENCY,
    COUNT,
    DECIMAL_TYPE,
    DURATION,
    EARLIEST,
    FLAG,
    JSON,
    LATEST,
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


class SchemaMode(StrEnum):
    """How to treat a column added to the table after the DataFrame was loaded."""

    KEEP = "keep"
    FAIL = "fail"


OPTIONS = (
    Option(
        "hosts",
        TEXT,
        "Contact points of the cluster: `host` or `host:port`, separated by commas. The default "
        "port is 9042.",
        required=True,
    ),
    Option(
        "keyspace",
        TEXT,
        "Keyspace of the table, case-sensitive. Required unless `path` names it.",
    ),
    Option(
        "table",
        TEXT,
        "The base table, not its log table; case-sensitive. Required unless `path` names it.",
    ),
    Option(
        "path",
        TABLE,
        "Keyspace and table in one option, instead of `keyspace` and `table`. "
        '`load("shop.orders")` sets it. Put parts that contain a dot in double quotes.',
    ),
    Option(
        "username",
        TEXT,
        "Role to log in as; requires a password.",
    ),
    Option(
        "password",
        TEXT,
        "Password of the role. Never shown in plans or errors.",
        secret=True,
    ),
    Option(
        "passwordFile",
        TEXT,
        "File whose first line is the password. The file must exist on the driver and on every "
        "executor. The password itself is then not sent with the query.",
    ),
    Option(
        "ssl.enabled",
        FLAG,
        "Whether to connect with TLS. Without `ssl.caFile`, the system's trusted CAs are used.",
    ),
    Option("ssl.caFile", TEXT, "PEM file of the CA certificates to trust; turns TLS on."),
    Option(
        "ssl.verifyHostname",
        FLAG,
        "Whether a node's certificate must contain the host or address used to reach the "
        "node. See [TLS](tls.md).",
        default="true",
    ),
    Option("ssl.certFile", TEXT, "PEM file of the client's certificate."),
    Option("ssl.keyFile", TEXT, "PEM file of the client's private key."),
    Option(
        "localDC",
        TEXT,
        "Datacenter whose nodes receive the queries. Default: the datacenter of the contact point "
        "that is reached first.",
    ),
    Option(
        "consistencyLevel",
        CONSISTENCY,
        "Consistency of log reads. Levels below QUORUM can miss rows that were written at QUORUM.",
        default="QUORUM",
    ),
    Option(
        "requestTimeout",
        POSITIVE_DURATION,
        "How long to wait for one page of rows.",
        default="20s",
    ),
    Option(
        "retryTimeout",
        DURATION,
        "How long to retry after transient errors: nodes down, timeouts, lost connections. A "
        "query that the server rejects is not retried.",
        default="2m",
    ),
    Option(
        "format",
        choice(FormatName),
        "What a row of the DataFrame is: a row of the log table, a changed row of the base "
        "table, or a change in the shape that the Debezium connector writes. See "
        "[Formats](#formats).",
        default=FormatName.LOG.value,
    ),
    Option(
        "includeDelta",
        FLAG,
        "With format `changes`: whether to add columns that show which values each change wrote, "
        "for example `_modified_columns` and `_nulled_columns`. Without postimages, only these "
        "columns distinguish a column that was set to null from a column that was not written.",
        default="false",
    ),
    Option(
        "rangeDeletes",
        choice(RangeDelete),
        "With formats `changes` and `envelope`: what to do with deletes of whole partitions and "
        "of ranges of rows. `fail` ends the query, `emit` (`changes` only) returns them with "
        "their bounds, and `skip` leaves them out.",
        default=RangeDelete.FAIL.value,
    ),
    Option(
        "preimages",
        choice(Preimages),
        "With formats `changes` and `envelope`: whether to return each row's state before its "
        "change. `auto` returns it if the log has complete preimages. `none` never returns it. "
        "`require` always returns it, and `load()` fails if the log has no complete preimages.",
        default=Preimages.AUTO.value,
    ),
    Option(
        "columns",
        NAMES,
        "Columns of the base table to read in addition to its key, separated by commas or as a "
        "JSON array. Default: all. With fewer columns, a query reads less data, and the log needs "
        "to contain the values of these columns only.",
    ),
    Option(
        "partitionKey",
        JSON,
        "The partition to read, as a JSON object of its key columns. In each generation, only the "
        "streams that can contain this partition are read. Default: all partitions.",
    ),
    Option(
        "decimalType",
        DECIMAL_TYPE,
        "Spark type of decimal and varint. CQL does not limit the number of digits; Spark's "
        "decimal has at most 38. Values are never rounded or truncated: `onBadRecord` applies to a "
        "value that does not fit the type. Trailing zeros of a fraction do not count.",
        default="string",
    ),
    Option(
        "onBadRecord",
        choice(BadRecord),
        "What to do with a row that cannot be converted: `fail` ends the query. `skip` leaves "
        "the row out and logs a warning. `quarantine` returns the row with null for what "
        "cannot be converted, and with the column `_bad_record`. See "
        "[`_bad_record`](#_bad_record).",
        default=BadRecord.FAIL.value,
    ),
    Option(
        "schemaMode",
        choice(SchemaMode),
        "What to do if the table has gained columns since the DataFrame was loaded: `keep` "
        "continues without them, and `fail` ends the query.",
        default=SchemaMode.KEEP.value,
    ),
    Option(
        "startingTimestamp",
        START,
        f"Write time to start at (inclusive). `{EARLIEST}` reads everything that the log still "
        f"contains; `{LATEST}` is the moment the query starts. The forms of a timestamp are "
        "described below this table. A checkpoint overrides this option. A stream starts no "
        "earlier than one log TTL ago. If changes written since `startingTimestamp` have expired, "
        "a warning is logged.",
        default=EARLIEST,
    ),
    Option(
        "startingOffsets",
        OFFSET,
        "Where to start, instead of `startingTimestamp`. An offset must belong to the same "
        "table; copy it from a checkpoint or from a query's progress. A query resumes from an "
        "offset as from a checkpoint: if changes written since then have expired, `onDataLoss` "
        "applies.",
    ),
    Option(
        "snapshot",
        choice(SnapshotMode),
        "With formats `changes` and `envelope`: `initial` first reads the rows of the base "
        "table as inserts, in micro-batches of bounded size. It then reads the log, from a write "
        "time that is `confidenceWindow` before the query's start. See [Snapshot](#snapshot).",
        default=SnapshotMode.NONE.value,
    ),
    Option(
        "endingTimestamp",
        TIMESTAMP,
        "Write time to end at (exclusive). Without it, a batch reads everything in the log, and "
        "a stream does not end.",
    ),
    Option(
        "onDataLoss",
        choice(DataLossMode),
        "What to do if unread changes may be gone, because the query's position is older than the "
        "log's TTL, or because the log was dropped and created again. `fail` ends the query with "
        "an error, `continue` logs a warning, and `resnapshot` makes a stream read the table "
        "again. See [Data loss](#data-loss).",
        default=DataLossMode.FAIL.value,
    ),
    Option(
        "lateRows",
        choice(LateRowsMode),
        "What a stream does with rows that arrive behind its position because their clients "
        "gave them old timestamps, and with rows that a node logged in the wrong generation. "
        "`ignore` skips them, `report` logs a warning with their number, and `deliver` delivers "
        "them. Default: `report` if the log has a TTL, else `ignore`. See [Late "
        "rows](#late-rows).",
    ),
    Option(
        "lateHorizon",
        POSITIVE_DURATION,
        "How far behind the position to search for late rows, in write time.",
        default="10m",
    ),
    Option(
        "confidenceWindow",
        DURATION,
        "How far a stream stays behind the present, because writes take time to arrive and "
        "clocks differ.",
        default="30s",
    ),
    Option(
        "maxWindowPerTrigger",
        POSITIVE_DURATION,
        "The longest span of write time in one micro-batch. Without it, a micro-batch reads "
        "everything that has settled.",
    ),
    Option(
        "maxRowsPerTrigger",
        COUNT,
        "Approximate maximum number of log rows or snapshot rows in one micro-batch. The number "
        "of log rows is estimated from at most 512 streams, so on larger logs the estimate can "
        "miss a hot stream.",
    ),
    Option(
        "maxBytesPerTrigger",
        BYTES,
        "Approximate maximum size of the rows in one micro-batch, measured as Arrow data in "
        "memory. The value is a number of bytes, or a number followed by `k`, `m` or `g`. The size "
        "is estimated from a few rows of each of at most 512 streams.",
    ),
    Option(
        "fetchSize",
        COUNT,
        "Maximum number of rows in a page. The server may end a page sooner, after 1 MiB of one "
        "stream.",
        default="5000",
    ),
    Option(
        "chunkSize",
        COUNT,
        "Number of log streams that one query reads, up to 100. A server may allow fewer.",
        default="64",
    ),
    Option(
        "inFlight",
        COUNT,
        "Maximum number of concurrent queries of each task, up to 1024. A task holds at most one "
        "page per query in memory.",
        default="8",
    ),
    Option(
        "maxQueriesPerSecond",
        COUNT,
        "Maximum number of pages that all tasks of a query together request from the cluster per "
        "second. Each partition of a batch or micro-batch gets an equal part of the limit. Without "
        "this option there is no limit. See [Load on the cluster](#load-on-the-cluster).",
    ),
    Option(
        "readStrategy",
        choice(Strategy),
        "How queries select rows: by the ids of many streams (`streams`), by ranges of the token "
        "ring (`ranges`), or by whichever of the two proves faster (`auto`). Ranges are faster if "
        "there are many streams and most have never contained a row. See [Partitions and "
        "order](#partitions-and-order).",
        default=Strategy.STREAMS.value,
    ),
    Option(
        "maxPartitions",
        PARTITIONS,
        "Maximum number of Spark partitions to read with. A streaming query uses at most one "
        "per stream of the log, unless `minPartitions` is set. Each partition costs about 35 ms "
        "per micro-batch.",
        default="8",
    ),
    Option(
        "minPartitions",
        PARTITIONS,
        "Minimum number of Spark partitions to read with, at most `maxPartitions`. If set, a "
        "streaming query divides each stream of the log among several partitions, as a batch "
        "does. See [Partitions and order](#partitions-and-order).",
    ),
    Option(
        "reportTo",
        ADDRESS,
        "Where the tasks of a stream report the cost of reading: the `address` of a "
        "`ScyllaCdcListener`. The key in the address is never shown in plans or errors. See "
        "[Monitor a stream](../howto/monitor-a-stream.md).",
        secret=True,
    ),
)

GONE = {
    "port": "give the port in hosts, as 'host:9042'",
    "startingBoundInclusive": (
        "startingTimestamp is included: to leave it out, start a microsecond later"
    ),
    "endingBoundInclusive": ("endingTimestamp is left out: to include it, end a microsecond later"),
    "failOnDataLoss": "give onDataLoss, 'fail' or 'continue'",
    "connectTimeout": "leave it out, and let retryTimeout limit how long a query tries",
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
        f"spark.cassandra.{name}": f"give {instead}"
        for name, instead in {
            "connection.host": "hosts",
            "connection.port": "the port in hosts, as 'host:9042'",
            "connection.localDC": "localDC",
            "connection.ssl.enabled": "ssl.enabled",
            "connection.timeoutMS": "retryTimeout, as '2m'",
            "auth.username": "username",
            "auth.password": "password",
            "input.consistency.level": "consistencyLevel",
            "input.fetch.sizeInRows": "fetchSize",
            "read.timeoutMS": "requestTimeout, as '20s'",
        }.items()
    },
}
"""What to do instead of giving an option that only other sources have, or that none needs."""

_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
_INSTEAD = {name.lower(): instead for name, instead in GONE.items()}
_SECRET_NAME = re.compile("pass|secret|token|pwd", re.IGNORECASE)


def parse_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsed value of every option, by name.

    Raises ConfigurationError, which names the option, for an invalid value or an unknown name.
    """
    texts = {_named(name, text).name: text for name, text in given.items()}
    return {option.name: option.value(texts.get(option.name)) for option in OPTIONS}


def _named(name: str, text: str) -> Option:
    """Return the option with this name; raise ConfigurationError with a suggestion otherwise."""
    lowered = name.lower()
    if (option := _BY_LOWER_NAME.get(lowered)) is not None:
        return option
    nearest = None if lowered in _INSTEAD else _nearest(lowered)
    secret = _SECRET_NAME.search(name) or (nearest and nearest.secret)
    known = f"the options are {', '.join(option.name for option in OPTIONS)}"
    remedy = _INSTEAD.get(lowered) or (f"did you mean {nearest.name}?" if nearest else known)
    raise ConfigurationError(name, "(not shown)" if secret else text, f"no such option; {remedy}")


def _nearest(name: str) -> Option | None:
    close = difflib.get_close_matches(name, _BY_LOWER_NAME, n=1, cutoff=0.5)
    return _BY_LOWER_NAME[close[0]] if close else None


def markdown() -> str:
    """Return the table of options for the reference pages."""
    rows = ["| option | value | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = "required" if option.required else f"`{option.default}`"
        default = "" if default == "`None`" else default
        rows.append(f"| `{option.name}` | {option.kind.name} | {default} | {option.doc} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the module's output

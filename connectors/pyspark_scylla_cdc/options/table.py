"""The table of the data source's options, the source of parsing, errors and docs.

Spark lower-cases the names it passes; messages use the spelling of the table.

``python -m pyspark_scylla_cdc.options.table`` prints the table as Markdown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from cdc_reader.changes.frames.options import FormatName, Preimages, RangeDelete
from cdc_reader.config import LateRowsMode
from cdc_reader.errors import ConfigurationError
from cdc_reader.streams.strategy import Strategy
from pyspark_scylla_cdc.options.kinds import (
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
    """What to do about a column added to the table since the DataFrame was loaded."""

    KEEP = "keep"
    FAIL = "fail"


class Snapshot(StrEnum):
    """Whether a query begins with a snapshot of the base table."""

    NONE = "none"
    INITIAL = "initial"


_CASSANDRA = "spark.cassandra."

OPTIONS = (
    Option(
        "hosts",
        TEXT,
        "Contact points of the cluster, separated by commas, each `host` or `host:port`.",
        required=True,
        aliases=(f"{_CASSANDRA}connection.host",),
    ),
    Option(
        "port",
        COUNT,
        "Port of the contact points that name none.",
        default="9042",
        aliases=(f"{_CASSANDRA}connection.port",),
    ),
    Option(
        "keyspace",
        TEXT,
        "Keyspace of the table, as stored (case-sensitive). Required, unless `path` names it.",
    ),
    Option(
        "table",
        TEXT,
        "The base table, as stored (case-sensitive), not its log table. Required, unless `path` "
        "names it.",
    ),
    Option(
        "path",
        TABLE,
        'Keyspace and table in one, as `load("shop.orders")` gives them, in place of the two '
        "options; parts with a dot in double quotes.",
    ),
    Option(
        "username",
        TEXT,
        "Role to log in with; goes with a password.",
        aliases=(f"{_CASSANDRA}auth.username",),
    ),
    Option(
        "password",
        TEXT,
        "Password of the role. Shown in no plan and no error.",
        secret=True,
        aliases=(f"{_CASSANDRA}auth.password",),
    ),
    Option(
        "passwordFile",
        TEXT,
        "File whose first line is the password, on the driver and every executor: "
        "the password itself then never travels with the query.",
    ),
    Option(
        "ssl.enabled",
        FLAG,
        "Whether to connect with TLS. Without `ssl.caFile` the system's authorities are trusted.",
        aliases=(f"{_CASSANDRA}connection.ssl.enabled",),
    ),
    Option("ssl.caFile", TEXT, "PEM file of the authorities to trust; turns TLS on."),
    Option(
        "ssl.verifyHostname",
        FLAG,
        "Whether a node's certificate must name the host it was found by. See [TLS](tls.md).",
        default="true",
    ),
    Option("ssl.certFile", TEXT, "PEM file of the client's certificate."),
    Option("ssl.keyFile", TEXT, "PEM file of the client's private key."),
    Option(
        "localDC",
        TEXT,
        "Datacenter to ask; without it, that of the first contact point.",
        aliases=(f"{_CASSANDRA}connection.localDC",),
    ),
    Option(
        "consistencyLevel",
        TEXT,
        "Consistency of log reads. Rows written at QUORUM are all seen at QUORUM only.",
        default="QUORUM",
        aliases=(f"{_CASSANDRA}input.consistency.level",),
    ),
    Option(
        "connectTimeout",
        POSITIVE_DURATION,
        "How long to try to reach the cluster.",
        default="10s",
        aliases=(f"{_CASSANDRA}connection.timeoutMS",),
    ),
    Option(
        "requestTimeout",
        POSITIVE_DURATION,
        "How long to wait for one page of rows.",
        default="20s",
        aliases=(f"{_CASSANDRA}read.timeoutMS",),
    ),
    Option(
        "retryTimeout",
        DURATION,
        "How long to ask for a page again while the cluster fails in a way that may pass: nodes "
        "down, timeouts, lost connections. A query that the server refuses is not repeated.",
        default="2m",
    ),
    Option(
        "format",
        choice(FormatName),
        "What a row is: a row of the log table, a changed row of the base table, or a change as "
        "the Debezium connector writes it. See below.",
        default=FormatName.LOG.value,
    ),
    Option(
        "includeDelta",
        FLAG,
        "With format `changes`: two more columns, `_modified_columns` and `_nulled_columns`. "
        "Without postimages they are what tells a null from a column that was not touched.",
        default="false",
    ),
    Option(
        "rangeDeletes",
        choice(RangeDelete),
        "With formats `changes` and `envelope`: whether deletes of whole partitions and of ranges "
        "of rows end the query, come out with their bounds (`changes` only), or are left out.",
        default=RangeDelete.FAIL.value,
    ),
    Option(
        "preimages",
        choice(Preimages),
        "With formats `changes` and `envelope`: whether rows as they were before a change come "
        "out where the log has them whole, never, or are a condition of reading the table.",
        default=Preimages.AUTO.value,
    ),
    Option(
        "columns",
        NAMES,
        "Columns of the base table to read beside its key, separated by commas or as a JSON "
        "array; without it, all. Less to read, and less that a table's images must hold.",
    ),
    Option(
        "partitionKey",
        JSON,
        "The one partition whose changes are wanted, as a JSON object of its key: of each "
        "generation only the streams are read that it can be in.",
    ),
    Option(
        "decimalType",
        DECIMAL_TYPE,
        "Spark type of decimal and varint. CQL bounds neither; a decimal of Spark has 38 digits at "
        "most. A value with more digits than the type, before or behind the point, ends the query: "
        "nothing is rounded or cut off. Zeros at the end of a fraction do not count.",
        default="string",
    ),
    Option(
        "schemaMode",
        choice(SchemaMode),
        "Whether a query goes on without columns that the table gained since the DataFrame was "
        "loaded, or fails.",
        default=SchemaMode.KEEP.value,
    ),
    Option(
        "startingTimestamp",
        START,
        f"Write time to start at (inclusive). `{EARLIEST}` is all that the log still holds; "
        f"`{LATEST}` is the moment the query starts. See below for timestamps. A checkpoint "
        "overrides it. A stream begins no earlier than the log's TTL ago.",
        default=EARLIEST,
    ),
    Option(
        "startingOffsets",
        OFFSET,
        "Where to start, in place of `startingTimestamp`: an offset as it stands in a checkpoint "
        "or in a query's progress, of the same table.",
    ),
    Option(
        "snapshot",
        choice(Snapshot),
        "With formats `changes` and `envelope`: `initial` begins with the rows of the base table, "
        "as inserts, and goes on with the log from `confidenceWindow` before now.",
        default=Snapshot.NONE.value,
    ),
    Option(
        "startingBoundInclusive",
        FLAG,
        "Whether a change made at `startingTimestamp` itself is read.",
        default="true",
    ),
    Option(
        "endingTimestamp",
        TIMESTAMP,
        "Write time to end before (exclusive). Without it a batch reads all that is there, "
        "and a stream goes on.",
    ),
    Option(
        "endingBoundInclusive",
        FLAG,
        "Whether a change made at `endingTimestamp` itself is read.",
        default="false",
    ),
    Option(
        "failOnDataLoss",
        FLAG,
        "Whether a stream ends with an error when changes that it has not read may have expired "
        "(its position is older than the log's TTL), or warns and goes on.",
        default="true",
    ),
    Option(
        "lateRows",
        choice(LateRowsMode),
        "What a stream does about rows that arrive behind its position, because their clients gave "
        "them old timestamps, and about rows in a stream of the wrong generation: nothing, log a "
        "warning with their number, or deliver them. `report` if the log has a TTL, else "
        "`ignore`; see below.",
    ),
    Option(
        "lateHorizon",
        POSITIVE_DURATION,
        "How far behind the position late rows are looked for, by write time.",
        default="10m",
    ),
    Option(
        "confidenceWindow",
        DURATION,
        "A stream never reads past now minus this: writes take time to arrive, and clocks differ.",
        default="30s",
    ),
    Option(
        "maxWindowPerTrigger",
        POSITIVE_DURATION,
        "The longest span of write time in one micro-batch. Without it a micro-batch reads "
        "all that has settled.",
    ),
    Option(
        "maxRowsPerTrigger",
        COUNT,
        "About how many rows of the log one micro-batch may hold. Up to 512 streams are looked at "
        "for how long a span of write time that is: where there are more, a hot one may be missed.",
    ),
    Option(
        "minAdvance",
        POSITIVE_DURATION,
        "The shortest span of write time worth a micro-batch of its own.",
        default="1s",
    ),
    Option(
        "idleAdvance",
        POSITIVE_DURATION,
        "How much write time without a change is worth an empty micro-batch, which moves the "
        "position on. Until then a stream at rest offers Spark nothing new; see below.",
        default="1m",
    ),
    Option(
        "fetchSize",
        COUNT,
        "Rows in a page; the server may end one sooner, at 1 MiB of a stream.",
        default="5000",
        aliases=(f"{_CASSANDRA}input.fetch.sizeInRows",),
    ),
    Option(
        "readStrategy",
        choice(Strategy),
        "Whether queries name streams, many at a time, or spans of the ring. The latter pays "
        "where streams are many and nearly all have never held a row: with `auto` a stream finds "
        "out, see below.",
        default=Strategy.STREAMS.value,
    ),
    Option(
        "maxPartitions",
        PARTITIONS,
        "Spark partitions to read with, at most. A stream has no more than there are streams of "
        "the log; each costs some 35 ms per micro-batch.",
        default="8",
    ),
    Option(
        "minPartitions",
        PARTITIONS,
        "Spark partitions to read with, at least, up to `maxPartitions`. With it a stream spreads "
        "the time of each stream of the log over several, as a batch does; see below.",
    ),
)

_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
_BY_ALIAS = {alias.lower(): option for option in OPTIONS for alias in option.aliases}
_SECRET_NAME = re.compile("pass|secret|token|pwd", re.IGNORECASE)
_MILLISECONDS = re.compile(r".*\.timeoutms")


def parse_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Parse the value of every option, by name; ConfigurationError names the option."""
    texts: dict[str, str] = {}
    for name, text in given.items():
        option = _named(name, text)
        if option.name in texts:
            shown = "(not shown)" if option.secret else text
            remedy = f"it is {option.name} by another name, which is given too: give one of them"
            raise ConfigurationError(name, shown, remedy)
        is_bare = _MILLISECONDS.fullmatch(name.lower()) and text.strip().isdigit()
        texts[option.name] = f"{text.strip()}ms" if is_bare else text
    return {option.name: option.value(texts.get(option.name)) for option in OPTIONS}


def _named(name: str, text: str) -> Option:
    """Find the option with this name or alias; ConfigurationError suggests the nearest one."""
    lowered = name.lower()
    option = _BY_LOWER_NAME.get(lowered) or _BY_ALIAS.get(lowered)
    if option is not None:
        return option
    nearest = _nearest(lowered)
    secret = _SECRET_NAME.search(name) or (nearest and nearest.secret)
    known = f"the options are {', '.join(option.name for option in OPTIONS)}"
    remedy = f"did you mean {nearest.name}?" if nearest else known
    raise ConfigurationError(name, "(not shown)" if secret else text, f"no such option; {remedy}")


def _nearest(name: str) -> Option | None:
    known = {**_BY_ALIAS, **_BY_LOWER_NAME}
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return known[close[0]] if close else None


def markdown() -> str:
    """Return the table of options for the reference pages."""
    rows = ["| option | value | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = "required" if option.required else f"`{option.default}`"
        default = "" if default == "`None`" else default
        rows.append(f"| `{option.name}` | {option.kind.name} | {default} | {option.doc} |")
    return "\n".join(rows) + "\n"


def aliases_markdown() -> str:
    """Return the table of aliases for the reference pages."""
    rows = ["| alias | option |", "|---|---|"]
    rows += [f"| `{alias}` | `{option.name}` |" for option in OPTIONS for alias in option.aliases]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(f"{markdown()}\n{aliases_markdown()}", end="")  # noqa: T201 - the module's output

"""`scylla-cdc streams`: lists the streams of a table, or finds the stream of a key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
from attrs import frozen

from cdc_reader._time import FOREVER, Micros, format_timestamp, parse_moment
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import cli_errors
from cdc_reader.cluster import ClusterClock, Connection, SchemaSource
from cdc_reader.cluster.generations import GenerationKind, KnownSource, TableGenerations
from cdc_reader.cluster.values import token_of
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.json import parse_key
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError, SourceError, UnsupportedTableError
from cdc_reader.streams.generation import (
    IGNORE_MSB,
    Generation,
    StreamGroup,
    Timeline,
    group_of,
    stream_of,
)
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window

_LINE = "{:>20}  {:>20}  {:32}  {:>12}  {:>7}  {:>7}"
_HEADING = _LINE.format("RANGE END", "TOKEN", "STREAM", "RANDOM", "INDEX", "VERSION")


@frozen
class StreamEntry:
    """A stream and its token range; `range_end` is None if the server publishes no ranges."""

    stream: StreamId
    range_end: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the stream as JSON values.

        In ids from before ScyllaDB 4.3, only `token` is meaningful.
        """
        return {
            "stream": self.stream.hex(),
            "token": self.stream.token,
            "random": self.stream.random,
            "index": self.stream.index,
            "version": self.stream.version,
            "range_end": self.range_end,
        }

    def line(self) -> str:
        """Format the stream as one line of text."""
        end = "-" if self.range_end is None else self.range_end
        stream = self.stream
        return _LINE.format(
            end, stream.token, stream.hex(), stream.random, stream.index, stream.version
        )


@click.command("streams")
@click.argument("table", metavar="KS.TABLE")
@click.option(
    "--generation",
    "moment",
    metavar="TIME",
    help="Use the generation in force at this time: ISO 8601, ms since 1970, or a time ago such "
    "as -10m. Default: now; with --key, all generations.",
)
@click.option(
    "--key",
    metavar="JSON",
    help="Show only the stream that this partition key is written to, in each generation. Pass "
    "an object such as '{\"pk\": 1}', an array, or the value of a key with one column.",
)
@click.option(
    "--ignore-msb",
    default=IGNORE_MSB,
    show_default=True,
    type=click.IntRange(0, 63),
    help="For --key: the nodes' value of murmur3_partitioner_ignore_msb_bits.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@connection_options
def command(
    connection: ConnectionConfig,
    table: str,
    moment: str | None,
    key: str | None,
    ignore_msb: int,
    as_json: bool,
) -> None:
    """List the CDC streams of a table, with the parts of each id."""
    with cli_errors():
        queries = Connection(connection, ReadConfig())
        try:
            _run(queries, TableName.parse(table), moment, key, ignore_msb, as_json)
        finally:
            queries.close()


def _run(
    queries: Connection,
    name: TableName,
    moment: str | None,
    key: str | None,
    ignore_msb: int,
    as_json: bool,
) -> None:
    schema = SchemaSource(queries).log_schema(name)
    source = TableGenerations(queries, name).source
    spans, now = list(Timeline(tuple(source.timestamps())).operating()), ClusterClock(queries).now()
    if key is None:
        span = _at(spans, moment, now)
        _list(_places(source, source.groups(span.start)), span, as_json)
        return
    token = token_of(schema.base, parse_key(key, schema.base))
    if source.kind is GenerationKind.SCYLLA_43:
        raise UnsupportedTableError(
            "ScyllaDB 4.3 does not publish token ranges, so the stream of a key cannot be "
            "determined; upgrade the cluster to 4.4 or later"
        )
    chosen = spans if moment is None else [_at(spans, moment, now)]
    _choose(source, chosen, token, ignore_msb, as_json)


def _at(spans: Sequence[Window], moment: str | None, now: Micros) -> Window:
    """Return the generation in force at a moment."""
    at = now if moment is None else parse_moment(moment, "--generation", now)
    for span in spans:
        if at in span:
            return span
    if not spans:
        raise SourceError("the cluster has announced no generation yet; try again later")
    first = format_timestamp(spans[0].start)
    raise ConfigurationError(
        "--generation",
        format_timestamp(at),
        f"give a time from {first} on, when the first generation began",
    )


def _places(source: KnownSource, groups: Sequence[StreamGroup]) -> Iterator[StreamEntry]:
    """Yield all streams in ring order."""
    has_ranges = source.kind is not GenerationKind.SCYLLA_43
    for group in Generation(Window(0, FOREVER), tuple(groups)).groups:
        for stream in group.streams:
            yield StreamEntry(stream, group.range_end if has_ranges else None)


def _list(places: Iterator[StreamEntry], span: Window, as_json: bool) -> None:
    if as_json:
        for place in places:
            click.echo(json.dumps({**_times(span), **place.to_dict()}))
        return
    click.echo(f"generation {_span(span)}")
    click.secho(_HEADING, bold=True)
    for place in places:
        click.echo(place.line())


def _choose(
    source: KnownSource, spans: Sequence[Window], token: int, ignore_msb: int, as_json: bool
) -> None:
    """Print, for each generation, the stream that receives the writes with a given token."""
    if not as_json:
        click.echo(f"token {token}")
    for span in spans:
        place = _place(Generation(span, tuple(source.groups(span.start))), token, ignore_msb)
        if as_json:
            found = place.to_dict() if place else {"stream": None}
            click.echo(json.dumps({**_times(span), "key_token": token, **found}))
        else:
            click.echo(f"\ngeneration {_span(span)}")
            click.secho(_HEADING, bold=True)
            click.echo(place.line() if place else "no streams: it takes no writes")


def _place(generation: Generation, token: int, ignore_msb: int) -> StreamEntry | None:
    if not generation.groups:
        return None
    stream = stream_of(generation, token, ignore_msb)
    return StreamEntry(stream, group_of(generation, token).range_end)


def _times(span: Window) -> dict[str, Any]:
    return {"generation": format_timestamp(span.start), "generation_micros": span.start}


def _span(span: Window) -> str:
    start = format_timestamp(span.start)
    until = "on" if span.end == FOREVER else f"to {format_timestamp(span.end)}"
    return f"from {start} {until}"

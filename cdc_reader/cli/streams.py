"""`scylla-cdc streams`: the streams of a table, and the one that a key writes to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
from attrs import frozen

from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import told
from cdc_reader.clock import SystemClock
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver import Connection, SchemaSource
from cdc_reader.driver.generations import KnownSource, TableGenerations
from cdc_reader.driver.token import token_of
from cdc_reader.errors import ConfigurationError, SourceError, UnsupportedTableError
from cdc_reader.generation import Generation, StreamGroup, Timeline
from cdc_reader.ids import StreamId, TableName
from cdc_reader.key_json import parse_key
from cdc_reader.stream_choice import IGNORE_MSB, group_of, stream_of
from cdc_reader.timestamp import format_timestamp, parse_timestamp
from cdc_reader.window import FOREVER, Window

_LINE = "{:>20}  {:>20}  {:32}  {:>12}  {:>7}  {:>7}"
_HEADING = _LINE.format("RANGE END", "TOKEN", "STREAM", "RANDOM", "INDEX", "VERSION")


@frozen
class Place:
    """A stream, with the token range it belongs to; no `range_end` where none is published."""

    stream: StreamId
    range_end: int | None

    def to_dict(self) -> dict[str, Any]:
        """For programs. Ids from before ScyllaDB 4.3 have random bits where the rest is."""
        return {
            "stream": self.stream.hex(),
            "token": self.stream.token,
            "random": self.stream.random,
            "index": self.stream.index,
            "version": self.stream.version,
            "range_end": self.range_end,
        }

    def line(self) -> str:
        """For people."""
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
    help="The generation in force at this time (ISO 8601, or ms since 1970); now by default, "
    "with --key all of them.",
)
@click.option(
    "--key",
    metavar="JSON",
    help="Only the stream that this partition key writes to, in each generation: "
    "'{\"pk\": 1}', an array, or the value of a key of one column.",
)
@click.option(
    "--ignore-msb",
    default=IGNORE_MSB,
    show_default=True,
    type=click.IntRange(0, 63),
    help="The nodes' setting of murmur3_partitioner_ignore_msb_bits, for --key.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
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
    with told():
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
    spans = list(Timeline(tuple(source.timestamps())).operating())
    if key is None:
        span = _at(spans, moment)
        _list(_places(source, source.groups(span.start)), span, as_json)
        return
    token = token_of(schema.base, parse_key(key, schema.base))
    if source.kind == "4.3":
        raise UnsupportedTableError(
            "ScyllaDB 4.3 does not publish token ranges, so the stream of a key cannot be told; "
            "upgrade the cluster to 4.4 or later"
        )
    chosen = spans if moment is None else [_at(spans, moment)]
    _choose(source, chosen, token, ignore_msb, as_json)


def _at(spans: Sequence[Window], moment: str | None) -> Window:
    """The generation in force at a moment."""
    at = SystemClock().now() if moment is None else parse_timestamp(moment, "generation")
    for span in spans:
        if at in span:
            return span
    if not spans:
        raise SourceError("the cluster has announced no generation yet; try again later")
    first = format_timestamp(spans[0].start)
    raise ConfigurationError(
        "generation", format_timestamp(at), f"give a time from {first} on, when the first one began"
    )


def _places(source: KnownSource, groups: Sequence[StreamGroup]) -> Iterator[Place]:
    """All streams in ring order."""
    for group in Generation(Window(0, FOREVER), tuple(groups)).groups:
        for stream in group.streams:
            yield Place(stream, None if source.kind == "4.3" else group.range_end)


def _list(places: Iterator[Place], span: Window, as_json: bool) -> None:
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
    """Say, for each generation, where writes to a token go."""
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


def _place(generation: Generation, token: int, ignore_msb: int) -> Place | None:
    if not generation.groups:
        return None
    stream = stream_of(generation, token, ignore_msb)
    return Place(stream, group_of(generation, token).range_end)


def _times(span: Window) -> dict[str, Any]:
    return {"generation": format_timestamp(span.start), "generation_micros": span.start}


def _span(span: Window) -> str:
    start = format_timestamp(span.start)
    until = "on" if span.end == FOREVER else f"to {format_timestamp(span.end)}"
    return f"from {start} {until}"

"""`scylla-cdc generations`: lists the generations of streams, and when each was in force."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click
from attrs import field, frozen
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdc_reader._time import BEGINNING, FOREVER, Micros, format_timestamp
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import cli_errors
from cdc_reader.cluster import ClusterClock, Connection, SchemaSource
from cdc_reader.cluster.generations import (
    GenerationKind,
    KnownSource,
    TableGenerations,
    cluster_generations,
)
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.streams.generation import Timeline
from cdc_reader.streams.window import Window

_WIDEST = 120
_NOT_ANNOUNCED = "not announced"


@frozen
class Row:
    """A generation as the command shows it; counts are None if they were not requested."""

    kind: GenerationKind
    operates: Window
    state: str
    groups: int | None
    streams: int | None

    @property
    def is_announced(self) -> bool:
        """True if readers see the generation; if False, only its streams have been stored."""
        return self.state != _NOT_ANNOUNCED

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values, with times in ISO 8601 and in µs.

        The end of the last row is None.
        """
        start, end = self.operates.start, self.operates.end
        is_open = end == FOREVER
        return {
            "start": format_timestamp(start),
            "start_micros": start,
            "end": None if is_open else format_timestamp(end),
            "end_micros": None if is_open else end,
            "state": self.state,
            "kind": self.kind,
            "groups": self.groups,
            "streams": self.streams,
        }


@click.command("generations")
@click.argument("table", required=False, metavar="[KS.TABLE]")
@click.option(
    "--count/--no-count",
    default=True,
    help="Whether to count the streams of each generation, which means listing all of them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@connection_options
def command(connection: ConnectionConfig, table: str | None, count: bool, as_json: bool) -> None:
    """List the generations of CDC streams, oldest first.

    Tables with vnodes share the cluster's generations. A table with tablets has separate
    generations: to list them, name the table.
    """
    with cli_errors():
        queries = Connection(connection, ReadConfig())
        try:
            counts = StreamCounts() if count else None
            source = _source(queries, table)
            rows = list(rows_of(source, counts, ClusterClock(queries).now()))
        finally:
            queries.close()
    if as_json:
        for row in rows:
            click.echo(json.dumps(row.to_dict()))
    else:
        # Make the table as wide as necessary, because a truncated time is useless.
        console = Console(width=max(Console().width, _WIDEST))
        console.print(generation_table(rows))


def _source(queries: Connection, table: str | None) -> KnownSource:
    if table is None:
        return cluster_generations(queries)
    name = TableName.parse(table)
    SchemaSource(queries).log_schema(name)  # raises an error if the table cannot be followed
    return TableGenerations(queries, name).source


@frozen
class StreamCounts:
    """Counts the groups and streams of generations.

    The streams of a generation never change, so they are listed only once.
    """

    _known: dict[Micros, tuple[int, int]] = field(factory=dict, init=False)

    def of(self, source: KnownSource, start: Micros) -> tuple[int, int]:
        """Return the numbers of groups and streams of the generation that begins at `start`."""
        if start not in self._known:
            groups = source.groups(start)
            self._known[start] = len(groups), sum(len(group.streams) for group in groups)
        return self._known[start]


def rows_of(
    source: KnownSource, counts: StreamCounts | None, now: Micros, since: Micros = BEGINNING
) -> Iterator[Row]:
    """Yield the generations that are in force after `since` (µs), oldest first.

    Streams are not counted if `counts` is None.
    """
    known, kind = source.timestamps(), source.kind
    announced = list(Timeline(tuple(known)).operating())
    for span in (span for span in announced if span.end > since):
        groups, streams = (None, None) if counts is None else counts.of(source, span.start)
        yield Row(kind, span, _state(span, now), groups, streams)
    for start in source.unpublished():
        yield Row(kind, Window(start, FOREVER), _NOT_ANNOUNCED, None, None)


def _state(span: Window, now: Micros) -> str:
    if now in span:
        return "in force"
    return "over" if span.end <= now else "to come"


def generation_table(rows: Sequence[Row]) -> Table | Text:
    """Return a table of the rows, or text if there are none."""
    if not rows:
        return Text("no generation has been announced yet")
    table = Table(box=None, pad_edge=False)
    for heading in ("BEGINS", "ENDS", "STATE", "KIND"):
        table.add_column(heading, no_wrap=True)
    are_counted = any(row.streams is not None for row in rows)
    for heading in ("GROUPS", "STREAMS") if are_counted else ():
        table.add_column(heading, justify="right", no_wrap=True)
    names = ("start", "end", "state", "kind", "groups", "streams")[: len(table.columns)]
    for row in rows:
        found = row.to_dict()
        table.add_row(*("-" if found[name] is None else str(found[name]) for name in names))
    return table

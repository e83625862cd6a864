"""`scylla-cdc compare`: finds the rows in which two tables differ."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import click
from attrs import define, field

from cdc_reader.cli.change_text import row_text
from cdc_reader.cli.connection import Side, two_connection_options
from cdc_reader.cli.failure import Trouble, cli_errors
from cdc_reader.cluster import Connection, SchemaSource
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.replication.comparison import Counts, Difference, Kind
from cdc_reader.replication.table_comparison import ComparedRange, Table, TableComparison

_EVERY = 5.0
"""Seconds between two progress lines."""
_WORDS = {
    Kind.MISSING: "only in the source",
    Kind.EXTRA: "only in the target",
    Kind.CHANGED: "with other values",
}


@define
class Summary:
    """The results so far. Prints the progress to stderr every few seconds."""

    limit: int
    counts: Counts = field(factory=Counts)
    first: list[Difference] = field(factory=list)
    _share: float = 0.0
    _printed: float = field(factory=time.monotonic)

    def add(self, compared: ComparedRange) -> None:
        """Add the results of a range."""
        self.counts.add(compared.counts)
        self.first += compared.differences[: self.limit - len(self.first)]
        self._share += compared.share
        if time.monotonic() >= self._printed + _EVERY:
            self._printed = time.monotonic()
            rows = max(self.counts.source, self.counts.target)
            click.echo(
                f"{self._share:.0%} compared: {rows:,} rows, {self.differing:,} differ", err=True
            )

    @property
    def differing(self) -> int:
        """The number of rows that differ."""
        return self.counts.differing.total()

    def lines(self, source: Side, target: Side) -> Iterator[str]:
        """Yield the lines of the result: the counts, then the keys of rows that differ."""
        counts = self.counts
        yield f"{source}: {counts.source:,} rows"
        yield f"{target}: {counts.target:,} rows"
        if not self.differing:
            yield "no row differs"
            return
        kinds = ", ".join(f"{counts.differing[kind]:,} {_WORDS[kind]}" for kind in Kind)
        yield f"{self.differing:,} rows differ: {kinds}"
        yield from map(_line, self.first)
        if (more := self.differing - len(self.first)) > 0 and self.limit:
            yield f"... and {more:,} more (--limit)"


@click.command("compare")
@click.argument("source")
@click.argument("table", metavar="KS.TABLE")
@click.argument("target")
@click.argument("copy", required=False, metavar="[KS.TABLE]")
@click.option(
    "--columns",
    metavar="A,B,...",
    help="Compare only the key and these columns. By default all columns of the source.",
)
@click.option(
    "--limit",
    type=click.IntRange(0, sys.maxsize),
    default=20,
    show_default=True,
    metavar="N",
    help="Print the keys of at most N rows that differ. All are counted.",
)
@two_connection_options("reads", "reads")
def command(
    source: ConnectionConfig,
    table: str,
    target: ConnectionConfig,
    copy: str | None,
    columns: str | None,
    limit: int,
) -> None:
    """Compare the rows of two tables, such as a table and its copy.

    SOURCE and TARGET name nodes of the two clusters, each as HOST or HOST:PORT, separated by
    commas. The copy has the table's name unless another name is given. The command compares which
    rows exist and the values of their columns, but neither TTLs nor write times. A row that is
    written during the comparison may count as different.

    The command prints how many rows each table has, and then the keys of the rows that differ. The
    exit status is 0 if no row differs, 1 if some rows differ, and 2 if the tables could not be
    compared.
    """
    with cli_errors(Trouble), _interruptible():
        name = TableName.parse(table)
        sides = Side(source, name), Side(target, TableName.parse(copy) if copy else name)
        config = ReadConfig()
        chosen = None if columns is None else [each.strip() for each in columns.split(",")]
        summary = Summary(limit)
        with (
            closing(Connection(source, config)) as there,
            closing(Connection(target, config)) as here,
        ):
            comparison = TableComparison(
                Table(there, SchemaSource(there).table_schema(sides[0].table)),
                Table(here, SchemaSource(here).table_schema(sides[1].table)),
                chosen,
                config=config,
                limit=limit,
            )
            for compared in comparison.ranges():
                summary.add(compared)
    for line in summary.lines(*sides):
        click.echo(line)
    if summary.differing:
        sys.exit(1)


@contextmanager
def _interruptible() -> Iterator[None]:
    """End with status 2 on Ctrl-C, because status 1 means that rows differ."""
    try:
        yield
    except KeyboardInterrupt:
        raise Trouble("interrupted before all rows were compared") from None


def _line(difference: Difference) -> str:
    columns = f": {', '.join(difference.columns)}" if difference.columns else ""
    return f"  {_WORDS[difference.kind]}  {row_text(difference.key)}{columns}"

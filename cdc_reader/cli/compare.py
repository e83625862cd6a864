"""`scylla-cdc compare`: finds the rows in which a table and another table, or a copy, differ."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import click
from attrs import define, field, fields_dict, frozen
from click.core import ParameterSource

from cdc_reader._time import format_timestamp, parse_duration, parse_moment
from cdc_reader.cli.change_text import row_text
from cdc_reader.cli.connection import Side, two_connection_options
from cdc_reader.cli.failure import Misuse, Trouble, cli_errors
from cdc_reader.cluster import ClusterClock, Connection, SchemaSource
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.copies.position_file import position_of_copy
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.replication.comparison import Counts, Difference, Kind
from cdc_reader.replication.path_comparison import ComparedCopy, PathComparison
from cdc_reader.replication.stored_copy import is_path, open_copy, position_in
from cdc_reader.replication.table_comparison import ComparedRange, Table, TableComparison
from cdc_reader.table_reader import TableReader

_EVERY = 5.0
"""Seconds between two progress lines."""
_WORDS = {
    Kind.MISSING: "only in the source",
    Kind.EXTRA: "only in the target",
    Kind.CHANGED: "with other values",
}


@define
class Progress:
    """Prints the progress to stderr every few seconds."""

    _printed: float = field(factory=time.monotonic)

    def tell(self, line: str) -> None:
        """Print a line, unless another one was printed a moment ago."""
        if time.monotonic() >= self._printed + _EVERY:
            self._printed = time.monotonic()
            click.echo(line, err=True)


@define
class Summary:
    """The results so far."""

    limit: int
    counts: Counts = field(factory=Counts)
    first: list[Difference] = field(factory=list)
    _share: float = 0.0
    _progress: Progress = field(factory=Progress)

    def add(self, compared: ComparedRange) -> None:
        """Add the results of a range, and print the progress."""
        self.counts.add(compared.counts)
        self.first += compared.differences[: self.limit - len(self.first)]
        self._share += compared.share
        rows = max(self.counts.source, self.counts.target)
        self._progress.tell(f"{self._share:.0%} compared: {rows:,} rows, {self.differing:,} differ")

    @property
    def differing(self) -> int:
        """The number of rows that differ."""
        return self.counts.differing.total()

    @property
    def status(self) -> int:
        """The exit status of the command."""
        return 1 if self.differing else 0

    def lines(self, source: object, target: object, note: str = "") -> Iterator[str]:
        """Yield the lines of the result: the counts, the note, then the keys of rows that differ.

        Omits a note that is empty.
        """
        counts = self.counts
        yield f"{source}: {counts.source:,} rows"
        yield f"{target}: {counts.target:,} rows"
        if note:
            yield note
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
@click.option(
    "--checkpoint",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="For a copy at a path: the checkpointLocation of the query that keeps the copy current, "
    "or the checkpoint of 'scylla-cdc mirror'. The default is TARGET.checkpoint, if it exists.",
)
@click.option(
    "--position",
    metavar="TIME",
    help="For a copy at a path: when the copy was made, if it has no checkpoint. The copy contains "
    "all changes before this time.",
)
@click.option(
    "--confidence-window",
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="For a copy at a path: how long to wait before changes count as settled, if rows differ.",
)
@two_connection_options("reads", "reads", is_path)
def command(
    source: ConnectionConfig,
    table: str,
    target: ConnectionConfig | str,
    copy: str | None,
    columns: str | None,
    limit: int,
    checkpoint: Path | None,
    position: str | None,
    confidence_window: str,
) -> None:
    """Compare the rows of two tables, such as a table and its copy.

    SOURCE and TARGET name nodes of the two clusters, each as HOST or HOST:PORT, separated by
    commas. The copy has the table's name unless another name is given. The command compares which
    rows exist and the values of their columns, but neither TTLs nor write times. A row that is
    written during the comparison may count as different.

    TARGET can also be the path of a copy: a Delta table, or a Parquet file or folder. Rows that
    have been changed since the copy's position are then not differences.

    The command prints how many rows each table has, and then the keys of the rows that differ. The
    exit status is 0 if no row differs, 1 if some rows differ, and 2 if the tables could not be
    compared.
    """
    chosen = None if columns is None else [each.strip() for each in columns.split(",")]
    options = _PathOptions(checkpoint, position, confidence_window)
    with cli_errors(Trouble), _interruptible():
        name = TableName.parse(table)
        if isinstance(target, str):
            options.check(target, copy)
            lines, status = _with_path(Side(source, name), target, options, chosen, limit)
        else:
            options.refuse()
            sides = Side(source, name), Side(target, TableName.parse(copy) if copy else name)
            lines, status = _with_table(*sides, chosen, limit)
    for line in lines:
        click.echo(line)
    sys.exit(status)


@frozen
class _PathOptions:
    """The options for a copy at a path."""

    checkpoint: Path | None
    position: str | None
    confidence_window: str

    def refuse(self) -> None:
        """Raise Misuse if one was given although the copy is a table."""
        for name in fields_dict(_PathOptions):
            source = click.get_current_context().get_parameter_source(name)
            if source is ParameterSource.COMMANDLINE:
                option = f"--{name.replace('_', '-')}"
                raise Misuse(f"{option} is for a copy at a path, and the target is a cluster")

    def check(self, path: str, copy: str | None) -> None:
        """Raise Misuse for values that exclude each other."""
        if copy is not None:
            raise Misuse(f"the target is the path {path}, which has one copy: leave out {copy}")
        if self.checkpoint is not None and self.position is not None:
            raise Misuse("--checkpoint has the position of the copy: leave out --position")

    @property
    def read(self) -> ReadConfig:
        """The settings of reads."""
        window = parse_duration(self.confidence_window, "--confidence-window")
        return ReadConfig(confidence_window=window)

    def position_of(self, path: str, table: TableName, queries: Connection) -> Checkpoint | None:
        """Return the position of the copy at the path, or None if it is not known."""
        if self.position is not None:
            now = ClusterClock(queries).now()
            return Checkpoint(parse_moment(self.position, "--position", now))
        place = self.checkpoint or next(filter(Path.exists, _usual_places(path, table)), None)
        if place is None:
            return None
        return position_of_copy(place, table) if place.is_file() else position_in(place, table)


def _usual_places(path: str, table: TableName) -> Iterator[Path]:
    """Yield where `mirror`, of Spark or of the command, keeps the checkpoint of a copy."""
    yield Path(f"{path.rstrip('/')}.checkpoint")
    copies = Path(path).parent.parent
    yield copies.with_name(f"{copies.name}.checkpoint") / table.keyspace / table.name


def _with_table(
    source: Side, target: Side, columns: Sequence[str] | None, limit: int
) -> tuple[Iterable[str], int]:
    """Compare a table with another one; return the lines of the result, and the exit status."""
    config, summary = ReadConfig(), Summary(limit)
    with (
        closing(Connection(source.connection, config)) as there,
        closing(Connection(target.connection, config)) as here,
    ):
        comparison = TableComparison(
            Table(there, SchemaSource(there).table_schema(source.table)),
            Table(here, SchemaSource(here).table_schema(target.table)),
            columns,
            config=config,
            limit=limit,
        )
        for compared in comparison.ranges():
            summary.add(compared)
    return summary.lines(source, target), summary.status


def _with_path(
    source: Side, path: str, options: _PathOptions, columns: Sequence[str] | None, limit: int
) -> tuple[Iterable[str], int]:
    """Compare a table with a copy at a path; see `_with_table`."""
    progress = Progress()

    def tell(share: float, rows: int) -> None:
        progress.tell(f"{share:.0%} of the table read: {rows:,} rows")

    with closing(Connection(source.connection, options.read)) as queries:
        table = TableReader(queries, source.table, config=options.read)
        names = [column.name for column in table.schema.base.columns]
        # The position comes first: if the copy goes on meanwhile, it is newer than its position.
        position = options.position_of(path, source.table, queries)
        comparison = PathComparison(
            table,
            open_copy(path, names),
            columns,
            position=position,
            limit=limit,
            progress=tell,
        )
        found = comparison.compare()
    kinds = {Kind.MISSING: found.missing, Kind.EXTRA: found.extra, Kind.CHANGED: found.changed}
    counts = Counts(found.rows, found.rows_in_copy, Counter(kinds))
    summary = Summary(limit, counts, [*found.differences])
    return summary.lines(source, path, _about_changes(found)), summary.status


def _about_changes(found: ComparedCopy) -> str:
    """Return a line about rows that were changed after the copy, or empty text."""
    if found.position is None:
        if not (found.missing or found.extra or found.changed):
            return ""
        return (
            "the position of the copy is not known: rows that were changed since then count as "
            "different (--checkpoint, --position)"
        )
    since = format_timestamp(found.position)
    if not found.newer:
        return ""
    return f"{found.newer:,} rows were changed since the copy's position, {since}"


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

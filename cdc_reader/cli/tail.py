"""`scylla-cdc tail`: prints the changes of tables as they happen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from io import TextIOWrapper

import click
from attrs import define, field
from rich.console import Console

from cdc_reader._time import EARLIEST, FOREVER, Micros
from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.cli.change_text import change_text
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import Failure, cli_errors
from cdc_reader.cli.following import (
    CheckpointPlace,
    FollowOptions,
    Kept,
    checkpoint_options,
    follow_options,
    from_snapshot,
    seconds,
    since,
    snapshot_option,
)
from cdc_reader.cli.output import drop_output, reader_is_gone
from cdc_reader.cli.snapshot_progress import SnapshotLines
from cdc_reader.cluster import Connection, SchemaSource
from cdc_reader.config import (
    ConnectionConfig,
    DataLossMode,
    DeliveryMode,
    ReadConfig,
    SnapshotMode,
)
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from cdc_reader.consumer.events import ConsumerEvent
from cdc_reader.consumer.handling import TakesUndecoded
from cdc_reader.consumer.lifecycle import unlogged
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.cql.names import TableName, tables_or_patterns
from cdc_reader.errors import HandlerError

_APPLICATION = "tail"
_ONE_BY_ONE = ConsumerConfig(attempts=1)


@define(eq=False)
class Printer:
    """Prints up to `limit` changes to stdout, one by one."""

    names_table: bool
    as_json: bool
    limit: int
    _console: Console = field(init=False)
    _shown: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # if the locale lacks a character
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)

    def show(self, change: Change) -> bool:
        """Print the change and flush it; return False if it was the last one to show."""
        if self.as_json:
            self._write(json.dumps(change.to_dict()))
        elif self._console.is_terminal:
            self._console.print(change_text(change, names_table=self.names_table))
        else:
            self._write(change_text(change, names_table=self.names_table).plain)
        self._console.file.flush()
        self._shown += 1
        return self._shown < self.limit

    def _write(self, line: str) -> None:
        self._console.file.write(f"{line}\n")


@click.command("tail")
@click.argument("tables", nargs=-1, required=True, metavar="KS.TABLE...")
@follow_options(
    start="now",
    late_rows=None,
    data_loss=DataLossMode.CONTINUE,
    delivery=DeliveryMode.ORDERED,
    eager="Print changes as soon as they are found, stream by stream, in no overall order; those "
    "found after later changes of their stream are marked (late). By default changes are printed "
    "a confidence window after they are written, in order of write time.",
)
@snapshot_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N changes.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, in the same order."
)
@checkpoint_options(
    "Keep the position in this file, and continue where the last run with it stopped.",
    "Keep the position in a table of the cluster instead; created if it does not exist.",
)
@click.option(
    "--application",
    metavar="NAME",
    default=_APPLICATION,
    show_default=True,
    help="Name under which the position is kept.",
)
@connection_options
def command(
    connection: ConnectionConfig,
    tables: tuple[str, ...],
    follow: FollowOptions,
    snapshot: str,
    limit: int | None,
    as_json: bool,
    place: CheckpointPlace | None,
    application: str,
) -> None:
    """Print the changes of tables as they happen, until SIGINT or SIGTERM.

    Changes are printed in order of write time, with several tables merged. Changes written in the
    same microsecond are printed table by table and stream by stream. Only changes marked (late) are
    out of order. With --eager, changes are printed sooner, but in no particular order.

    A pattern such as 'shop.*' stands for all tables of a keyspace that have a log, also for those
    that appear later. Quote it, so that the shell leaves the * as it is.

    Changes go to stdout, and everything else goes to stderr.
    """
    if snapshot == SnapshotMode.INITIAL:
        follow = from_snapshot(follow, "--snapshot is 'initial'")
    with cli_errors():
        names = tables_or_patterns(tables)
        follow = _checked(connection, names, follow)
        store = place.open(connection) if place else MemoryCheckpoints()
        is_one = len(names) == 1 and not names[0].is_pattern
        printer = Printer(not is_one, as_json, limit or FOREVER)
        with _writing():
            _tail(connection, names, follow, snapshot, Kept(store, application), printer)


def _checked(
    connection: ConnectionConfig, names: Sequence[TableName], follow: FollowOptions
) -> FollowOptions:
    """Return the options with relative times resolved by the cluster's clock.

    Raises an error for a table that is named and cannot be followed.
    """
    with closing(Connection(connection, ReadConfig())) as queries:
        for name in (each for each in names if not each.is_pattern):
            SchemaSource(queries).log_schema(name)
        return follow.corrected(queries)


def _tail(
    connection: ConnectionConfig,
    names: Sequence[TableName],
    follow: FollowOptions,
    snapshot: str,
    kept: Kept,
    printer: Printer,
) -> None:
    def show(change: Change) -> None:
        if not printer.show(change):
            consumer.stop()

    def reached(_event: ConsumerEvent) -> None:
        if reader_is_gone():
            consumer.stop()

    consumer = CdcConsumer(
        connection,
        names,
        TakesUndecoded(show),
        application=kept.application,
        start=EARLIEST if snapshot == SnapshotMode.INITIAL else follow.start,
        snapshot=snapshot,
        end=follow.end,
        checkpoints=kept.store,
        config=_ONE_BY_ONE,
        read=follow.read,
        shard=follow.shard,
        on_event=reached,
        metrics=SnapshotLines() if snapshot == SnapshotMode.INITIAL else None,
    )
    try:
        with unlogged(), stopped_by_signals(consumer.stop):
            for name in names:
                saved = None if name.is_pattern else kept.position(name, follow.shard)
                click.echo(_greeting(name, follow, snapshot, saved), err=True)
            consumer.run()
    finally:
        kept.store.close()


def _greeting(name: TableName, follow: FollowOptions, snapshot: str, saved: Micros | None) -> str:
    """Describe the start position and the delay, so that users know why nothing is printed yet."""
    part = "" if follow.shard.is_whole else f", part {follow.shard}"
    where = since(follow.start if saved is None else saved)
    if snapshot == SnapshotMode.INITIAL and saved is None:
        where = "now, after the rows it has"
    resumed = "" if saved is None else ", where the last run stopped"
    if name.is_pattern:
        resumed = ", or from its checkpoint, each table, also those that appear later"
    window = seconds(follow.read.confidence_window)
    if follow.read.delivery is DeliveryMode.EAGER:
        when = "changes are shown at once, in the order in which they are found"
    else:
        when = (
            f"changes are shown in order, {window} after they are written "
            "(--eager shows them at once)"
        )
    return f"following {name}{part} from {where}{resumed}; {when}; waiting for changes"


@contextmanager
def _writing() -> Iterator[None]:
    """Report output that cannot be written. A pipe that its reader has closed is not an error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except HandlerError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        drop_output()
        if not isinstance(error.__cause__, BrokenPipeError):
            raise Failure(f"cannot write changes to stdout: {error.__cause__.strerror}") from error

"""`scylla-cdc tail`: the changes of tables, as they happen."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper

import click
from attrs import define, field
from rich.console import Console

from cdc_reader.change import Change
from cdc_reader.checkpoint import MemoryCheckpoints
from cdc_reader.cli.change_text import change_text
from cdc_reader.cli.checkpoints import Kept, Place, checkpoint_options
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import Failure, told
from cdc_reader.cli.following import (
    FollowOptions,
    follow_options,
    seconds,
    since,
)
from cdc_reader.config import ConnectionConfig, DeliveryMode, LateRowsMode, ReadConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.driver import Connection, SchemaSource
from cdc_reader.errors import HandlerError
from cdc_reader.ids import TableName
from cdc_reader.window import FOREVER, Window

_APPLICATION = "tail"
_ONE_BY_ONE = ConsumerConfig(workers=1, attempts=1)


@define(eq=False)
class Printer:
    """Prints changes to stdout, one by one, up to `limit` of them."""

    names_table: bool
    as_json: bool
    limit: int
    _console: Console = field(init=False)
    _shown: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # not every locale has every letter
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)

    def show(self, change: Change) -> bool:
        """Print it, and have it leave the process; whether there is more to be shown."""
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
@follow_options(start="now", late_rows=LateRowsMode.IGNORE)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N changes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
@checkpoint_options(
    "Go on where the last run with this file stopped.",
    "The same, with a table of the cluster in place of the file.",
)
@click.option(
    "--application",
    metavar="NAME",
    default=_APPLICATION,
    show_default=True,
    help="Whose position it is, in the file or table.",
)
@connection_options
def command(
    connection: ConnectionConfig,
    tables: tuple[str, ...],
    follow: FollowOptions,
    limit: int | None,
    as_json: bool,
    place: Place | None,
    application: str,
) -> None:
    """Print the changes of tables as they happen, until SIGINT or SIGTERM.

    Changes go to stdout, all else to stderr.
    """
    with told():
        names = list(dict.fromkeys(map(TableName.parse, tables)))
        store = place.open(connection) if place else MemoryCheckpoints()
        printer = Printer(len(names) > 1, as_json, limit or FOREVER)
        _check(connection, names)
        with _writing():
            _tail(connection, names, follow, Kept(store, application), printer)


def _check(connection: ConnectionConfig, names: Sequence[TableName]) -> None:
    """Say what is wrong with a table before anything else is said."""
    queries = Connection(connection, ReadConfig())
    try:
        for name in names:
            SchemaSource(queries).log_schema(name)
    finally:
        queries.close()


def _tail(
    connection: ConnectionConfig,
    names: Sequence[TableName],
    follow: FollowOptions,
    kept: Kept,
    printer: Printer,
) -> None:
    def show(change: Change) -> None:
        if not printer.show(change):
            consumer.stop()

    def reached(_table: TableName, _window: Window) -> None:
        if _reader_is_gone():
            consumer.stop()

    consumer = CdcConsumer(
        connection,
        names,
        show,
        application=kept.application,
        start=follow.start,
        end=follow.end,
        checkpoints=kept.store,
        config=_ONE_BY_ONE,
        read=follow.read,
        shard=follow.shard,
        on_window=reached,
    )
    try:
        with stopped_by_signals(consumer.stop):
            for name in names:
                click.echo(_greeting(name, follow, kept.position(name, follow.shard)), err=True)
            consumer.run()
    finally:
        kept.store.close()


def _greeting(name: TableName, follow: FollowOptions, saved: int | None) -> str:
    """What to expect: nobody should wonder why nothing is shown."""
    part = "" if follow.shard.is_whole else f", part {follow.shard}"
    where = since(follow.start if saved is None else saved)
    resumed = "" if saved is None else ", where the last run stopped"
    window = seconds(follow.read.confidence_window)
    if follow.read.delivery == DeliveryMode.EAGER:
        when = "changes are shown at once"
    else:
        when = f"changes are shown {window} after they are written (--eager shows them at once)"
    return f"following {name}{part} from {where}{resumed}; {when}; waiting for changes"


@contextmanager
def _writing() -> Iterator[None]:
    """Say it if our output cannot be written; that its reader has enough of it is no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except HandlerError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        _drop_output()
        if not isinstance(error.__cause__, BrokenPipeError):
            raise Failure(f"cannot write changes to stdout: {error.__cause__.strerror}") from error


def _drop_output() -> None:
    """What is left in the buffer cannot be written when Python ends, either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more, to be known without writing to it."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # it has no file behind it
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))

"""`scylla-cdc replicate`: the changes of a table, applied to a table of another cluster."""

from __future__ import annotations

import re
import threading
from contextlib import closing
from pathlib import Path

import click
from attrs import define, evolve, field, frozen

from cdc_reader.change import Change
from cdc_reader.cli.checkpoints import Kept, Place, checkpoint_options
from cdc_reader.cli.connection import two_connection_options
from cdc_reader.cli.failure import Failure, told
from cdc_reader.cli.following import (
    FollowOptions,
    follow_options,
    since,
)
from cdc_reader.cli.table_copy import check_copy, creation
from cdc_reader.clock import SystemClock
from cdc_reader.config import ConnectionConfig, LateRowsMode, ReadConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.driver import Connection, CqlWriter, SchemaSource
from cdc_reader.duration import micros
from cdc_reader.errors import (
    CdcError,
    HandlerError,
    TableNotFoundError,
    UnsupportedTableError,
)
from cdc_reader.ids import TableName
from cdc_reader.ports import Clock
from cdc_reader.replicator import Expiry, Replicator
from cdc_reader.schema import TableSchema
from cdc_reader.timestamp import format_timestamp
from cdc_reader.window import Window

_EVERY = 10_000_000
"""µs between two reports."""


@frozen
class Side:
    """A table of a cluster."""

    way: ConnectionConfig
    table: TableName

    def __str__(self) -> str:
        return f"{self.table} at {self.hosts}"

    @property
    def hosts(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in sorted(self.way.endpoints()))


@define(eq=False)
class Report:
    """Says on stderr how far the copy is, now and then, while there is news; from any thread."""

    clock: Clock
    caught_up: int
    """How far behind now, in µs, the copy is when there is nothing left to do at once."""
    applied: int = 0
    position: int | None = None
    _said: tuple[int, int] = field(init=False)
    """When something was said last, and how many changes were applied then."""
    _is_caught_up: bool = field(init=False, default=False)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        self._said = self.clock.now(), 0

    def count(self) -> None:
        """One more change is applied."""
        with self._lock:
            self.applied += 1
            if self.clock.now() >= self._said[0] + _EVERY:
                self._say()

    def reached(self, _table: TableName, window: Window) -> None:
        """All changes of the window are applied."""
        with self._lock:
            self.position = window.end
            now = self.clock.now()
            if not self._is_caught_up and now - window.end < self.caught_up:
                self._is_caught_up = True
                self._say("caught up: ")
            elif now >= self._said[0] + _EVERY and self.applied != self._said[1]:
                self._say()

    def _say(self, news: str = "") -> None:
        click.echo(f"{news}{self}", err=True)
        self._said = self.clock.now(), self.applied

    def __str__(self) -> str:
        """So much is done."""
        reached = "" if self.position is None else f", all before {format_timestamp(self.position)}"
        return f"{self.applied:,} changes applied{reached}"


@click.command("replicate")
@click.argument("source")
@click.argument("table", metavar="KS.TABLE")
@click.argument("target")
@click.argument("copy", required=False, metavar="[KS.TABLE]")
@follow_options(start="earliest", late_rows=LateRowsMode.DELIVER)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="How many changes are applied at a time; those of a partition in order.",
)
@click.option(
    "--expiry",
    type=click.Choice([kind.value for kind in Expiry]),
    default=Expiry.WRITTEN.value,
    show_default=True,
    help="Cells with a TTL expire when those they are copies of do; or, where write timestamps "
    "are no points in time, so long after they were applied.",
)
@checkpoint_options(
    "Where the position is kept; by default a file in the current directory, named after the "
    "tables. Delete it to begin anew.",
    "A table of the target cluster, in place of the file; made if it is not there.",
)
@two_connection_options
def command(
    source: ConnectionConfig,
    table: str,
    target: ConnectionConfig,
    copy: str | None,
    follow: FollowOptions,
    workers: int,
    expiry: str,
    place: Place | None,
) -> None:
    """Apply the changes of a table to a copy of it, until SIGINT or SIGTERM.

    SOURCE and TARGET are nodes of the two clusters, each as HOST or HOST:PORT, separated by
    commas. The copy has the same name if none is given. It must be there, with the same columns
    and without CDC; in the end it equals the table, write timestamps and all. When started
    again, it goes on where it stopped.
    """
    with told():
        name = TableName.parse(table)
        sides = Side(source, name), Side(target, TableName.parse(copy) if copy else name)
        follow = _checked(*sides, follow)
        where = place or Place(_file(*sides))
        store = where.open(target)
        kept = Kept(store, f"replicate from {sides[0].hosts} to {sides[1]}")
        writer = CqlWriter(target, follow.read)
        try:
            config = ConsumerConfig(workers=workers, attempts=1)  # the writer tries again itself
            replicator = Replicator(writer, {name: sides[1].table}, expiry=Expiry(expiry))
            greeting = _greeting(*sides, follow, kept, where)
            _replicate(*sides, follow, kept, config, replicator, greeting)
        finally:
            writer.close()
            store.close()


def _checked(source: Side, target: Side, follow: FollowOptions) -> FollowOptions:
    """See that the one can become the other; rows that live for good tell not when they arrived."""
    with closing(Connection(source.way, ReadConfig())) as queries:
        schema = SchemaSource(queries).log_schema(source.table).base
    if schema.cdc.delta_keys_only:
        raise UnsupportedTableError(
            f"{schema.name}: its log tells keys only, not what was written to them; "
            "set the option delta of its cdc to full"
        )
    check_copy(schema, _copy(schema, target))
    if schema.cdc.ttl or follow.read.late_rows == LateRowsMode.IGNORE:
        return follow
    click.echo(
        f"the log of {schema.name} keeps rows for good, so rows that arrive long after the time "
        "they are written at cannot be found: give its cdc a ttl",
        err=True,
    )
    return evolve(follow, read=evolve(follow.read, late_rows=LateRowsMode.IGNORE))


def _copy(schema: TableSchema, target: Side) -> TableSchema:
    with closing(Connection(target.way, ReadConfig())) as queries:
        try:
            return SchemaSource(queries).table_schema(target.table)
        except TableNotFoundError as error:
            made = creation(schema, target.table)
            raise TableNotFoundError(f"at the target, {error}; make it: {made}") from error


def _file(source: Side, target: Side) -> Path:
    name = f"replicate-{source.table}-to-{target.table}.db"
    return Path(re.sub(r"[^\w.-]", "_", name))


def _greeting(source: Side, target: Side, follow: FollowOptions, kept: Kept, where: Place) -> str:
    saved = kept.position(source.table, follow.shard)
    start = since(follow.start if saved is None else saved)
    resumed = "" if saved is None else ", where the last run stopped"
    return (
        f"replicating {source} to {target} from {start}{resumed}; the position is kept in {where}"
    )


def _replicate(
    source: Side,
    target: Side,
    follow: FollowOptions,
    kept: Kept,
    config: ConsumerConfig,
    replicator: Replicator,
    greeting: str,
) -> None:
    read = follow.read
    report = Report(SystemClock(), micros(read.confidence_window + 2 * read.poll_interval))

    def apply(change: Change) -> None:
        replicator.apply(change)
        report.count()

    consumer = CdcConsumer(
        source.way,
        [source.table],
        apply,
        application=kept.application,
        start=follow.start,
        end=follow.end,
        checkpoints=kept.store,
        config=config,
        read=read,
        shard=follow.shard,
        on_window=report.reached,
    )
    try:
        with stopped_by_signals(consumer.stop):
            click.echo(greeting, err=True)
            consumer.run()
    except HandlerError as error:
        if isinstance(error.__cause__, CdcError):
            raise Failure(f"{target}: {error.__cause__}; start again to go on") from error
        raise
    finally:
        click.echo(f"stopped: {report}", err=True)

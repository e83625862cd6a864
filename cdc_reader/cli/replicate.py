"""`scylla-cdc replicate`: applies the changes of a table to a table of another cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from uuid import UUID

import click
from attrs import define, evolve, field, frozen

from cdc_reader._time import (
    BEGINNING,
    EARLIEST,
    Clock,
    Micros,
    SystemClock,
    duration_micros,
    format_timestamp,
)
from cdc_reader.changes.change import Change
from cdc_reader.changes.operation import ChangeOperation
from cdc_reader.checkpoints.default import default_file
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.connection import Side, two_connection_options
from cdc_reader.cli.failure import Failure, cli_errors
from cdc_reader.cli.following import (
    CheckpointPlace,
    FollowOptions,
    Kept,
    checkpoint_options,
    follow_options,
    from_snapshot,
    since,
)
from cdc_reader.cli.snapshot_progress import SnapshotLines
from cdc_reader.cluster import Connection, CqlWriter, Query, SchemaSource
from cdc_reader.config import (
    ConnectionConfig,
    DataLossMode,
    DeliveryMode,
    LateRowsMode,
    ReadConfig,
    SnapshotMode,
    poll_interval,
)
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from cdc_reader.consumer.events import ConsumerEvent, WindowHandled
from cdc_reader.consumer.handling import Together
from cdc_reader.consumer.lifecycle import unlogged
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.cql.names import TableName, quoted
from cdc_reader.cql.schema import TableSchema
from cdc_reader.errors import (
    CdcError,
    CheckpointError,
    HandlerError,
    TableNotFoundError,
    UnsupportedTableError,
)
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.reading.retry import Interruption
from cdc_reader.replication.replicator import TOGETHER, Expiry, Replicator
from cdc_reader.replication.table_copy import check_copy, check_initial_copy, creation, needed_types
from cdc_reader.streams.shard import Shard

_EVERY = 10_000_000
"""µs between reports."""


@define(eq=False)
class Report:
    """Reports the copy's progress periodically on stderr; thread-safe."""

    clock: Clock
    caught_up: int
    """The copy has caught up when it is less than this many µs behind the present."""
    rows: Callable[[], int] = int
    """Returns the number of rows read for the snapshot."""
    applied: int = 0
    position: Micros | None = None
    _said: tuple[int, int] = field(init=False)
    """The time of the last report, and the number of changes applied by then."""
    _is_caught_up: bool = field(init=False, default=False)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        self._said = self.clock.now(), 0

    def count(self, changes: int = 1) -> None:
        """Count further applied changes."""
        with self._lock:
            self.applied += changes
            if self.clock.now() >= self._said[0] + _EVERY:
                self._say()

    def reached(self, event: ConsumerEvent) -> None:
        """Record that all changes of a window have been applied."""
        if isinstance(event, WindowHandled):
            self.passed(event.window.end)

    def passed(self, position: Micros) -> None:
        """Record that all changes before the position have been applied."""
        with self._lock:
            self.position = position
            now = self.clock.now()
            if not self._is_caught_up and now - self.position < self.caught_up:
                self._is_caught_up = True
                self._say("caught up: ")
            elif now >= self._said[0] + _EVERY and self.applied != self._said[1]:
                self._say()

    def _say(self, news: str = "") -> None:
        click.echo(f"{news}{self}", err=True)
        self._said = self.clock.now(), self.applied

    def __str__(self) -> str:
        """Format the progress so far."""
        reached = "" if self.position is None else f", all before {format_timestamp(self.position)}"
        read = f"{rows:,} rows of the table read, " if (rows := self.rows()) else ""
        return f"{read}{self.applied:,} changes applied{reached}"


@click.command("replicate")
@click.argument("source")
@click.argument("table", metavar="KS.TABLE")
@click.argument("target")
@click.argument("copy", required=False, metavar="[KS.TABLE]")
@follow_options(
    start="earliest",
    late_rows=LateRowsMode.DELIVER,
    data_loss=DataLossMode.FAIL,
    delivery=DeliveryMode.SETTLED,
    eager="Apply changes as soon as they are found. By default they are applied a confidence "
    "window after they are written. The copy is the same: each change has its write timestamp.",
)
@click.option(
    "--initial-copy",
    is_flag=True,
    help="Begin with the table's existing rows, then follow the log from a position before the "
    "first row was read. The target must be empty. A checkpoint takes precedence, even an "
    "unfinished copy's.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1_024),
    default=8,
    show_default=True,
    help="How many threads apply changes. Changes of one partition are applied in order.",
)
@click.option(
    "--expiry",
    type=click.Choice([kind.value for kind in Expiry]),
    default=Expiry.WRITTEN.value,
    show_default=True,
    help="When cells with a TTL expire in the copy. written: when they expire in the table. "
    "applied: a TTL after they are applied, for tables whose write timestamps are not "
    "times.",
)
@checkpoint_options(
    "File to keep the position in; by default one in the current directory, named after the "
    "tables. Delete it to start over.",
    "Keep the position in a table of the target cluster instead; created if it does not exist.",
)
@two_connection_options("reads", "writes")
def command(
    source: ConnectionConfig,
    table: str,
    target: ConnectionConfig,
    copy: str | None,
    follow: FollowOptions,
    initial_copy: bool,
    workers: int,
    expiry: str,
    place: CheckpointPlace | None,
) -> None:
    """Apply the changes of a table to a copy of it, until SIGINT or SIGTERM.

    SOURCE and TARGET name nodes of the two clusters, each as HOST or HOST:PORT, separated by
    commas. The copy must exist, with the same columns and without CDC. It has the table's name
    unless another name is given. The copy receives all changes that are still in the log, with
    their write timestamps. With --initial-copy, it first receives the existing rows of the table,
    and then the changes since. A later run continues where the last run stopped.
    """
    with cli_errors():
        if initial_copy:
            follow = from_snapshot(follow, "--initial-copy is given")
        name = TableName.parse(table)
        sides = Side(source, name), Side(target, name if copy is None else TableName.parse(copy))
        schema = _schema(sides[0])
        target_id = _check_target(schema, sides[1])
        with closing(Connection(source, ReadConfig())) as queries:
            follow = _suited(schema, follow).corrected(queries)
        application = f"replicate {sides[0].table} to {sides[1].table}"
        where = place or CheckpointPlace(default_file(application))
        store = where.open(target)
        kept = Kept(store, application)
        _check_same_target(kept, sides[1], target_id, where)
        snapshot = _snapshot(schema, sides[1], kept, follow.shard, initial_copy=initial_copy)
        store.save(_of_target(kept, sides[1]), Checkpoint(BEGINNING, table_id=target_id))
        writer = CqlWriter(target, follow.read)
        try:
            config = ConsumerConfig(workers=workers, attempts=1)  # the writer does its own retries
            replicator = Replicator(writer, {name: sides[1].table}, expiry=Expiry(expiry))
            greeting = _greeting(*sides, follow, snapshot, kept, where)
            _replicate(*sides, follow, snapshot, kept, config, replicator, greeting)
        finally:
            writer.close()
            store.close()


def _schema(source: Side) -> TableSchema:
    """Return the schema of the table; raise an error if its log does not show what was written."""
    with closing(Connection(source.connection, ReadConfig())) as queries:
        schema = SchemaSource(queries).log_schema(source.table).base
    if schema.cdc.delta_keys_only:
        raise UnsupportedTableError(
            f"{schema.name}: its log has keys only, not the values written; set delta to 'full' "
            "in its cdc options"
        )
    return schema


def _suited(schema: TableSchema, follow: FollowOptions) -> FollowOptions:
    """Return the options, changed to ignore late rows if the log keeps rows forever."""
    if schema.cdc.ttl or follow.read.late_rows is LateRowsMode.IGNORE:
        return follow
    click.echo(
        f"the log of {schema.name} keeps rows forever, so rows that arrive long after their "
        "write time cannot be found: set a ttl in its cdc options",
        err=True,
    )
    return evolve(follow, read=evolve(follow.read, late_rows=LateRowsMode.IGNORE))


def _check_target(schema: TableSchema, target: Side) -> UUID | None:
    """Check that the target has a table for the copy, and return the table's id.

    If the table does not exist, the error contains the CQL statement that creates it.
    """
    with closing(Connection(target.connection, ReadConfig())) as queries:
        schemas = SchemaSource(queries)
        needed = (user_type.name for user_type in needed_types(schema))
        types = schemas.user_types(target.table.keyspace, needed)
        try:
            there = schemas.table_schema(target.table)
        except TableNotFoundError as error:
            made = creation(schema, target.table, types)
            if keyspace := schemas.keyspace_creation(target.table.keyspace):
                made = f"{keyspace}; {made}"
            raise TableNotFoundError(f"at the target, {error}; create it: {made}") from error
    check_copy(schema, there, types)
    return there.id


def _of_target(kept: Kept, target: Side) -> CheckpointName:
    """Return the name of a checkpoint that all shards share, and that contains the copy's id."""
    return CheckpointName(kept.application, target.table, "0/copy")


def _check_same_target(
    kept: Kept, target: Side, found: UUID | None, where: CheckpointPlace
) -> None:
    """Raise CheckpointError if the position belongs to a different table with the copy's name."""
    started = kept.store.load(_of_target(kept, target))
    if started is not None and started.table_id != found:
        raise CheckpointError(
            f"table {target} was dropped and created again, or is in another cluster: the position "
            f"in {where} belongs to the copy with id {started.table_id}, but this table has id "
            f"{found}; delete the position or give another place for it, and start anew with "
            "--initial-copy"
        )


def _snapshot(
    schema: TableSchema, target: Side, kept: Kept, shard: Shard, *, initial_copy: bool
) -> SnapshotMode:
    """Return whether to copy existing rows.

    The first run copies them if requested. A later run only completes a copy that was begun.
    """
    begun = kept.begun(schema.name, shard)
    if begun is not None:
        is_left = begun.snapshot is not None
        return SnapshotMode.INITIAL if is_left else SnapshotMode.NONE
    if not initial_copy:
        return SnapshotMode.NONE
    check_initial_copy(schema)
    with closing(Connection(target.connection, ReadConfig())) as queries:
        key = quoted(schema.partition_key[0].name)
        first = Query(f"SELECT {key} FROM {target.table.cql} LIMIT 1")  # noqa: S608 - quoted
        if any(batch.num_rows for batch in queries.batches(first)):
            raise UnsupportedTableError(
                f"table {target} has rows, and --initial-copy begins with an empty table: "
                f"TRUNCATE {target.table.cql} there, or leave --initial-copy out"
            )
    return SnapshotMode.INITIAL


def _greeting(
    source: Side,
    target: Side,
    follow: FollowOptions,
    snapshot: SnapshotMode,
    kept: Kept,
    where: CheckpointPlace,
) -> str:
    saved = kept.position(source.table, follow.shard)
    start = since(follow.start if saved is None else saved)
    if snapshot is SnapshotMode.INITIAL:
        start = "now, after the rows it has" if saved is None else f"{start}, after its other rows"
    resumed = "" if saved is None else ", where the last run stopped"
    return (
        f"replicating {source} to {target} from {start}{resumed}; the position is kept in {where}"
    )


@frozen
class _Applying:
    """Applies changes, and counts them in the report."""

    replicator: Replicator
    report: Report

    def __call__(self, changes: Sequence[Change]) -> None:
        self.replicator.apply_all(changes)
        for change in changes:
            if change.operation is not ChangeOperation.SNAPSHOT:
                self.report.count()

    def interrupted_by(self, interruption: Interruption) -> _Applying:
        """Return a function that does the same, with writes that `interruption` ends."""
        return _Applying(self.replicator.interrupted_by(interruption), self.report)


def _replicate(
    source: Side,
    target: Side,
    follow: FollowOptions,
    snapshot: SnapshotMode,
    kept: Kept,
    config: ConsumerConfig,
    replicator: Replicator,
    greeting: str,
) -> None:
    read, lines = follow.read, SnapshotLines()
    caught_up = duration_micros(read.confidence_window) + 2 * poll_interval(read)
    report = Report(SystemClock(), caught_up, partial(lines.rows, source.table))
    is_initial = snapshot is SnapshotMode.INITIAL
    consumer = CdcConsumer(
        source.connection,
        [source.table],
        Together(_Applying(replicator, report), TOGETHER),
        application=kept.application,
        start=EARLIEST if is_initial else follow.start,
        snapshot=snapshot,
        end=follow.end,
        checkpoints=kept.store,
        config=config,
        read=read,
        shard=follow.shard,
        on_event=report.reached,
        metrics=lines if is_initial else None,
    )
    try:
        with unlogged(), stopped_by_signals(consumer.stop):
            click.echo(greeting, err=True)
            consumer.run()
    except HandlerError as error:
        if isinstance(error.__cause__, CdcError):
            raise Failure(f"{target}: {error.__cause__}; start again to continue") from error
        raise
    finally:
        click.echo(f"stopped: {report}", err=True)

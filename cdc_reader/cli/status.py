"""`scylla-cdc status`: shows what a table's log holds, and how far applications have read it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from attrs import asdict, evolve, frozen
from rich.console import Console
from rich.table import Table

from cdc_reader._time import (
    BEGINNING,
    FOREVER,
    Micros,
    SystemClock,
    duration_micros,
    format_timestamp,
    parse_duration,
)
from cdc_reader.checkpoints import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.spark import SparkCheckpoint
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import Failure, Misuse, cli_errors
from cdc_reader.cli.following import CheckpointPlace, checkpoint_options, since
from cdc_reader.cli.generations import Row, rows_of, show
from cdc_reader.cli.snapshot_progress import SnapshotState
from cdc_reader.cluster import Connection, SchemaSource, TableGenerations
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import CdcOptions, ImageMode
from cdc_reader.errors import CheckpointError, ConfigurationError
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.reading.progress import Checkpoint, check_same_table

_SECOND = 1_000_000
_UNITS = (("d", 86_400 * _SECOND), ("h", 3_600 * _SECOND), ("min", 60 * _SECOND), ("s", _SECOND))
_WIDEST = 120


@frozen
class Reader:
    """The progress of an application or of one of its shards; all times, and `now`, in µs."""

    name: CheckpointName
    checkpoint: Checkpoint
    oldest: Micros | None
    """The write time before which the log has no rows; None if there is no generation yet."""
    now: Micros
    ttls: TtlHistory
    """What is known about the log's TTL."""
    table_id: UUID | None
    """The table's current id."""

    @property
    def position(self) -> Micros | None:
        """All rows written before it are acknowledged; None if reading begins with the oldest."""
        position = self.checkpoint.position
        return None if position <= BEGINNING else position

    @property
    def refusal(self) -> str | None:
        """The reason why the checkpoint cannot be resumed (the table was recreated), or None."""
        try:
            kept = evolve(self.checkpoint, table=self.name.table)
            check_same_table(kept, self.name.table, self.table_id)
        except CheckpointError as error:
            return str(error)
        return None

    @property
    def snapshot(self) -> SnapshotState | None:
        """The state of the snapshot with which reading begins; None if it is complete."""
        kept = self.checkpoint.snapshot
        return None if kept is None else SnapshotState.of(self.name, kept, self.now)

    @property
    def lag(self) -> int | None:
        """The age of the oldest row that may be unread; None if unknown."""
        return None if self._unread is None else max(0, self.now - self._unread)

    def alarm(self, most: int) -> str | None:
        """Return what is wrong if the reader may lag by more than `most` µs; None otherwise."""
        if self.refusal is not None:
            return f"{self} cannot resume: {self.refusal}"
        if self.position is not None and self.position - self.now > most:
            ahead = _span(self.position - self.now)
            return f"{self} reads nothing yet: its position is {ahead} in the future"
        if self.lag is None:
            return f"the lag of {self} is unknown: the cluster has announced no generation yet"
        return f"{self} lags by {_span(self.lag)}" if self.lag > most else None

    @property
    def left(self) -> int | None:
        """The time until the first unread rows expire; negative if some may have expired."""
        expires = self._expires
        return None if expires is None or expires == FOREVER else expires - self.now

    @property
    def _expires(self) -> Micros | None:
        return None if self._unread is None else self.ttls.expires(self._unread)

    @property
    def _unread(self) -> Micros | None:
        if self.refusal is not None:
            return None
        return self.oldest if self.position is None else self.position

    def to_dict(self) -> dict[str, Any]:
        """Return the reader for programs; durations in seconds."""
        position = self.position
        return {
            "application": self.name.application,
            "shard": self.name.shard,
            "position": _time(position),
            "position_micros": position,
            "lag_seconds": _seconds(self.lag),
            "expires_in_seconds": _seconds(self.left),
            "generation": _time(self.checkpoint.generation),
            "marked_streams": len(self.checkpoint.marks),
            "late_scan_at": _time(self.checkpoint.late_scan_at),
            "snapshot": None if self.snapshot is None else asdict(self.snapshot),
            "refusal": self.refusal,
        }

    def cells(self) -> Iterator[str]:
        """Return the reader's table cells, for people."""
        yield self.name.application
        yield self.name.shard
        yield since(self.checkpoint.position)
        yield "-" if self.lag is None else _span(self.lag)
        yield str(len(self.checkpoint.marks))
        yield self._expiry()

    def __str__(self) -> str:
        return f"{self.name.application} ({self.name.shard})"

    def _expiry(self) -> str:
        if self._expires == FOREVER:
            return "never"
        if self.left is None:
            return "-"
        return f"in {_span(self.left)}" if self.left >= 0 else f"since {_span(-self.left)}"


@frozen
class Status:
    """The contents of a table's log, and its readers.

    Generations whose rows have all expired are left out.
    """

    table: TableName
    options: CdcOptions
    generations: Sequence[Row]
    readers: Sequence[Reader]

    def to_dict(self) -> dict[str, Any]:
        """Return the status for programs."""
        return {
            "table": str(self.table),
            "log": {
                "enabled": self.options.enabled,
                "ttl_seconds": self.options.ttl or None,
                "delta": "keys" if self.options.delta_keys_only else "full",
                "preimage": self.options.preimage.value,
                "postimage": self.options.postimage,
            },
            "generations": [row.to_dict() for row in self.generations],
            "applications": [reader.to_dict() for reader in self.readers],
        }


@click.command("status")
@click.argument("table", metavar="KS.TABLE")
@checkpoint_options(
    "Show the positions kept in this file, or in the checkpointLocation of a Spark query.",
    "Show the positions kept in a table of the cluster.",
    directories=True,
)
@click.option("--application", metavar="NAME", help="Show only the positions of this application.")
@click.option(
    "--count/--no-count",
    default=True,
    help="Whether to count the streams, which means listing all of them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--max-lag",
    metavar="DURATION",
    help="Exit with status 1 if a reader shown lags by more than this, if that is unknown, or if "
    "none is shown.",
)
@connection_options
def command(
    connection: ConnectionConfig,
    table: str,
    place: CheckpointPlace | None,
    application: str | None,
    count: bool,
    as_json: bool,
    max_lag: str | None,
) -> None:
    """Show what a table's log holds, and how far it has been read.

    Only the generations and the table's schema are queried; no log is read.
    """
    if application is not None and place is None:
        raise Misuse(
            "--application selects positions: say where they are with --checkpoint or "
            "--checkpoint-table"
        )
    if max_lag is not None and place is None:
        raise Misuse(
            "--max-lag checks positions: say where they are with --checkpoint or --checkpoint-table"
        )
    with cli_errors():
        allowed = None if max_lag is None else _allowed(max_lag)
        name = TableName.parse(table)
        kept = _kept(connection, place, name, application)
        queries = Connection(connection, ReadConfig())
        try:
            status = _status(queries, name, kept, count)
        finally:
            queries.close()
    if as_json:
        click.echo(json.dumps(status.to_dict()))
    else:
        _show(status)
        _show_readers(status.readers, place)
    if allowed is not None:
        _judge(status, allowed, place)


def _allowed(max_lag: str) -> timedelta:
    if not (allowed := parse_duration(max_lag, "--max-lag")):
        raise ConfigurationError("--max-lag", max_lag, "give a duration above zero")
    return allowed


def _judge(status: Status, allowed: timedelta, place: CheckpointPlace | None) -> None:
    """Exit with status 1 unless the table has readers, and all of them certainly keep up."""
    if not status.readers:
        raise Failure(f"no position of {status.table} in {place}")
    most = duration_micros(allowed)
    alarms = [alarm for reader in status.readers if (alarm := reader.alarm(most))]
    if alarms:
        listed = "; ".join(alarms)
        raise Failure(f"{status.table}: {listed}; --max-lag allows {_span(most)}")


def _kept(
    connection: ConnectionConfig,
    place: CheckpointPlace | None,
    table: TableName,
    application: str | None,
) -> dict[CheckpointName, Checkpoint]:
    """Return the checkpoints of a table, or of one application; do not create a store."""
    if place is None:
        return {}
    if isinstance(place.at, Path) and not place.at.exists():
        raise Misuse(
            f"--checkpoint is {str(place)!r}: no such file; give the checkpoint file of a reader"
        )
    store: SparkCheckpoint | SqliteCheckpoints | ScyllaCheckpoints
    if isinstance(place.at, Path) and place.at.is_dir():
        store = SparkCheckpoint(place.at, table)
    else:
        store = place.open(connection)
    try:
        names = [name for name in store.names() if name.table == table and not name.is_shared]
        wanted = [name for name in names if application in (None, name.application)]
        found = {name: store.load(name) for name in wanted}
    finally:
        store.close()
    if application is not None and not wanted:
        known = ", ".join(sorted({name.application for name in names})) or "nobody"
        raise Misuse(f"--application is {application!r}: of {table}, {place} knows {known}")
    return {name: kept for name, kept in found.items() if kept is not None}


def _status(
    queries: Connection, name: TableName, kept: dict[CheckpointName, Checkpoint], count: bool
) -> Status:
    base = SchemaSource(queries).log_schema(name).base
    options = base.cdc
    source, now = TableGenerations(queries, name).source, SystemClock().now()
    expired = now - options.ttl * _SECOND if options.ttl else BEGINNING
    rows = list(rows_of(source, count, now, expired))
    announced = [row.operates.start for row in rows if row.is_announced]
    oldest = max(expired, min(announced)) if announced else None
    readers = [
        Reader(
            name,
            checkpoint,
            oldest,
            now,
            checkpoint.ttls.seen(options.ttl, now, base.altered),
            base.id,
        )
        for name, checkpoint in kept.items()
    ]
    return Status(name, options, rows, readers)


def _show(status: Status) -> None:
    click.secho(str(status.table), bold=True)
    click.echo(f"its log {_log(status.options)}\n")
    show(status.generations)


def _log(options: CdcOptions) -> str:
    lifetime = f"for {_span(options.ttl * _SECOND)}" if options.ttl else "forever"
    shown = ["keys only" if options.delta_keys_only else "what was written"]
    if options.preimage is not ImageMode.OFF:
        kind = "whole rows" if options.preimage is ImageMode.FULL else "columns"
        shown.append(f"{kind} before")
    if options.postimage:
        shown.append("rows after")
    off = "" if options.enabled else "; CDC is off, so nothing is added to it"
    return f"keeps rows {lifetime} and shows {', '.join(shown)}{off}"


def _show_readers(readers: Sequence[Reader], place: CheckpointPlace | None) -> None:
    if place is None:
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("APPLICATION", "SHARD", "POSITION", "LAG", "MARKS", "UNREAD ROWS EXPIRE"):
        table.add_column(heading, no_wrap=True)
    for reader in readers:
        table.add_row(*reader.cells())
    console = Console(width=max(Console().width, _WIDEST), highlight=False, markup=False)
    console.print()
    if readers:
        console.print(table)
        for reader in readers:
            if reader.snapshot is not None:
                console.print(f"{reader}: {reader.snapshot}", soft_wrap=True)
            if reader.refusal is not None:
                console.print(f"{reader}: {reader.refusal}", soft_wrap=True)
    else:  # do not wrap paths
        console.print(f"no position of this table in {place}", soft_wrap=True)


def _span(micros: int) -> str:
    """Format a duration for people, in its two largest units."""
    parts: list[str] = []
    for unit, size in _UNITS:
        number, micros = divmod(micros, size)
        if number or parts or unit == "s":
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / _SECOND


def _time(micros: Micros | None) -> str | None:
    return None if micros is None else format_timestamp(micros)

"""`scylla-cdc status`: what there is to read of a table, and how far applications have read it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from rich.console import Console
from rich.table import Table

from cdc_reader.cli.checkpoints import Place, checkpoint_options
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import Misuse, told
from cdc_reader.cli.following import since
from cdc_reader.cli.generations import Row, rows_of, show
from cdc_reader.clock import SystemClock
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.driver import Connection, SchemaSource, TableGenerations
from cdc_reader.ids import TableName
from cdc_reader.progress import Checkpoint, CheckpointName
from cdc_reader.schema import CdcOptions, ImageMode
from cdc_reader.timestamp import format_timestamp
from cdc_reader.window import BEGINNING

_SECOND = 1_000_000
_UNITS = (("d", 86_400 * _SECOND), ("h", 3_600 * _SECOND), ("min", 60 * _SECOND), ("s", _SECOND))
_WIDEST = 120


@frozen
class Reader:
    """How far an application, or one of its shards, has read; times in µs, `now` among them."""

    name: CheckpointName
    checkpoint: Checkpoint
    now: int
    ttl: int
    """That of the log in seconds; 0 for none."""

    @property
    def position(self) -> int | None:
        """Every row written before is acknowledged; None if it has not begun."""
        position = self.checkpoint.position
        return None if position <= BEGINNING else position

    @property
    def lag(self) -> int | None:
        """From the position to now."""
        return None if self.position is None else max(0, self.now - self.position)

    @property
    def left(self) -> int | None:
        """Until the first rows that were not read expire; below zero if they may have."""
        if self.position is None or not self.ttl:
            return None
        return self.position + self.ttl * _SECOND - self.now

    def to_dict(self) -> dict[str, Any]:
        """For programs; durations in seconds."""
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
            "swept": _time(self.checkpoint.swept),
        }

    def cells(self) -> Iterator[str]:
        """For people."""
        yield self.name.application
        yield self.name.shard
        yield since(self.checkpoint.position)
        yield "-" if self.lag is None else _span(self.lag)
        yield str(len(self.checkpoint.marks))
        yield self._expiry()

    def _expiry(self) -> str:
        if not self.ttl:
            return "never"
        if self.left is None:
            return "-"
        return f"in {_span(self.left)}" if self.left > 0 else f"since {_span(-self.left)}"


@frozen
class Status:
    """What there is to read of a table, and who reads it.

    Generations over for longer than rows live are left out.
    """

    table: TableName
    options: CdcOptions
    generations: Sequence[Row]
    readers: Sequence[Reader]

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
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
    "The file with the positions of those who read the table.",
    "The table of the cluster with them, in place of the file.",
)
@click.option("--application", metavar="NAME", help="Only the positions of this one.")
@click.option("--count/--no-count", default=True, help="Read and count the streams.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@connection_options
def command(
    connection: ConnectionConfig,
    table: str,
    place: Place | None,
    application: str | None,
    count: bool,
    as_json: bool,
) -> None:
    """Show what there is to read of a table, and how far it has been read.

    Asks the cluster for its generations and the table's schema only: no log is read.
    """
    if application is not None and place is None:
        raise Misuse("--application names a position: give the file it is in with --checkpoint")
    with told():
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


def _kept(
    way: ConnectionConfig, place: Place | None, table: TableName, application: str | None
) -> dict[CheckpointName, Checkpoint]:
    """The checkpoints of a table, or of one application; nothing is made where there are none."""
    if place is None:
        return {}
    if isinstance(place.at, Path) and not place.at.exists():
        raise Misuse(f"--checkpoint is {str(place)!r}: no such file; give one that a reader keeps")
    store = place.open(way)
    try:
        names = [name for name in store.names() if name.table == table]
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
    options = SchemaSource(queries).log_schema(name).base.cdc
    source, now = TableGenerations(queries, name).source, SystemClock().now()
    readers = [Reader(name, checkpoint, now, options.ttl) for name, checkpoint in kept.items()]
    expired = now - options.ttl * _SECOND if options.ttl else BEGINNING
    return Status(name, options, list(rows_of(source, count, now, expired)), readers)


def _show(status: Status) -> None:
    click.secho(str(status.table), bold=True)
    click.echo(f"its log {_log(status.options)}\n")
    show(status.generations)


def _log(options: CdcOptions) -> str:
    lifetime = f"{_span(options.ttl * _SECOND)}" if options.ttl else "for good"
    shown = ["keys only" if options.delta_keys_only else "what was written"]
    if options.preimage is not ImageMode.OFF:
        kind = "whole rows" if options.preimage is ImageMode.FULL else "columns"
        shown.append(f"{kind} before")
    if options.postimage:
        shown.append("rows after")
    off = "" if options.enabled else "; CDC is off, so nothing is added to it"
    return f"keeps rows {lifetime} and tells {', '.join(shown)}{off}"


def _show_readers(readers: Sequence[Reader], place: Place | None) -> None:
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
    else:  # a path stays in one piece
        console.print(f"nobody has a position of this table in {place}", soft_wrap=True)


def _span(micros: int) -> str:
    """A duration for people: its two largest units."""
    parts: list[str] = []
    for unit, size in _UNITS:
        number, micros = divmod(micros, size)
        if number or parts or unit == "s":
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / _SECOND


def _time(micros: int | None) -> str | None:
    return None if micros is None else format_timestamp(micros)

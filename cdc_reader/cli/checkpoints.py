"""Options that say where positions are kept, and access to the positions kept there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from cdc_reader._time import Micros
from cdc_reader.checkpoints import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName, CheckpointStore
from cdc_reader.cli.failure import Misuse, cli_errors
from cdc_reader.config import ConnectionConfig
from cdc_reader.cql.names import TableName
from cdc_reader.streams.shard import Shard


@frozen
class CheckpointPlace:
    """Where positions are kept: in a file, or in a table of a cluster."""

    at: Path | TableName

    def open(self, connection: ConnectionConfig) -> SqliteCheckpoints | ScyllaCheckpoints:
        """Open the store; `connection` is the followed table's."""
        if isinstance(self.at, Path):
            return SqliteCheckpoints(self.at)
        return ScyllaCheckpoints(connection, self.at.keyspace, self.at.name)

    def __str__(self) -> str:
        return str(self.at) if isinstance(self.at, Path) else f"table {self.at}"


@frozen
class Kept:
    """Where the positions of an application are kept."""

    store: CheckpointStore
    application: str

    def position(self, table: TableName, shard: Shard) -> Micros | None:
        """Return the position to resume from, in µs; None if there is none."""
        found = self.store.load(CheckpointName(self.application, table, str(shard)))
        return None if found is None else found.position


def checkpoint_options(
    file: str, table: str, *, directories: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options for a checkpoint file and a checkpoint table; the command gets `place`.

    With `directories` the path may be a directory, which `CheckpointPlace.open` cannot open.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(checkpoint: Path | None, checkpoint_table: str | None, **values: Any) -> None:
            if checkpoint and checkpoint_table:
                raise Misuse(
                    "--checkpoint and --checkpoint-table exclude each other: give one of them"
                )
            with cli_errors():
                at = TableName.parse(checkpoint_table) if checkpoint_table else checkpoint
            command(place=at and CheckpointPlace(at), **values)

        in_table = click.option("--checkpoint-table", metavar="KS.TABLE", help=table)
        path = click.Path(dir_okay=directories, path_type=Path)
        metavar = "FILE|DIR" if directories else "FILE"
        in_file = click.option("--checkpoint", type=path, metavar=metavar, help=file)
        return in_file(in_table(wrapped))

    return decorate

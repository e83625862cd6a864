"""The options for where positions are kept, and the positions there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from cdc_reader.checkpoint import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.cli.failure import Misuse, told
from cdc_reader.config import ConnectionConfig
from cdc_reader.ids import TableName
from cdc_reader.ports import CheckpointStore
from cdc_reader.progress import CheckpointName
from cdc_reader.shard import Shard

_FILE = click.Path(dir_okay=False, path_type=Path)


@frozen
class Place:
    """Where positions are kept: in a file, or in a table of a cluster."""

    at: Path | TableName

    def open(self, way: ConnectionConfig) -> SqliteCheckpoints | ScyllaCheckpoints:
        """The store there, with `way` leading to the cluster of the table."""
        if isinstance(self.at, Path):
            return SqliteCheckpoints(self.at)
        return ScyllaCheckpoints(way, self.at.keyspace, self.at.name)

    def __str__(self) -> str:
        return str(self.at) if isinstance(self.at, Path) else f"table {self.at}"


@frozen
class Kept:
    """Where the positions of an application are kept."""

    store: CheckpointStore
    application: str

    def position(self, table: TableName, shard: Shard) -> int | None:
        """The one to resume from, in µs; None if there is none."""
        found = self.store.load(CheckpointName(self.application, table, str(shard)))
        return None if found is None else found.position


def checkpoint_options(
    file: str, table: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options for a file, and for a table; it gets the one given as `place`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(checkpoint: Path | None, checkpoint_table: str | None, **values: Any) -> None:
            if checkpoint and checkpoint_table:
                raise Misuse("--checkpoint and --checkpoint-table are two places: give one")
            with told():
                at = TableName.parse(checkpoint_table) if checkpoint_table else checkpoint
            command(place=at and Place(at), **values)

        in_table = click.option("--checkpoint-table", metavar="KS.TABLE", help=table)
        in_file = click.option("--checkpoint", type=_FILE, metavar="FILE", help=file)
        return in_file(in_table(wrapped))

    return decorate

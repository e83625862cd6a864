"""The options of commands that follow logs: start, end, delivery, shard, and the checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from attrs import evolve, frozen
from click.core import ParameterSource

from cdc_reader._time import (
    BEGINNING,
    EARLIEST,
    Micros,
    SystemClock,
    check_order,
    format_timestamp,
    is_relative,
    parse_duration,
    parse_moment,
)
from cdc_reader.checkpoints import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName, CheckpointStore
from cdc_reader.cli.failure import Misuse, cli_errors
from cdc_reader.cluster import ClusterClock, Connection
from cdc_reader.config import (
    ConnectionConfig,
    DataLossMode,
    DeliveryMode,
    LateRowsMode,
    ReadConfig,
    SnapshotMode,
)
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.streams.shard import Shard

RETRY_DEADLINE = timedelta(minutes=2)
"""How long requests for checkpoints are retried, and those of a command that answers once."""
_NAMES = "start end eager late_rows data_loss confidence_window shard".split()


snapshot_option = click.option(
    "--snapshot",
    type=click.Choice([str(mode) for mode in SnapshotMode]),
    default=str(SnapshotMode.NONE),
    show_default=True,
    help="With initial, begin with the table's existing rows, then follow the log from a position "
    "before the first row was read. A checkpoint takes precedence, even an unfinished snapshot's.",
)

until_option = click.option(
    "--until",
    "end",
    metavar="TIME",
    help="Where to stop: now, a time ago or a point in time. By default the command "
    "runs until it is stopped.",
)

confidence_window_option = click.option(
    "--confidence-window",
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="How long to wait before changes count as settled: the longest a write takes "
    "to arrive, plus the difference between clocks.",
)


@frozen
class FollowOptions:
    """The options for following logs.

    `start` is in µs or BEGINNING, and `end` is in µs or None. `relative` contains --from, --until
    or both if their moments were computed from this machine's time; `corrected` computes these
    moments from the cluster's time.
    """

    start: Micros
    end: Micros | None
    read: ReadConfig
    shard: Shard
    relative: frozenset[str] = frozenset()

    def __attrs_post_init__(self) -> None:
        if self.end is not None and len(self.relative) != 1:
            check_order(self.start, self.end, "--from", "--until")

    def corrected(self, queries: Connection) -> FollowOptions:
        """Return the options with relative moments resolved by the cluster's clock."""
        if not self.relative:
            return self
        correction, start, end = ClusterClock(queries).correction(), self.start, self.end
        if "--from" in self.relative:
            start += correction
        if end is not None and "--until" in self.relative:
            end += correction
        return evolve(self, start=start, end=end, relative=frozenset())


def follow_options(
    start: str,
    late_rows: LateRowsMode | None,
    data_loss: DataLossMode,
    delivery: DeliveryMode,
    eager: str,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options for following logs to a command, which receives them as `follow`.

    `start`, `late_rows`, `data_loss` and `delivery` are the defaults; `eager` is the help text of
    --eager.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            given = {name: values.pop(name) for name in _NAMES}
            with cli_errors():
                follow = _parsed(delivery, **given)
            command(follow=follow, **values)

        for option in reversed(_options(start, late_rows, data_loss, eager)):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _options(
    start: str, late_rows: LateRowsMode | None, data_loss: DataLossMode, eager: str
) -> tuple[Callable[..., Any], ...]:
    return (
        click.option(
            "--from",
            "start",
            metavar="TIME",
            default=start,
            show_default=True,
            help="Where to begin: earliest, now, a time ago (-10m, -2h) or a point in time "
            "(ISO 8601, or ms since 1970). A checkpoint, if there is one, takes precedence.",
        ),
        until_option,
        click.option("--eager", is_flag=True, help=eager),
        click.option(
            "--late-rows",
            type=click.Choice([str(mode) for mode in LateRowsMode]),
            default=late_rows and str(late_rows),
            show_default=late_rows is not None or "report if the log has a TTL, else ignore",
            help="What to do about rows that arrive after the log was read past their write time.",
        ),
        click.option(
            "--data-loss",
            type=click.Choice([str(DataLossMode.CONTINUE), str(DataLossMode.FAIL)]),
            default=str(data_loss),
            show_default=True,
            help="What to do if changes expired, or their log was dropped, before they were read: "
            "log a warning and continue with the changes after them, or fail with status 2.",
        ),
        confidence_window_option,
        click.option(
            "--shard",
            metavar="I/N",
            default="1/1",
            show_default=True,
            help="Follow the I-th of N equal parts of each table; run one process per part.",
        ),
    )


def _parsed(
    delivery: DeliveryMode,
    *,
    start: str,
    end: str | None,
    eager: bool,
    late_rows: str | None,
    data_loss: str,
    confidence_window: str,
    shard: str,
) -> FollowOptions:
    now = SystemClock().now()
    read = ReadConfig(
        confidence_window=parse_duration(confidence_window, "--confidence-window"),
        delivery=DeliveryMode.EAGER if eager else delivery,
        late_rows=late_rows,
        data_loss=data_loss,
    )
    return FollowOptions(
        BEGINNING if start == EARLIEST else parse_moment(start, "--from", now, EARLIEST),
        None if end is None else parse_moment(end, "--until", now),
        read,
        _shard(shard),
        frozenset(name for name, at in (("--from", start), ("--until", end)) if is_relative(at)),
    )


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ConfigurationError as error:
        raise ConfigurationError("--shard", error.value, error.remedy) from error


def from_snapshot(follow: FollowOptions, said: str) -> FollowOptions:
    """Return the options without a start, because a snapshot determines it.

    Raises Misuse if --from was given; the message begins with `said`.
    """
    given = click.get_current_context().get_parameter_source("start")
    if given is not ParameterSource.DEFAULT:
        raise Misuse(
            f"{said}: the log is then followed from the time of the snapshot: leave out --from"
        )
    return evolve(follow, start=BEGINNING, relative=follow.relative - {"--from"})


@frozen
class CheckpointPlace:
    """The store of checkpoints: a file, or a table of a cluster."""

    at: Path | TableName

    def open(
        self, connection: ConnectionConfig, retry_deadline: timedelta = RETRY_DEADLINE
    ) -> SqliteCheckpoints | ScyllaCheckpoints:
        """Open the store; a checkpoint table is in the cluster of `connection`.

        Requests to the cluster are retried for up to `retry_deadline`.
        """
        if isinstance(self.at, Path):
            return SqliteCheckpoints(self.at)
        keyspace, table = self.at.keyspace, self.at.name
        return ScyllaCheckpoints(connection, keyspace, table, retry_deadline=retry_deadline)

    def __str__(self) -> str:
        return str(self.at) if isinstance(self.at, Path) else f"table {self.at}"


@frozen
class Kept:
    """The stored positions of an application."""

    store: CheckpointStore
    application: str

    def position(self, table: TableName, shard: Shard) -> Micros | None:
        """Return the position to resume from, in µs, or None if no position is stored."""
        found = self.store.load(self._name(table, shard))
        return None if found is None else found.position

    def begun(self, table: TableName, shard: Shard) -> Checkpoint | None:
        """Return the shard's checkpoint, or else the common start of all shards, if any."""
        name = self._name(table, shard)
        return self.store.load(name) or self.store.load(name.shared)

    def _name(self, table: TableName, shard: Shard) -> CheckpointName:
        return CheckpointName(self.application, table, str(shard))


def checkpoint_options(
    file: str, table: str, *, directories: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options for a checkpoint file or table, passed to the command as `place`.

    With `directories`, the path may be a directory, which `CheckpointPlace.open` cannot open.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(checkpoint: Path | None, checkpoint_table: str | None, **values: Any) -> None:
            if checkpoint and checkpoint_table:
                raise Misuse(
                    "--checkpoint and --checkpoint-table exclude each other: give one of them"
                )
            with cli_errors():
                at = _table(checkpoint_table) if checkpoint_table else checkpoint
            command(place=at and CheckpointPlace(at), **values)

        in_table = click.option("--checkpoint-table", metavar="KS.TABLE", help=table)
        path = click.Path(dir_okay=directories, path_type=Path)
        metavar = "FILE|DIR" if directories else "FILE"
        in_file = click.option("--checkpoint", type=path, metavar=metavar, help=file)
        return in_file(in_table(wrapped))

    return decorate


def _table(name: str) -> TableName:
    try:
        return TableName.parse(name)
    except ConfigurationError as error:
        raise ConfigurationError("--checkpoint-table", error.value, error.remedy) from error


def seconds(duration: timedelta) -> str:
    """Format a duration as text."""
    return f"{duration.total_seconds():g} s"


def since(position: Micros) -> str:
    """Format a position as text."""
    return "the earliest change in the log" if position <= BEGINNING else format_timestamp(position)

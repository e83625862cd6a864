"""The command `scylla-cdc status`, and its options."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.live import Live

from cdc_reader._extras import not_installed
from cdc_reader._time import Clock, SystemClock, duration_micros, format_timestamp, parse_duration
from cdc_reader.checkpoints import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import Failure, Misuse, cli_errors
from cdc_reader.cli.following import RETRY_DEADLINE, CheckpointPlace, checkpoint_options
from cdc_reader.cli.output import reader_is_gone, until_pipe_closes
from cdc_reader.cli.status.reader import SECOND, Lags, duration_text
from cdc_reader.cli.status.screen import parts_of, print_text
from cdc_reader.cli.status.state import Status, StatusSource
from cdc_reader.cluster import ClusterClock, Connection
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError, ConfigurationError, StoppedError
from cdc_reader.reading.retry import Interruption, Stop, interrupted
from cdc_reader.streams.shard import Shard

if TYPE_CHECKING:
    from cdc_reader.cli.status.report import Report

_INTERVAL = 5 * SECOND
_MOST = 2_000
"""The maximum number of lags of a reader that are kept."""


@click.command("status")
@click.argument("tables", nargs=-1, required=True, metavar="KS.TABLE...")
@checkpoint_options(
    "Show the positions kept in this file, or in the checkpointLocation of a Spark query.",
    "Show the positions kept in a table of the cluster.",
    directories=True,
)
@click.option("--application", metavar="NAME", help="Show only the positions of this application.")
@click.option("--shard", metavar="I/N", help="Show only the position of this shard.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each table.")
@click.option(
    "--max-lag",
    metavar="DURATION",
    help="Exit with status 1 if a reader shown lags by more than this, if its lag is unknown, if a "
    "shard has no position, or if no reader is shown.",
)
@click.option("--watch", is_flag=True, help="Show the status every 5 seconds, until Ctrl-C.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a report with a plot. If FILE is an earlier report, its plot is continued.",
)
@connection_options
def command(
    connection: ConnectionConfig,
    tables: tuple[str, ...],
    place: CheckpointPlace | None,
    application: str | None,
    shard: str | None,
    as_json: bool,
    max_lag: str | None,
    watch: bool,
    html: Path | None,
) -> None:
    """Show the generations of tables, and how far their logs have been read."""
    if place is None and (application or shard or max_lag):
        raise Misuse("--application, --shard and --max-lag need --checkpoint or --checkpoint-table")
    if watch and max_lag:
        raise Misuse("--max-lag is an answer for once: leave --watch out")
    lags: Lags = defaultdict(list)
    with cli_errors(), ExitStack() as stack:
        most = None if max_lag is None else _most(max_lag)
        names = list(dict.fromkeys(map(TableName.parse, tables)))
        report = None if html is None else _report(html, lags)
        config = ReadConfig(retry_deadline=timedelta(0) if watch else RETRY_DEADLINE)
        stop = Stop()
        until = Interruption(stop)
        queries = stack.enter_context(closing(Connection(connection, config).interrupted_by(until)))
        if store := interrupted(_store(place, connection, config.retry_deadline), until):
            stack.enter_context(closing(store))
        of_shard = None if shard is None else str(Shard.of(shard))
        source = StatusSource(queries, ClusterClock(queries), place, store, application, of_shard)
        live = None
        if watch and sys.stdout.isatty() and not as_json:
            live = stack.enter_context(Live(auto_refresh=False))

        def show() -> Sequence[Status]:
            statuses = [source.of(name) for name in names]
            _record(lags, statuses)
            _, *parts = (part for status in statuses for part in parts_of(status, place, lags))
            if as_json:
                click.echo("\n".join(json.dumps(status.to_dict()) for status in statuses))
            elif live is not None:
                live.update(Group(*parts), refresh=True)
            else:
                print_text(parts)
            if report is not None:
                report.write(parts)
            return statuses

        if watch:
            with until_pipe_closes(), stopped_by_signals(stop.set):
                repeat(show, queries.close, SystemClock(), stop)
        else:
            _judge(show(), most, place)


def repeat(
    show: Callable[[], object], reconnect: Callable[[], None], clock: Clock, stop: Stop
) -> None:
    """Call `show` every five seconds until `stop` is set, or until nobody reads the output.

    Raises the first error. Later errors are printed.
    """
    with suppress(StoppedError):
        show()
        while True:
            clock.sleep(_INTERVAL, stop)
            if stop.is_set() or reader_is_gone():
                return
            try:
                show()
            except StoppedError:
                return
            except CdcError as error:
                reconnect()
                click.echo(f"{format_timestamp(clock.now())}: no answer: {error}", err=True)


def _record(lags: Lags, statuses: Sequence[Status]) -> None:
    """Add the current lags. If a reader has many, every second lag of its older half goes."""
    for status in statuses:
        for reader in status.readers:
            points = lags[f"{status.table} {reader}"]
            if reader.lag is not None:
                points.append((status.at, max(0, reader.lag)))
            if len(points) > _MOST:
                points[: _MOST // 2] = points[: _MOST // 2 : 2]


def _report(file: Path, lags: Lags) -> Report:
    try:
        from cdc_reader.cli.status.report import Report
    except ModuleNotFoundError as error:
        raise Failure(not_installed("status --html", error, "cli,report")) from error
    return Report(file, lags)


def _most(max_lag: str) -> int:
    if not (found := duration_micros(parse_duration(max_lag, "--max-lag"))):
        raise ConfigurationError("--max-lag", max_lag, "give a duration above zero")
    return found


def _store(
    place: CheckpointPlace | None, connection: ConnectionConfig, patience: timedelta
) -> SqliteCheckpoints | ScyllaCheckpoints | None:
    """Open the store without creating it; None if there is none, or if it is Spark's."""
    if place is None or (isinstance(place.at, Path) and place.at.is_dir()):
        return None
    if isinstance(place.at, Path) and not place.at.exists():
        raise Misuse(
            f"--checkpoint is {str(place)!r}: no such file; give the checkpoint file of a reader, "
            "or the checkpoint folder of a Spark query"
        )
    return place.open(connection, patience)


def _judge(statuses: Sequence[Status], most: int | None, place: CheckpointPlace | None) -> None:
    """Exit with status 1 if there is a limit, and a table has no reader, or one beyond it."""
    if most is None:
        return
    found = []
    for status in statuses:
        alarms = [alarm for reader in status.readers if (alarm := reader.alarm(most))]
        if not status.readers:
            found.append(f"no position of {status.table} in {place}")
        elif alarms:
            listed = "; ".join(alarms)
            found.append(f"{status.table}: {listed}; --max-lag allows {duration_text(most)}")
    if found:
        raise Failure("; ".join(found))

"""The command `scylla-cdc status`, and its options."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path

import click
from attrs import frozen
from rich.console import Console

from cdc_reader._time import (
    BEGINNING,
    EARLIEST,
    FOREVER,
    Micros,
    SystemClock,
    duration_micros,
    parse_duration,
    parse_moment,
)
from cdc_reader.cli.connection import connection_options
from cdc_reader.cli.failure import Failure, Misuse, cli_errors
from cdc_reader.cli.following import CheckpointPlace, checkpoint_options
from cdc_reader.cli.output import reader_is_gone, until_pipe_closes
from cdc_reader.cli.status.counting import RowCounter
from cdc_reader.cli.status.history import History
from cdc_reader.cli.status.readers import duration_text
from cdc_reader.cli.status.report import Report, Reporting
from cdc_reader.cli.status.screen import JsonLines, Lines, Screen
from cdc_reader.cli.status.state import Status, StatusSource
from cdc_reader.cli.status.text import never_ran_text, show_log, show_readers
from cdc_reader.cli.status.watch import Sample, Sampler, View, Watch
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.reading.retry import Stop
from cdc_reader.streams.shard import Shard

_FOR_ONE = timedelta(minutes=2)
"""How long requests are retried, unless the status is watched."""
_INTERVAL, _LEAST_INTERVAL = timedelta(seconds=5), timedelta(seconds=1)


@click.command("status")
@click.argument("tables", nargs=-1, required=True, metavar="KS.TABLE...")
@checkpoint_options(
    "Show the positions kept in this file, or in the checkpointLocation of a Spark query.",
    "Show the positions kept in a table of the cluster.",
    directories=True,
)
@click.option("--application", metavar="NAME", help="Show only the positions of this application.")
@click.option(
    "--shard",
    metavar="I/N",
    help="Show only the position of this shard, for shards that keep theirs in separate files.",
)
@click.option(
    "--count/--no-count",
    default=True,
    help="Whether to count the streams, which means listing all of them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each table.")
@click.option(
    "--max-lag",
    metavar="DURATION",
    help="Exit with status 1 if a reader shown lags by more than this, if its lag is unknown, if a "
    "shard has no position, or if no reader is shown.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Show the status again and again, until Ctrl-C: redrawn on a terminal, as lines "
    "elsewhere. Goes on through an outage of the cluster.",
)
@click.option(
    "--interval",
    metavar="DURATION",
    help="With --watch, the time between two samples: at least 1s.  [default: 5s]",
)
@click.option("--for", "duration", metavar="DURATION", help="With --watch, how long to watch.")
@click.option(
    "--rows-since",
    metavar="TIME",
    help="With --watch or --html, also count the rows written since TIME (earliest, now, -1h, or a "
    "point in time), and late rows. Reads the log, with at most 20 requests per second.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a report with plots. If FILE is an earlier report, its plots are continued.",
)
@connection_options
def command(
    connection: ConnectionConfig,
    tables: tuple[str, ...],
    place: CheckpointPlace | None,
    application: str | None,
    shard: str | None,
    count: bool,
    as_json: bool,
    max_lag: str | None,
    watch: bool,
    interval: str | None,
    duration: str | None,
    rows_since: str | None,
    html: Path | None,
) -> None:
    """Show what the logs of tables contain, and how far they have been read.

    The command queries only the generations and the schemas of the tables. It reads the logs only
    if --rows-since is given.
    """
    _check_place(place, application, shard, max_lag)
    _check_watch(watch=watch, interval=interval, duration=duration, max_lag=max_lag)
    if rows_since is not None and not (watch or html):
        raise Misuse("--rows-since is for --watch and --html: add one of them, or leave it out")
    with cli_errors(), ExitStack() as stack:
        allowed = None if max_lag is None else _positive(max_lag, "--max-lag")
        times = _WatchTimes.of(interval, duration)
        names = list(dict.fromkeys(map(TableName.parse, tables)))
        report = None if html is None else Report(html)
        history = History() if report is None else report.history
        source = StatusSource.open(
            connection,
            place,
            application,
            None if shard is None else str(Shard.of(shard)),
            count=count,
            clock=SystemClock(),
            retry_deadline=timedelta(0) if watch else _FOR_ONE,
        )
        stack.enter_context(closing(source))
        counter = None
        if rows_since is not None:
            since = _since(rows_since, source.clock.now())
            counter = RowCounter(connection, _starts(names, history, since), source.clock)
            stack.enter_context(closing(counter))
        sampler = Sampler(source, names, history, counter)
        if watch:
            _watch(sampler, report, times, as_json=as_json)
            return
        sample = _sample(sampler, counter, report)
    _show(sample, place, as_json=as_json)
    if allowed is not None:
        _judge(sample.statuses, allowed, place)


@frozen
class _WatchTimes:
    """The time between two samples, and the total time (None: until stopped), both in µs."""

    interval: int
    duration: int | None

    @classmethod
    def of(cls, interval: str | None, duration: str | None) -> _WatchTimes:
        """Parse the options; raise ConfigurationError for an interval that is too short."""
        between = _INTERVAL if interval is None else parse_duration(interval, "--interval")
        if between < _LEAST_INTERVAL:
            remedy = "give at least 1s, to spare the cluster"
            raise ConfigurationError("--interval", interval, remedy)
        length = None if duration is None else _positive(duration, "--for")
        return cls(duration_micros(between), None if length is None else duration_micros(length))


def _check_place(
    place: CheckpointPlace | None, application: str | None, shard: str | None, max_lag: str | None
) -> None:
    uses = {"--application selects": application, "--shard selects": shard}
    for use, given in {**uses, "--max-lag checks": max_lag}.items():
        if given is not None and place is None:
            raise Misuse(
                f"{use} positions: say where they are with --checkpoint or --checkpoint-table"
            )


def _check_watch(
    *, watch: bool, interval: str | None, duration: str | None, max_lag: str | None
) -> None:
    if watch and max_lag is not None:
        raise Misuse("--max-lag is an answer for once: leave --watch out")
    for name, value in (("--interval", interval), ("--for", duration)):
        if value is not None and not watch:
            raise Misuse(f"{name} is for --watch: add it, or leave {name} out")


def _positive(text: str, option: str) -> timedelta:
    if not (found := parse_duration(text, option)):
        raise ConfigurationError(option, text, "give a duration above zero")
    return found


def _since(text: str, now: Micros) -> Micros:
    if text == EARLIEST:
        return BEGINNING
    return parse_moment(text, "--rows-since", now, EARLIEST) or BEGINNING


def _starts(
    names: Sequence[TableName], history: History, since: Micros
) -> dict[TableName, Checkpoint]:
    """Return where to count from: where the history ends, but not before `since` (µs)."""
    starts = {}
    for name in names:
        counts = history.counts.get(name)
        if counts is None or counts.end is None or counts.end < since:
            starts[name] = Checkpoint(since)
        else:
            starts[name] = Checkpoint(counts.end, late_scan_at=counts.late_scan_at)
    return starts


def _sample(sampler: Sampler, counter: RowCounter | None, report: Report | None) -> Sample:
    if counter is not None:
        counter.catch_up()
    sample = sampler.sample()
    if report is not None:
        report.write(sample)
    return sample


def _watch(sampler: Sampler, report: Report | None, times: _WatchTimes, *, as_json: bool) -> None:
    stop, clock = Stop(), SystemClock()
    end = FOREVER if times.duration is None else clock.now() + times.duration
    with until_pipe_closes(), stopped_by_signals(stop.set), _view(report, as_json) as view:
        if sampler.counter is not None:
            sampler.counter.follow()
        Watch(sampler, view, clock, stop, times.interval, end, lambda: not reader_is_gone()).run()


@contextmanager
def _view(report: Report | None, as_json: bool) -> Iterator[View]:
    with ExitStack() as stack:
        console = Console(highlight=False, markup=False)
        view: View = JsonLines() if as_json else Lines()
        if sys.stdout.isatty() and not (console.is_dumb_terminal or as_json):
            view = stack.enter_context(Screen(console))
        if report is not None:
            view = stack.enter_context(closing(Reporting(view, report)))
        yield view


def _show(sample: Sample, place: CheckpointPlace | None, *, as_json: bool) -> None:
    for number, status in enumerate(sample.statuses):
        if as_json:
            click.echo(json.dumps(status.to_dict()))
            continue
        if number:
            click.echo()
        show_log(status)
        show_readers(status, place)


def _judge(statuses: Sequence[Status], allowed: timedelta, place: CheckpointPlace | None) -> None:
    """Exit with status 1 unless each table has readers, and all shards certainly keep up."""
    most, found = duration_micros(allowed), []
    for status in statuses:
        if not status.readers:
            found.append(f"no position of {status.table} in {place}")
            continue
        alarms = [alarm for reader in status.readers if (alarm := reader.alarm(most))]
        alarms += map(never_ran_text, status.never_ran)
        if alarms:
            listed = "; ".join(alarms)
            found.append(f"{status.table}: {listed}; --max-lag allows {duration_text(most)}")
    if found:
        raise Failure("; ".join(found))

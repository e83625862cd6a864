"""Shows the samples of `status --watch`: as redrawn tables on a terminal, elsewhere as lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cdc_reader._time import Micros, format_timestamp
from cdc_reader.cli.status.history import History, trend
from cdc_reader.cli.status.readers import SECOND, Reader, duration_text
from cdc_reader.cli.status.state import Status
from cdc_reader.cli.status.watch import Sample

_RECENT = 120 * SECOND
"""A rate older than this (µs) is shown with its age."""
_SHORT = 0.25
"""Rows expire soon if less than this fraction of the log's TTL is left."""

_NEVER_RAN = "never ran"


def moment_text(at: Micros) -> str:
    """Format a time as text, to the second."""
    return format_timestamp(at // SECOND * SECOND)


class Screen:
    """A context manager that redraws tables on a terminal.

    The last tables stay on the terminal when the context ends.
    """

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._last: Sample | None = None

    def show(self, sample: Sample) -> None:
        """See `View.show`."""
        self._last = sample
        self._draw(moment_text(sample.at), sample.problems)

    def fail(self, at: Micros, problem: str) -> None:
        """See `View.fail`. The last sample stays on the screen, with its time."""
        shown = "" if self._last is None else f" (the values are of {moment_text(self._last.at)})"
        self._draw(moment_text(at), [f"{problem}{shown}"])

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.__exit__(error_type, error, traceback)

    def _draw(self, at: str, problems: Any) -> None:
        parts: list[RenderableType] = [Text.assemble((at, "bold"), "  Ctrl-C ends", style="dim")]
        parts += [Text(problem, "bold red") for problem in problems]
        if self._last is not None:
            parts += ["", _logs(self._last)]
            if any(status.readers or status.never_ran for status in self._last.statuses):
                parts += ["", _readers(self._last)]
        self._live.update(Group(*parts), refresh=True)


def _logs(sample: Sample) -> Table:
    table = Table(box=None, pad_edge=False)
    is_counted = bool(sample.history.counts)
    table.add_column("TABLE", overflow="fold")
    table.add_column("KEEPS ROWS", no_wrap=True)
    table.add_column("GENERATION SINCE", no_wrap=True)
    for heading in ("STREAMS", "OLDER", *(("ROWS/S", "LATE ROWS") if is_counted else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    for status in sample.statuses:
        since, streams, older = _generation(status)
        ttl = status.options.ttl
        cells = [str(status.table), duration_text(ttl * SECOND) if ttl else "forever"]
        cells += [since, streams, older]
        cells += [_rate(sample, status), _late(sample.history, status)] * is_counted
        table.add_row(*cells)
    return table


def _generation(status: Status) -> tuple[str, str, str]:
    """Return the start and streams of the generation in force, and the number of older ones."""
    starts = [row for row in status.generations if row.state == "in force"]
    if not starts:
        return "none yet", "-", "-"
    row = starts[-1]
    older = sum(other.operates.start < row.operates.start for other in status.generations)
    streams = "-" if row.streams is None else f"{row.streams:,}"
    return moment_text(row.operates.start), streams, str(older)


def _rate(sample: Sample, status: Status) -> str:
    """Return the rate of written rows, with its age if counting lags behind."""
    counts = sample.history.counts.get(status.table)
    if counts is None or counts.rate is None or counts.end is None:
        return "-"
    age = sample.at - counts.end
    old = f" ({duration_text(age)} ago)" if age > _RECENT else ""
    return f"{counts.rate:,.1f}{old}"


def _late(history: History, status: Status) -> str:
    counts = history.counts.get(status.table)
    return "-" if counts is None or not status.options.ttl else f"{counts.late:,}"


def _readers(sample: Sample) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("APPLICATION", overflow="fold")
    table.add_column("SHARD", no_wrap=True)
    table.add_column("TABLE", overflow="fold")
    table.add_column("LAG", justify="right", no_wrap=True)
    table.add_column("LAST MINUTE", no_wrap=True)
    table.add_column("UNREAD ROWS EXPIRE", no_wrap=True)
    for status in sample.statuses:
        for reader in status.readers:
            table.add_row(*_cells(sample.history, status, reader), style=_style(status, reader))
        for name in status.never_ran:
            cells = (name.application, name.shard, str(status.table), "-", _NEVER_RAN, "-")
            table.add_row(*cells, style="bold red")
    return table


def _cells(history: History, status: Status, reader: Reader) -> Iterator[str]:
    yield reader.name.application
    yield reader.name.shard
    yield str(status.table)
    yield "-" if reader.lag is None else duration_text(reader.lag)
    yield _state(history, status, reader)
    yield reader.expiry


def _state(history: History, status: Status, reader: Reader) -> str:
    if reader.refusal is not None:
        return "cannot resume: the table was created again"
    if reader.loss is not None:
        return "has lost rows: the log was created again"
    if reader.snapshot is not None:
        return str(reader.snapshot)
    return trend(history.readers.get((status.table, str(reader)), []))


def _style(status: Status, reader: Reader) -> str:
    if reader.refusal is not None or (reader.left is not None and reader.left < 0):
        return "bold red"
    is_short = reader.left is not None and reader.left < _SHORT * status.options.ttl * SECOND
    return "yellow" if is_short else ""


class Lines:
    """Prints a line for each log and each reader, for pipes and files."""

    def show(self, sample: Sample) -> None:
        """See `View.show`."""
        at = moment_text(sample.at)
        for problem in sample.problems:
            click.echo(f"{at}  {problem}")
        for status in sample.statuses:
            click.echo(f"{at}  {status.table}  {'  '.join(_facts(sample, status))}")
            for reader in status.readers:
                facts = "  ".join(_reader_facts(sample.history, status, reader))
                click.echo(f"{at}  {status.table}  {reader}  {facts}")
            for name in status.never_ran:
                click.echo(f"{at}  {status.table}  {name.application} ({name.shard})  {_NEVER_RAN}")
        sys.stdout.flush()

    def fail(self, at: Micros, problem: str) -> None:
        """See `View.fail`."""
        click.echo(f"{moment_text(at)}  {problem}")
        sys.stdout.flush()


def _facts(sample: Sample, status: Status) -> Iterator[str]:
    since, streams, _ = _generation(status)
    yield f"generation since {since}"
    yield f"{streams} streams"
    if status.table in sample.history.counts:
        yield f"{_rate(sample, status)} rows/s"
        yield f"{_late(sample.history, status)} late rows"


def _reader_facts(history: History, status: Status, reader: Reader) -> Iterator[str]:
    yield f"lag {'unknown' if reader.lag is None else duration_text(reader.lag)}"
    if state := _state(history, status, reader):
        yield state
    yield f"unread rows expire {reader.expiry}"


class JsonLines:
    """Prints one JSON object for each table and sample; problems go to stderr."""

    def show(self, sample: Sample) -> None:
        """See `View.show`."""
        for status in sample.statuses:
            click.echo(json.dumps(sample_dict(sample, status)))
        sys.stdout.flush()

    def fail(self, at: Micros, problem: str) -> None:
        """See `View.fail`."""
        click.echo(f"{moment_text(at)}  {problem}", err=True)


def sample_dict(sample: Sample, status: Status) -> dict[str, Any]:
    """Return a table's status as JSON values, with the time and the counted rows."""
    counts = sample.history.counts.get(status.table)
    found = {"time": format_timestamp(sample.at), **status.to_dict()}
    if counts is not None:
        found["rows_per_second"] = counts.rate
        found["late_rows"] = counts.late
    return found

"""Writes the results of `status --watch` to one self-contained HTML file with plots.

The file also contains the history as JSON, in a block that browsers do not run. The next run
with the same file therefore continues its plots.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from cdc_reader._time import Micros
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.failure import Failure, Misuse
from cdc_reader.cli.status.history import Counts, History, Point, connected
from cdc_reader.cli.status.plot import DURATION, NUMBER, Plot, Series
from cdc_reader.cli.status.readers import SECOND, Reader, duration_text
from cdc_reader.cli.status.screen import moment_text
from cdc_reader.cli.status.state import Status
from cdc_reader.cli.status.style import STYLE
from cdc_reader.cli.status.text import log_text
from cdc_reader.cli.status.watch import Sample, View

_DATA = '<script type="application/json" id="scylla-cdc-history">'
_FOUND = re.compile(re.escape(_DATA) + "(.*?)</script>", re.DOTALL)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_BETWEEN = 10 * SECOND
"""The minimum time, in µs, between two writes of the report while the watch runs."""


class Report:
    """A file with a report. Raises Misuse if the file exists and contains no history."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.history = History()
        try:
            found = _FOUND.search(file.read_text(encoding="utf-8"))
            self.history = History.of_json(found[1] if found else "")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise Misuse(
                f"--html is {str(file)!r}: it exists, and is not a report of this version; name "
                "another file, or move this one away"
            ) from error

    def write(self, sample: Sample) -> None:
        """Replace the file atomically, so that no reader sees a partial file.

        Raises Failure if the file cannot be written.
        """
        unfinished = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        try:
            unfinished.write_text(page(sample), encoding="utf-8")
            unfinished.replace(self._file)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            reason = error.strerror or error
            raise Failure(f"cannot write the report {str(self._file)!r}: {reason}") from error


class Reporting:
    """A view that also writes a report, at most every ten seconds.

    `close` writes the last sample.
    """

    def __init__(self, view: View, report: Report) -> None:
        self._view = view
        self._report = report
        self._written: Micros | None = None
        self._waiting: Sample | None = None

    def show(self, sample: Sample) -> None:
        """See `View.show`."""
        self._waiting = sample
        if self._written is None or sample.at - self._written >= _BETWEEN:
            self._written = sample.at
            self.close()
        self._view.show(sample)

    def fail(self, at: Micros, problem: str) -> None:
        """See `View.fail`."""
        self._view.fail(at, problem)

    def close(self) -> None:
        """Write the newest sample, unless it has been written."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._report.write(waiting)


def page(sample: Sample) -> str:
    """Return the report as HTML."""
    names = ", ".join(str(status.table) for status in sample.statuses)
    at = moment_text(sample.at)
    sections = "".join(_section(status, sample.history) for status in sample.statuses)
    history = sample.history.to_json().replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>CDC of {escape(names)}</title><style>{STYLE}</style></head><body><main>"
        f'<h1>CDC of {escape(names)}</h1><p>As of <time datetime="{at}">{at}</time>. All times '
        f"are in UTC.</p>{sections}</main>{_DATA}{history}</script></body></html>\n"
    )


def _section(status: Status, history: History) -> str:
    table = escape(str(status.table))
    drawn = "".join(plot.html() for plot in _plots(status, history))
    return (
        f"<section><h2>{table}</h2><p>The log {escape(log_text(status.options))}. "
        f"{_generations(status)}</p>{_readers(status)}"
        f"{drawn or '<p>Nothing has been observed yet.</p>'}</section>"
    )


def _generations(status: Status) -> str:
    current = [row for row in status.generations if row.state == "in force"]
    if not current:
        return "The cluster has announced no generation yet."
    streams = "" if current[-1].streams is None else f", with {current[-1].streams:,} streams"
    since = moment_text(current[-1].operates.start)
    return f"The generation in force began at {since}{streams}."


def _readers(status: Status) -> str:
    if not (status.readers or status.never_ran):
        return ""
    headings = ("Application", "Shard", "Position", "Lag", "Unread rows expire")
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    rows = "".join([*map(_reader, status.readers), *map(_never_ran, status.never_ran)])
    return (
        f'<div class="scrolled" role="region" aria-label="Readers of {escape(str(status.table))}" '
        f'tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _reader(reader: Reader) -> str:
    application, *cells = reader.cells()
    shard, position, lag, _marks, expiry = map(escape, cells)
    found = reader.refusal or reader.loss
    problem = f"<br>{escape(found)}" if found else ""
    return (
        f'<tr><th scope="row">{escape(application)}{problem}</th><td>{shard}</td>'
        f"<td>{position}</td><td>{lag}</td><td>{expiry}</td></tr>"
    )


def _never_ran(name: CheckpointName) -> str:
    return (
        f'<tr><th scope="row">{escape(name.application)}</th><td>{escape(name.shard)}</td>'
        "<td>never ran</td><td>-</td><td>-</td></tr>"
    )


def _plots(status: Status, history: History) -> Iterator[Plot]:
    """Yield the plots of a table, all over the same span of time."""
    readers, counts = history.of_table(status.table), history.counts.get(status.table, Counts())
    lags = [_lag_series(name, points) for name, points in readers.items() if _is_known(points)]
    times = [at for series in lags for at, _ in series.points]
    times += [at for span in counts.spans for at in (span.start, span.end)]
    if not times:
        return
    start, end = min(times), max(times)
    if lags:
        title = "Lag: the age of the oldest row that may be unread"
        yield Plot(title, DURATION, lags, start, end)
    if counts.spans:
        yield Plot("Rows per second, by write time", NUMBER, [_rates(counts)], start, end)
        if status.options.ttl:
            title = "Late rows, by when they were found"
            yield Plot(title, NUMBER, [_late_rows(counts)], start, end)


def _is_known(points: Sequence[Point]) -> bool:
    return any(point.lag is not None for point in points)


def _lag_series(name: str, points: Sequence[Point]) -> Series:
    parts = [[(p.at, p.lag) for p in part if p.lag is not None] for part in connected(points)]
    lags = [lag for part in parts for _, lag in part]
    summary = f"{duration_text(lags[-1])} at last, {duration_text(max(lags))} at most"
    lefts = [point.left for point in points if point.left is not None]
    if lefts:
        least = min(lefts)
        span = duration_text(abs(least))
        summary += f"; at least {span} to expiry" if least >= 0 else f"; rows expired {span} before"
    return Series(name, parts, summary)


def _rates(counts: Counts) -> Series:
    parts: list[list[tuple[Micros, float]]] = []
    end = None
    for span in counts.spans:
        if span.start != end:
            parts.append([])
        parts[-1] += [(span.start, span.rate), (span.end, span.rate)]
        end = span.end
    rows, most = sum(span.rows for span in counts.spans), max(span.rate for span in counts.spans)
    return Series("rows", parts, f"{rows:,} rows, at most {most:,.1f} per second")


def _late_rows(counts: Counts) -> Series:
    parts = [[(span.end, 0.0), (span.end, float(span.late))] for span in counts.spans if span.late]
    return Series("late rows", parts, f"{counts.late:,} in total")

"""Writes the status of tables, with a plot of the lags, to an HTML file that needs no network.

The file also contains the lags as JSON, in a block that browsers do not run. The next run with the
same file therefore continues its plot.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from io import BytesIO
from pathlib import Path

import click
from matplotlib.figure import Figure
from rich.table import Table
from rich.text import Text

from cdc_reader.cli.failure import Failure, Misuse
from cdc_reader.cli.status.reader import SECOND, Lags, duration_text

_DATA = '<script type="application/json" id="scylla-cdc-lags-1">'
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>ScyllaDB CDC</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,"><style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: auto; padding: 1rem }
div { overflow-x: auto } img { width: 100% } p { overflow-wrap: anywhere }
th, td { text-align: left; padding-right: 1rem; white-space: nowrap }
</style></head><body><h1>The state of CDC logs and their readers</h1>
"""


class Report:
    """A file with a report. Raises Misuse if the file exists and is not a report."""

    def __init__(self, file: Path, lags: Lags) -> None:
        self._file, self._lags = file, lags
        try:
            text = file.read_text(encoding="utf-8")
            lags.update(json.loads(text.partition(_DATA)[2].partition("</script>")[0]))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise Misuse(
                f"--html is {str(file)!r}: it exists, and is not a report of this version; name "
                "another file, or move this one away"
            ) from error

    def write(self, parts: Iterable[Text | Table]) -> None:
        """Replace the file in one step; raise Failure if it cannot be written."""
        body = "\n".join(map(_html, parts)) + _plot(self._lags)
        data = json.dumps(self._lags).replace("<", "\\u003c")
        try:
            with click.open_file(str(self._file), "w", "utf-8", atomic=True) as file:
                file.write(f"{_HEAD}{body}{_DATA}{data}</script></body></html>\n")
        except OSError as error:
            reason = error.strerror or error
            raise Failure(f"cannot write the report {str(self._file)!r}: {reason}") from error


def _html(part: Text | Table) -> str:
    if isinstance(part, Text):
        return f"<p>{escape(part.plain)}</p>"
    head = "".join(f'<th scope="col">{escape(str(column.header))}</th>' for column in part.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in zip(*(column.cells for column in part.columns), strict=True)
    )
    return f'<div tabindex="0"><table><tr>{head}</tr>{rows}</table></div>'


def _plot(lags: Lags) -> str:
    """Return a plot in which each dot is an observation of a lag, described in its `alt` text."""
    if not (known := {name: points for name, points in lags.items() if points}):
        return ""
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot(ylabel="lag")
    for name, points in known.items():
        times = [datetime.fromtimestamp(at / SECOND, UTC) for at, _ in points]
        label = f"{duration_text(points[-1][1])} at last: {name}".replace("$", r"\$")
        axes.plot(times, [lag for _, lag in points], ".", label=label)  # type: ignore[arg-type]
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda lag, _at: duration_text(round(lag)))
    legend = figure.legend(loc="outside lower left")
    described = "; ".join(text.get_text() for text in legend.get_texts())
    drawn = BytesIO()
    figure.savefig(drawn, format="svg")
    source = f"data:image/svg+xml;base64,{b64encode(drawn.getvalue()).decode()}"
    return f'<img alt="Lags over time (UTC): {escape(described)}" src="{source}">'

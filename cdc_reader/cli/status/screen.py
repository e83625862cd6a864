"""Shows the status of tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdc_reader._time import format_timestamp
from cdc_reader.cli.following import CheckpointPlace
from cdc_reader.cli.generations import generation_table
from cdc_reader.cli.status.reader import SECOND, Lags, duration_text, trend
from cdc_reader.cli.status.state import Status

_WIDEST = 120
_SHORT = 0.25
"""Rows expire soon if less than this fraction of the log's TTL is left."""


def print_text(parts: Iterable[Text | Table]) -> None:
    """Print the parts. Lines are not wrapped, so that paths stay whole."""
    console = Console(width=max(Console().width, _WIDEST), highlight=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text))


def parts_of(status: Status, place: CheckpointPlace | None, lags: Lags) -> Iterator[Text | Table]:
    """Yield what is shown of a table, after a blank line, and its readers if there is a `place`."""
    yield Text()
    yield Text(f"{status.table} at {format_timestamp(status.at)}", "bold")
    yield Text(f"{status.options}\n")
    yield generation_table(status.generations)
    if status.readers:
        yield Text()
        yield _readers(status, lags)
        for reader in status.readers:
            if reader.fault is not None:
                yield Text(f"{reader}: {reader.reason}")
    elif place is not None:
        yield Text(f"\nno position of this table in {place}")


def _readers(status: Status, lags: Lags) -> Table:
    headings = ("APPLICATION", "SHARD", "POSITION", "LAG", "UNREAD EXPIRE", "STATE")
    table = Table(*headings, box=None, pad_edge=False)
    for reader in status.readers:
        position, lag, left = reader.position, reader.lag, reader.left
        expiry = "-" if lag is None else "never"
        if left is not None:
            expiry = f"{'in' if left >= 0 else 'since'} {duration_text(abs(left))}"
        is_short = left is not None and left < _SHORT * status.options.ttl * SECOND
        is_lost = reader.fault or (left is not None and left < 0)
        table.add_row(
            Text(reader.name.application),
            reader.name.shard,
            "earliest" if position is None else format_timestamp(position // SECOND * SECOND),
            "-" if lag is None else duration_text(lag),
            expiry,
            reader.fault or str(reader.snapshot or trend(lags[f"{status.table} {reader}"])),
            style="bold red" if is_lost else "yellow" if is_short else "",
        )
    return table

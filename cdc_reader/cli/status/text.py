"""Prints the state of a log and its readers as text."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.following import CheckpointPlace
from cdc_reader.cli.generations import show
from cdc_reader.cli.status.readers import SECOND, duration_text
from cdc_reader.cli.status.state import Status
from cdc_reader.cql.schema import CdcOptions, ImageMode

_WIDEST = 120


def show_log(status: Status) -> None:
    """Print what a log contains, and its generations."""
    click.secho(str(status.table), bold=True)
    click.echo(f"its log {log_text(status.options)}\n")
    show(status.generations)


def log_text(options: CdcOptions) -> str:
    """Describe the contents of a log, in text that continues a sentence after `its log`."""
    lifetime = f"for {duration_text(options.ttl * SECOND)}" if options.ttl else "forever"
    shown = ["keys only" if options.delta_keys_only else "what was written"]
    if options.preimage is not ImageMode.OFF:
        kind = "whole rows" if options.preimage is ImageMode.FULL else "columns"
        shown.append(f"{kind} before")
    if options.postimage:
        shown.append("rows after")
    off = "" if options.enabled else "; CDC is off, so nothing is added to it"
    return f"keeps rows {lifetime} and shows {', '.join(shown)}{off}"


def never_ran_text(name: CheckpointName) -> str:
    """Return text that says what is wrong with a shard without a position, and what to do."""
    shard = f"{name.application} ({name.shard})"
    return f"{shard} has no position here: start it, or give --shard if each has its own file"


def show_readers(status: Status, place: CheckpointPlace | None) -> None:
    """Print the readers whose positions are stored in `place`."""
    if place is None:
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("APPLICATION", "SHARD", "POSITION", "LAG", "MARKS", "UNREAD ROWS EXPIRE"):
        table.add_column(heading, no_wrap=True)
    for reader in status.readers:
        table.add_row(*reader.cells())
    console = Console(width=max(Console().width, _WIDEST), highlight=False, markup=False)
    console.print()
    if status.readers:
        console.print(table)
        for reader in status.readers:
            if reader.snapshot is not None:
                console.print(f"{reader}: {reader.snapshot}", soft_wrap=True)
            if problem := reader.refusal or reader.loss:
                console.print(f"{reader}: {problem}", soft_wrap=True)
    else:  # do not wrap paths
        console.print(f"no position of this table in {place}", soft_wrap=True)
    for name in status.never_ran:
        console.print(never_ran_text(name), soft_wrap=True)

"""The command `scylla-cdc mirror`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from cdc_reader._time import duration_micros, parse_duration, parse_moment
from cdc_reader.cli.connection import Side, source_options
from cdc_reader.cli.failure import Loss, cli_errors
from cdc_reader.cli.following import confidence_window_option, since, until_option
from cdc_reader.cli.mirror.progress import Progress
from cdc_reader.config import ConnectionConfig, DataLossMode, ReadConfig, poll_interval
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.copies.keeping import SECONDS, keep_current
from cdc_reader.copies.table_copy import TableCopy, opened
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError, DataLossError, StoppedError
from cdc_reader.reader import CdcReader


@click.command("mirror")
@click.argument("source")
@click.argument("table", metavar="KS.TABLE")
@click.argument("folder")
@until_option
@confidence_window_option
@source_options
def command(
    source: ConnectionConfig, table: str, folder: str, end: str | None, confidence_window: str
) -> None:
    """Keep a copy of a table in a Delta table, until SIGINT or SIGTERM.

    SOURCE names nodes of the cluster, each as HOST or HOST:PORT, separated by commas. The first run
    makes the copy in FOLDER and fills it with the existing rows. Then the changes of the table are
    merged into the copy, and a later run continues where the last run stopped, even if it was
    killed. The position is kept beside the copy, in FOLDER.checkpoint.

    One process writes the copy, and each commit rewrites the files with rows that changed: the
    command is for tables of up to a few million rows. Use mirror in Spark for larger ones. The copy
    has a column more than the table, which says how each row was made, and when it expires.
    """
    with cli_errors():
        window = parse_duration(confidence_window, "--confidence-window")
        read = ReadConfig(confidence_window=window, data_loss=DataLossMode.FAIL)
        if end is not None:
            parse_moment(end, "--until", 0)
        side, path = Side(source, TableName.parse(table)), _folder(folder)
        with CdcReader(source, side.table, config=read) as reader:
            _mirror(reader, side, path, end)


def _mirror(reader: CdcReader, source: Side, folder: Path, end: str | None) -> None:
    reader.table.schema  # noqa: B018 - fails before anything is written if there is no such table
    window = duration_micros(reader.config.confidence_window)
    caught_up = window + 2 * poll_interval(reader.config) + int(SECONDS * 1_000_000)
    progress = Progress(source.table, caught_up)
    with opened(folder, source.table) as copy, _losses_told(copy):
        click.echo(_greeting(source, copy), err=True)
        try:
            with stopped_by_signals(reader.stop), suppress(StoppedError):
                keep_current(reader, copy, end, progress)
        finally:
            click.echo(f"stopped: {progress.report}", err=True)


def _folder(text: str) -> Path:
    """Return the path of the copy; raise ConfigurationError for one that is no local folder."""
    path = Path(text).absolute()
    if "://" in text or path.name in ("", ".."):
        raise ConfigurationError("FOLDER", text, "give the path of a local folder for the copy")
    return path


def _greeting(source: Side, copy: TableCopy) -> str:
    if copy.position is None:
        where = "now, after the rows it has"
    elif copy.position.snapshot is not None:
        where = f"{since(copy.position.position)}, after its other rows"
    else:
        where = f"{since(copy.position.position)}, where the last run stopped"
    return f"copying {source} to {copy.folder} from {where}; the position is kept in {copy.file}"


@contextmanager
def _losses_told(copy: TableCopy) -> Iterator[None]:
    """Say what to do if changes expired before they were read."""
    try:
        yield
    except DataLossError as error:
        told, _, _ = str(error).partition("; ")
        raise Loss(f"{told}; delete {copy.folder} and {copy.file} to start over") from error

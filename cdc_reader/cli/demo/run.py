"""Runs the demo: writes to a table, and at the same time reads its log as a DataFrame."""

from __future__ import annotations

import random
import secrets
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from cdc_reader._time import format_timestamp
from cdc_reader.cli.demo.orders import TABLE, Orders, Writer, schema
from cdc_reader.cluster import Connection, Query
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

_PAUSE = 0.01
"""Seconds between the shop's statements."""
_MICRO_BATCHES = 5
"""The writes stop after this many micro-batches that contain rows."""
_PATIENCE = 90.0
"""Seconds without progress after which a stream counts as stuck."""
_OPERATION = (
    "CASE `cdc$operation` WHEN 0 THEN 'before' WHEN 1 THEN 'update' WHEN 2 THEN 'insert' "
    "WHEN 3 THEN 'delete' WHEN 9 THEN 'after' ELSE CAST(`cdc$operation` AS STRING) END"
)
_COLUMNS = {
    "written": "date_format(_commit_timestamp, 'HH:mm:ss.SSS')",
    "operation": _OPERATION,
    "customer": "customer",
    "order": "number",
    "status": "status",
    "items": "items",
}
_ORDER = ("_commit_timestamp", "`cdc$batch_seq_no`")
_SHOWN = 15
"""The maximum number of rows of the log to show."""
_WIDEST = 24
"""The maximum number of characters of a cell to show."""


class DemoError(CdcError):
    """The demo cannot continue; the message is one line."""


@click.command("demo")
@click.option(
    "--contact-points",
    metavar="HOST:PORT",
    help="Hosts of a running ScyllaDB, separated by commas; by default the demo starts an "
    "embedded one. The demo creates a separate keyspace and drops it at the end.",
)
@click.option("--seed", type=int, help="Write the same orders as another run with this seed.")
def command(contact_points: str | None, seed: int | None) -> None:
    """Watch a Spark DataFrame fill from a CDC log."""
    console = Console()
    try:
        counts = _run(console, contact_points, secrets.randbelow(10**6) if seed is None else seed)
    except CdcError as error:
        raise click.ClickException(str(error)) from None
    console.print(counts.table())
    console.print(f"[bold]The counts {'match' if counts.match else 'differ'}.[/]")
    if not counts.match:
        raise click.exceptions.Exit(1)


@frozen
class Counts:
    """The numbers of statements sent, log rows counted by a plain scan, and rows read by Spark."""

    statements: int
    log: int
    batch: int
    stream: int

    @property
    def match(self) -> bool:
        return self.log == self.batch == self.stream > 0

    def table(self) -> Table:
        """Return the counts as a table to print."""
        table = Table("summary", box=SIMPLE_HEAD)
        table.add_column("count", justify="right")
        table.add_row("statements sent by the shop", f"{self.statements:,}")
        table.add_row("rows in the log, counted by a scan through the driver", f"{self.log:,}")
        table.add_row("rows read by spark.read", f"{self.batch:,}")
        table.add_row("rows read by spark.readStream", f"{self.stream:,}")
        return table


@frozen
class Shop:
    """The demo's table while it is written to, and the options that Spark needs to read its log."""

    connection: Connection
    log: TableName
    writer: Writer
    options: Mapping[str, str]

    def load(self, reader: DataFrameReader | DataStreamReader) -> DataFrame:
        """Load the log as a DataFrame."""
        return reader.format("scylla_cdc").options(**self.options).load()

    def log_rows(self) -> int:
        """Count the rows of the log without using the reader."""
        scan = f'SELECT "cdc$stream_id" FROM {self.log.cql}'  # noqa: S608 - the demo's own name
        return sum(
            batch.num_rows for batch in self.connection.batches(Query(scan, consistency="ONE"))
        )


def _run(console: Console, contact_points: str | None, seed: int) -> Counts:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scylla-cdc-")))
        with console.status("Starting Spark"):
            spark = stack.enter_context(_spark(folder))
        hosts = contact_points or stack.enter_context(_embedded())
        shop = stack.enter_context(_shop(hosts, seed))
        console.print(f"[bold]ScyllaDB[/] at {hosts}{'' if contact_points else ', embedded'}")
        console.print(f"[bold]Orders[/]   of a shop; --seed {seed} writes the same ones")
        console.print(f"[bold]Log[/]      {shop.log}\n")
        shop.writer.start()
        console.print("[bold]spark.read[/]: the log as a DataFrame, its first rows")
        with console.status("Reading"):
            rows = _rows(shop.load(spark.read))
        console.print(rows)
        _stream(console, shop, spark, folder)
        with console.status("Counting"):
            streamed = spark.read.parquet(str(folder / "rows")).count()
            batch = shop.load(spark.read).count()
            return Counts(shop.writer.written, shop.log_rows(), batch, streamed)


def _rows(frame: DataFrame) -> Table:
    """Format the first rows of the log as a table to print."""
    table = Table(box=SIMPLE_HEAD)
    for name in _COLUMNS:
        table.add_column(name, no_wrap=True)
    columns = (f"{sql} AS `{name}`" for name, sql in _COLUMNS.items())
    for row in frame.orderBy(*_ORDER).limit(_SHOWN).selectExpr(*columns).collect():
        table.add_row(*map(_shown, row))
    return table


def _shown(value: Any) -> str:
    """Format a cell so that it fits a narrow terminal. Null becomes an empty string."""
    if isinstance(value, dict):
        value = ", ".join(f"{count} {item}" for item, count in value.items())
    text = "" if value is None else str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _stream(console: Console, shop: Shop, spark: SparkSession, folder: Path) -> None:
    """Follow the log for some micro-batches, stop the writes, and read the rest."""
    query = (
        shop.load(spark.readStream)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="2 seconds")
        .start(str(folder / "rows"))
    )
    console.print("[bold]spark.readStream[/]: follows the log, one second behind the present")
    with Live(_progress(query), console=console, refresh_per_second=4) as live:
        _watch(query, live, lambda: len(_filled(query)) >= _MICRO_BATCHES)
        shop.writer.stop()
        closed = time.time_ns() // 1_000
        _watch(query, live, lambda: _position(query) > closed)
    query.stop()
    console.print()


def _watch(query: StreamingQuery, live: Live, done: Callable[[], bool]) -> None:
    """Show the stream's progress until `done` returns True."""
    deadline = time.monotonic() + _PATIENCE
    while not done():
        if (failure := query.exception()) is not None:
            raise DemoError(" ".join(str(failure).split())[-500:])
        if time.monotonic() > deadline:
            raise DemoError(f"the stream made no progress for {_PATIENCE:.0f} s; try again")
        time.sleep(0.25)
        live.update(_progress(query))


def _progress(query: StreamingQuery) -> Table:
    """Return a table of the micro-batches so far that contained rows."""
    table = Table("micro-batch", "up to", box=SIMPLE_HEAD)
    table.add_column("rows", justify="right")
    table.add_column("rows/s", justify="right")
    for batch in _filled(query):
        position = _end(batch)
        rows, speed = batch["numInputRows"], batch["processedRowsPerSecond"]
        time_of_day = format_timestamp(position)[11:23]
        table.add_row(str(batch["batchId"]), time_of_day, f"{rows:,}", f"{speed:,.0f}")
    return table


def _filled(query: StreamingQuery) -> list[Mapping[str, Any]]:
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def _position(query: StreamingQuery) -> int:
    """Return the write time, in µs, up to which the stream has read."""
    last = query.lastProgress
    return _end(last) if last else 0


def _end(progress: Mapping[str, Any]) -> int:
    """Return the write time, in µs, at which a micro-batch ends."""
    from pyspark_scylla_cdc.monitoring.progress import offset_of

    offset = offset_of(progress["sources"][0]["endOffset"])
    return 0 if offset is None else offset.position


@contextmanager
def _spark(folder: Path) -> Iterator[SparkSession]:
    try:
        from pyspark_scylla_cdc.local_session import JavaError, local_session
    except ImportError as error:
        raise DemoError(_missing(error)) from None
    try:
        spark = local_session("scylla-cdc demo", folder / "spark.log")
    except JavaError as error:
        raise DemoError(str(error)) from None
    yield spark
    spark.stop()


@contextmanager
def _embedded() -> Iterator[str]:
    try:
        from cdc_reader.testing import EmbeddedScylla
    except ImportError as error:
        raise DemoError(_missing(error)) from None
    with EmbeddedScylla(nodes=1, vnodes=4, shards=2) as server:
        yield server.contact_point


@contextmanager
def _shop(hosts: str, seed: int) -> Iterator[Shop]:
    """Create a shop in a separate keyspace, which is dropped at the end."""
    connection = Connection(ConnectionConfig(hosts, consistency="ONE"), ReadConfig())
    keyspace = f"scylla_cdc_demo_{uuid.uuid4().hex[:8]}"
    session = connection.session()
    session.execute(f"CREATE KEYSPACE {keyspace} WITH {_properties(connection)}")
    orders = Orders(keyspace, random.Random(seed))  # noqa: S311 - sample data, not a secret
    writer = Writer(session.execute, iter(orders), _PAUSE)
    options = {
        "hosts": hosts,
        "keyspace": keyspace,
        "table": TABLE,
        "consistencyLevel": "ONE",
        "confidenceWindow": "1s",
        "maxPartitions": "2",
    }
    try:
        for statement in schema(keyspace):
            session.execute(statement)
        yield Shop(connection, TableName(keyspace, TABLE).log, writer, options)
    finally:
        writer.stop()
        session.execute(f"DROP KEYSPACE {keyspace}")
        connection.close()


def _properties(connection: Connection) -> str:
    """Return keyspace properties: one replica, and vnodes even if tablets are the default."""
    replication = "replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    known = connection.rows(
        "SELECT table_name FROM system_schema.tables "
        "WHERE keyspace_name = 'system' AND table_name = 'tablets'"
    )
    return f"{replication} AND tablets = {{'enabled': false}}" if known else replication


def _missing(error: ImportError) -> str:
    return f"the demo needs {error.name}: run pip install 'scylla-cdc[cli,spark,embedded]'"

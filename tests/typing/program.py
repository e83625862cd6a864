"""A user's program that does what the how-to pages describe. It is only type-checked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cdc_reader import (
    Assigned,
    AsyncCdcConsumer,
    AsyncChanges,
    CdcConsumer,
    CdcReader,
    Change,
    ChangeFormat,
    Checkpoint,
    CollectionDelta,
    ConnectionConfig,
    ConsumerConfig,
    ConsumerEvent,
    CqlWriter,
    DataLossMode,
    Deleted,
    DeliveryMode,
    OnError,
    ReadConfig,
    Replicator,
    RowsLost,
    RowsRead,
    SnapshotBegins,
    SnapshotComplete,
    SqliteCheckpoints,
    TableName,
    WindowComplete,
    WindowHandled,
)
from cdc_reader.checkpoints import CheckpointName, CheckpointStore, ScyllaCheckpoints
from cdc_reader.errors import CdcError, DataLossError, HandlerError
from cdc_reader.metrics import LAG, MemoryMetrics, Metric, PrometheusMetrics
from cdc_reader.testing import EmbeddedScylla, Fault, ManualClock, Scylla

CLUSTER = ConnectionConfig(
    ["scylla-1.example.com:9042", "scylla-2.example.com"],
    username="reader",
    password="secret",
    consistency="LOCAL_QUORUM",
    request_timeout="30s",
)


class Printer:
    """Prints changes, and collects the changes that cannot be handled."""

    def __init__(self) -> None:
        self.letters: list[tuple[Change, Exception]] = []

    def handle(self, change: Change) -> None:
        status = change.deltas.get("status")
        match status:
            case Assigned(value):
                print("set", value, change.written_at.isoformat())
            case CollectionDelta(added=added):
                print("added", added)
            case Deleted():
                print("deleted", change.key["customer"])
            case None:
                print(change.operation.is_delete, change.to_dict())

    def bury(self, change: Change, error: Exception) -> None:
        self.letters.append((change, error))

    def tell(self, event: ConsumerEvent) -> None:
        match event:
            case WindowHandled(window=window):
                print(event.table, window.start, window.end)
            case RowsLost() | SnapshotBegins() | SnapshotComplete():
                print(event)


class OwnStore:
    """A user-defined checkpoint store, as the reference describes it."""

    def __init__(self) -> None:
        self._kept: dict[CheckpointName, Checkpoint] = {}

    def load(self, name: CheckpointName) -> Checkpoint | None:
        return self._kept.get(name)

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        self._kept[name] = checkpoint

    def close(self) -> None:
        self._kept.clear()


class OwnMetrics:
    """A user-defined recorder of metrics that prints them."""

    def add(self, metric: Metric, table: TableName, amount: float = 1) -> None:
        print(metric.name, table, amount)

    def set(self, metric: Metric, table: TableName, value: float) -> None:
        print(metric.name, table, value)


def follow() -> None:
    printer, metrics = Printer(), MemoryMetrics()
    consumer = CdcConsumer(
        CLUSTER,
        ["shop.orders", TableName("shop", "customers")],
        printer.handle,
        application="printer",
        dead_letter=printer.bury,
        start=datetime.now(UTC) - timedelta(hours=1),
        end="now",
        checkpoints=SqliteCheckpoints("printer.db"),
        config=ConsumerConfig(workers=8, lease="10s", on_error=OnError.SKIP, on_held="fail"),
        read=ReadConfig(
            confidence_window=timedelta(seconds=5),
            delivery=DeliveryMode.ORDERED,
            data_loss="fail",
            late_rows="deliver",
        ),
        shard="1/4",
        on_event=printer.tell,
        metrics=metrics,
    )
    try:
        consumer.run()
    except (DataLossError, HandlerError) as error:
        print(error, metrics[LAG, TableName.parse("shop.orders")])
    except CdcError:
        consumer.stop()


def follow_with_own_parts(handle: Printer) -> None:
    stores: list[CheckpointStore] = [OwnStore(), ScyllaCheckpoints(CLUSTER, "shop")]
    for store in stores:
        CdcConsumer(
            "scylla.example.com:9042",
            "shop.orders",
            handle.handle,
            application="printer",
            checkpoints=store,
            metrics=OwnMetrics(),
        ).run()
    CdcConsumer(
        CLUSTER, "shop.orders", handle.handle, application="other", metrics=PrometheusMetrics()
    ).run()


async def follow_in_asyncio() -> None:
    async for change in AsyncChanges(CLUSTER, "shop.orders", application="printer"):
        print(change.key, change.before, change.after)

    async def handle(change: Change) -> None:
        await asyncio.sleep(0)
        print(change)

    await AsyncCdcConsumer(CLUSTER, "shop.orders", handle, application="printer").run()


def read() -> int:
    config = ReadConfig(data_loss=DataLossMode.FAIL)
    with CdcReader(CLUSTER, "shop.orders", config=config) as reader:
        rows = 0
        for batch in reader.batches(start="-1h"):
            rows += batch.num_rows
        shape = ChangeFormat(columns=["status"], include_delta=True, range_deletes="skip")
        for batch in reader.change_batches("-1h", format=shape):
            rows += batch.num_rows
        values: list[Mapping[str, Any]] = [change.key for change in reader.changes(end="now")]
        for delivery in reader.table.follow():
            match delivery:
                case RowsRead(batch=batch):
                    rows += batch.num_rows
                case WindowComplete(checkpoint=checkpoint):
                    print(checkpoint.position)
        for change in reader.follow_changes():
            print(change.late, values)
    return rows


def replicate() -> None:
    table = TableName("shop", "orders")
    writer = CqlWriter(CLUSTER)
    replicator = Replicator(writer, {table: TableName("copy", "orders")})
    with CdcReader(CLUSTER, table) as reader:
        for change in reader.changes():
            replicator.apply(change)
    writer.close()


def test_a_write_shows_in_the_log(scylla: Scylla, keyspace: str) -> None:
    scylla.session.execute(f"INSERT INTO {keyspace}.orders (id) VALUES (1)")
    clock = ManualClock(0)
    with EmbeddedScylla(clock=clock) as server:
        with server.faults.during(Fault("unavailable", "ks.t", times=2)):
            clock.advance(1_000_000)
        print(server.contact_point)

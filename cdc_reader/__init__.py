"""Follow ScyllaDB's change data capture log from Python.

`CdcReader` reads the logs of tables as Arrow batches and as changes; `CdcConsumer` calls a
handler for each change and keeps checkpoints. Each name is imported on first use, so value types
and errors need neither Arrow nor the driver.

The names in `__all__` are public, here and in `checkpoints`, `errors`, `metrics` and `testing`;
all others are private.

For maintainers: begin with `reader` and `table_reader`. docs/reference/api.md describes the public
names, docs/explanation/design.md has a diagram of the packages, and the import contracts in
pyproject.toml say what each package may import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_reader._lazy import lazily

if TYPE_CHECKING:
    from cdc_reader._time import Clock, Micros, Moment
    from cdc_reader.changes.change import Bound, Change, RowRange
    from cdc_reader.changes.deleted_rows import deleted_rows
    from cdc_reader.changes.delta import CollectionDelta, Deleted, Delta, Set
    from cdc_reader.changes.operation import ChangeOperation
    from cdc_reader.changes.part import Part
    from cdc_reader.checkpoints import MemoryCheckpoints, ScyllaCheckpoints, SqliteCheckpoints
    from cdc_reader.cluster import CqlWriter
    from cdc_reader.config import (
        ConnectionConfig,
        DataLossMode,
        DeliveryMode,
        LateRowsMode,
        ReadConfig,
        SnapshotMode,
    )
    from cdc_reader.consumer import CdcConsumer, ConsumerConfig, OnError, OnHeld
    from cdc_reader.consumer.aio import AsyncCdcConsumer, AsyncChanges, AsyncHandler
    from cdc_reader.consumer.events import (
        ConsumerEvent,
        OnEvent,
        RowsLost,
        SnapshotBegins,
        SnapshotComplete,
        WindowHandled,
    )
    from cdc_reader.consumer.handling import DeadLetter, Handler
    from cdc_reader.cql.names import TableName
    from cdc_reader.cql.schema import (
        CdcOptions,
        Column,
        ColumnKind,
        ImageMode,
        LogSchema,
        Operation,
        TableSchema,
    )
    from cdc_reader.cql.statement import UNSET, Statement
    from cdc_reader.cql.types import CqlType
    from cdc_reader.cql.values import Duration, FrozenDict
    from cdc_reader.errors import CdcError
    from cdc_reader.metrics import MemoryMetrics, PrometheusMetrics
    from cdc_reader.reader import CdcReader
    from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
    from cdc_reader.reading.progress import Checkpoint, SnapshotProgress
    from cdc_reader.reading.snapshot import (
        RangeComplete,
        SnapshotDelivery,
        SnapshotRows,
        SnapshotShare,
    )
    from cdc_reader.replication.replicator import Expiry, Replicator, Writer
    from cdc_reader.streams.ring import TokenRange, TokenRanges
    from cdc_reader.streams.shard import Shard
    from cdc_reader.streams.stream import StreamId
    from cdc_reader.streams.task import Task
    from cdc_reader.streams.window import Window
    from cdc_reader.table_reader import TableReader
    from cdc_reader.table_snapshot import TableSnapshot

__all__ = [
    "UNSET",
    "AsyncCdcConsumer",
    "AsyncChanges",
    "AsyncHandler",
    "Bound",
    "CdcConsumer",
    "CdcError",
    "CdcOptions",
    "CdcReader",
    "Change",
    "ChangeOperation",
    "Checkpoint",
    "Clock",
    "CollectionDelta",
    "Column",
    "ColumnKind",
    "ConnectionConfig",
    "ConsumerConfig",
    "ConsumerEvent",
    "CqlType",
    "CqlWriter",
    "DataLossMode",
    "DeadLetter",
    "Deleted",
    "Delivery",
    "DeliveryMode",
    "Delta",
    "Duration",
    "Expiry",
    "FrozenDict",
    "Handler",
    "ImageMode",
    "LateRowsMode",
    "LogSchema",
    "MemoryCheckpoints",
    "MemoryMetrics",
    "Micros",
    "Moment",
    "OnError",
    "OnEvent",
    "OnHeld",
    "Operation",
    "Part",
    "PrometheusMetrics",
    "RangeComplete",
    "ReadConfig",
    "Replicator",
    "RowRange",
    "RowsLost",
    "RowsRead",
    "ScyllaCheckpoints",
    "Set",
    "Shard",
    "SnapshotBegins",
    "SnapshotComplete",
    "SnapshotDelivery",
    "SnapshotMode",
    "SnapshotProgress",
    "SnapshotRows",
    "SnapshotShare",
    "SqliteCheckpoints",
    "Statement",
    "StreamId",
    "TableName",
    "TableReader",
    "TableSchema",
    "TableSnapshot",
    "Task",
    "TokenRange",
    "TokenRanges",
    "Window",
    "WindowComplete",
    "WindowHandled",
    "Writer",
    "deleted_rows",
]

_HOMES = {
    "AsyncCdcConsumer": "cdc_reader.consumer.aio",
    "AsyncChanges": "cdc_reader.consumer.aio",
    "AsyncHandler": "cdc_reader.consumer.aio",
    "Bound": "cdc_reader.changes.change",
    "CdcConsumer": "cdc_reader.consumer",
    "CdcError": "cdc_reader.errors",
    "CdcOptions": "cdc_reader.cql.schema",
    "CdcReader": "cdc_reader.reader",
    "Change": "cdc_reader.changes.change",
    "ChangeOperation": "cdc_reader.changes.operation",
    "Checkpoint": "cdc_reader.reading.progress",
    "Clock": "cdc_reader._time",
    "CollectionDelta": "cdc_reader.changes.delta",
    "Column": "cdc_reader.cql.schema",
    "ColumnKind": "cdc_reader.cql.schema",
    "ConnectionConfig": "cdc_reader.config",
    "ConsumerConfig": "cdc_reader.consumer",
    "ConsumerEvent": "cdc_reader.consumer.events",
    "CqlType": "cdc_reader.cql.types",
    "CqlWriter": "cdc_reader.cluster",
    "DataLossMode": "cdc_reader.config",
    "DeadLetter": "cdc_reader.consumer.handling",
    "Deleted": "cdc_reader.changes.delta",
    "Delta": "cdc_reader.changes.delta",
    "Delivery": "cdc_reader.reading.delivery",
    "DeliveryMode": "cdc_reader.config",
    "Duration": "cdc_reader.cql.values",
    "Expiry": "cdc_reader.replication.replicator",
    "FrozenDict": "cdc_reader.cql.values",
    "Handler": "cdc_reader.consumer.handling",
    "ImageMode": "cdc_reader.cql.schema",
    "LateRowsMode": "cdc_reader.config",
    "LogSchema": "cdc_reader.cql.schema",
    "MemoryCheckpoints": "cdc_reader.checkpoints",
    "MemoryMetrics": "cdc_reader.metrics",
    "Micros": "cdc_reader._time",
    "Moment": "cdc_reader._time",
    "OnError": "cdc_reader.consumer",
    "OnEvent": "cdc_reader.consumer.events",
    "OnHeld": "cdc_reader.consumer",
    "Operation": "cdc_reader.cql.schema",
    "Part": "cdc_reader.changes.part",
    "PrometheusMetrics": "cdc_reader.metrics",
    "RangeComplete": "cdc_reader.reading.snapshot",
    "ReadConfig": "cdc_reader.config",
    "Replicator": "cdc_reader.replication.replicator",
    "RowRange": "cdc_reader.changes.change",
    "RowsLost": "cdc_reader.consumer.events",
    "RowsRead": "cdc_reader.reading.delivery",
    "ScyllaCheckpoints": "cdc_reader.checkpoints",
    "Set": "cdc_reader.changes.delta",
    "Shard": "cdc_reader.streams.shard",
    "SnapshotBegins": "cdc_reader.consumer.events",
    "SnapshotComplete": "cdc_reader.consumer.events",
    "SnapshotDelivery": "cdc_reader.reading.snapshot",
    "SnapshotMode": "cdc_reader.config",
    "SnapshotProgress": "cdc_reader.reading.progress",
    "SnapshotRows": "cdc_reader.reading.snapshot",
    "SnapshotShare": "cdc_reader.reading.snapshot",
    "SqliteCheckpoints": "cdc_reader.checkpoints",
    "Statement": "cdc_reader.cql.statement",
    "StreamId": "cdc_reader.streams.stream",
    "TableName": "cdc_reader.cql.names",
    "TableReader": "cdc_reader.table_reader",
    "TableSchema": "cdc_reader.cql.schema",
    "TableSnapshot": "cdc_reader.table_snapshot",
    "Task": "cdc_reader.streams.task",
    "TokenRange": "cdc_reader.streams.ring",
    "TokenRanges": "cdc_reader.streams.ring",
    "UNSET": "cdc_reader.cql.statement",
    "Window": "cdc_reader.streams.window",
    "WindowComplete": "cdc_reader.reading.delivery",
    "WindowHandled": "cdc_reader.consumer.events",
    "Writer": "cdc_reader.replication.replicator",
    "deleted_rows": "cdc_reader.changes.deleted_rows",
}

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__

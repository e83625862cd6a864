"""Follow ScyllaDB's change data capture log from Python.

`CdcReader` reads the logs of tables as Arrow batches and as changes; `CdcConsumer` calls a
handler for each change and keeps checkpoints. Each name is imported when it is used: values
and errors cost neither Arrow nor the driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_reader.changes.change import Change
    from cdc_reader.changes.delta import CollectionDelta, Deleted, Set
    from cdc_reader.changes.operation import ChangeOperation
    from cdc_reader.checkpoints import MemoryCheckpoints, ScyllaCheckpoints, SqliteCheckpoints
    from cdc_reader.cluster import CqlWriter
    from cdc_reader.config import ConnectionConfig, ReadConfig
    from cdc_reader.consumer import CdcConsumer, ConsumerConfig
    from cdc_reader.consumer.aio import AsyncCdcConsumer, AsyncChanges
    from cdc_reader.cql.names import TableName
    from cdc_reader.cql.schema import LogSchema, Operation, TableSchema
    from cdc_reader.errors import CdcError
    from cdc_reader.metrics import MemoryMetrics, PrometheusMetrics
    from cdc_reader.reader import CdcReader, TableReader
    from cdc_reader.reading.delivery import Delivery, RowsRead, WindowComplete
    from cdc_reader.reading.progress import Checkpoint
    from cdc_reader.replication.replicator import Replicator
    from cdc_reader.streams.shard import Shard
    from cdc_reader.streams.stream import StreamId
    from cdc_reader.streams.task import Task
    from cdc_reader.streams.window import Window

__all__ = [
    "AsyncCdcConsumer",
    "AsyncChanges",
    "CdcConsumer",
    "CdcError",
    "CdcReader",
    "Change",
    "ChangeOperation",
    "Checkpoint",
    "CollectionDelta",
    "ConnectionConfig",
    "ConsumerConfig",
    "CqlWriter",
    "Deleted",
    "Delivery",
    "LogSchema",
    "MemoryCheckpoints",
    "MemoryMetrics",
    "Operation",
    "PrometheusMetrics",
    "ReadConfig",
    "Replicator",
    "RowsRead",
    "ScyllaCheckpoints",
    "Set",
    "Shard",
    "SqliteCheckpoints",
    "StreamId",
    "TableName",
    "TableReader",
    "TableSchema",
    "Task",
    "Window",
    "WindowComplete",
]

_HOMES = {
    "AsyncCdcConsumer": "consumer.aio",
    "AsyncChanges": "consumer.aio",
    "CdcConsumer": "consumer",
    "CdcError": "errors",
    "CdcReader": "reader",
    "Change": "changes.change",
    "ChangeOperation": "changes.operation",
    "Checkpoint": "reading.progress",
    "CollectionDelta": "changes.delta",
    "ConnectionConfig": "config",
    "ConsumerConfig": "consumer",
    "CqlWriter": "cluster",
    "Deleted": "changes.delta",
    "Delivery": "reading.delivery",
    "LogSchema": "cql.schema",
    "MemoryCheckpoints": "checkpoints",
    "MemoryMetrics": "metrics",
    "Operation": "cql.schema",
    "PrometheusMetrics": "metrics",
    "ReadConfig": "config",
    "Replicator": "replication.replicator",
    "RowsRead": "reading.delivery",
    "ScyllaCheckpoints": "checkpoints",
    "Set": "changes.delta",
    "Shard": "streams.shard",
    "SqliteCheckpoints": "checkpoints",
    "StreamId": "streams.stream",
    "TableName": "cql.names",
    "TableReader": "reader",
    "TableSchema": "cql.schema",
    "Task": "streams.task",
    "Window": "streams.window",
    "WindowComplete": "reading.delivery",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

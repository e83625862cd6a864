"""Follow ScyllaDB's change data capture log from Python.

`CdcReader` reads the logs of tables as Arrow batches and as changes; `CdcConsumer` calls a
handler for each change and keeps checkpoints. Each name is imported when it is used: values
and errors cost neither Arrow nor the driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_reader.aio import AsyncCdcConsumer, AsyncChanges
    from cdc_reader.change import Change, ChangeOperation
    from cdc_reader.checkpoint import MemoryCheckpoints, ScyllaCheckpoints, SqliteCheckpoints
    from cdc_reader.config import ConnectionConfig, ReadConfig
    from cdc_reader.consumer import CdcConsumer, ConsumerConfig
    from cdc_reader.delivery import Delivery
    from cdc_reader.delta import CollectionDelta, Deleted, Set
    from cdc_reader.driver import CqlWriter
    from cdc_reader.errors import CdcError
    from cdc_reader.ids import StreamId, TableName
    from cdc_reader.metrics import MemoryMetrics, PrometheusMetrics
    from cdc_reader.operation import Operation
    from cdc_reader.progress import Checkpoint
    from cdc_reader.reader import CdcReader
    from cdc_reader.replicator import Replicator
    from cdc_reader.schema import LogSchema, TableSchema
    from cdc_reader.shard import Shard
    from cdc_reader.table_reader import TableReader
    from cdc_reader.task import Task
    from cdc_reader.window import Window

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
]

_HOMES = {
    "AsyncCdcConsumer": "aio",
    "AsyncChanges": "aio",
    "CdcConsumer": "consumer",
    "CdcError": "errors",
    "CdcReader": "reader",
    "Change": "change",
    "ChangeOperation": "change",
    "Checkpoint": "progress",
    "CollectionDelta": "delta",
    "ConnectionConfig": "config",
    "ConsumerConfig": "consumer",
    "CqlWriter": "driver",
    "Deleted": "delta",
    "Delivery": "delivery",
    "LogSchema": "schema",
    "MemoryCheckpoints": "checkpoint",
    "MemoryMetrics": "metrics",
    "Operation": "operation",
    "PrometheusMetrics": "metrics",
    "ReadConfig": "config",
    "Replicator": "replicator",
    "ScyllaCheckpoints": "checkpoint",
    "Set": "delta",
    "Shard": "shard",
    "SqliteCheckpoints": "checkpoint",
    "StreamId": "ids",
    "TableName": "ids",
    "TableReader": "table_reader",
    "TableSchema": "schema",
    "Task": "task",
    "Window": "window",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

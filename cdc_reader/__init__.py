"""Follow ScyllaDB's change data capture log from Python.

`CdcReader` reads the log of one table as Arrow batches. Each name is imported when it is
used: values and errors cost neither Arrow nor the driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_reader.change import Change, ChangeOperation
    from cdc_reader.config import ConnectionConfig, ReadConfig
    from cdc_reader.delivery import Delivery
    from cdc_reader.delta import CollectionDelta, Deleted, Set
    from cdc_reader.driver import CqlWriter
    from cdc_reader.errors import CdcError
    from cdc_reader.ids import StreamId, TableName
    from cdc_reader.operation import Operation
    from cdc_reader.reader import CdcReader
    from cdc_reader.replicator import Replicator
    from cdc_reader.schema import LogSchema, TableSchema
    from cdc_reader.task import Task
    from cdc_reader.window import Window

__all__ = [
    "CdcError",
    "CdcReader",
    "Change",
    "ChangeOperation",
    "CollectionDelta",
    "ConnectionConfig",
    "CqlWriter",
    "Deleted",
    "Delivery",
    "LogSchema",
    "Operation",
    "ReadConfig",
    "Replicator",
    "Set",
    "StreamId",
    "TableName",
    "TableSchema",
    "Task",
    "Window",
]

_HOMES = {
    "CdcError": "errors",
    "CdcReader": "reader",
    "Change": "change",
    "ChangeOperation": "change",
    "CollectionDelta": "delta",
    "ConnectionConfig": "config",
    "CqlWriter": "driver",
    "Deleted": "delta",
    "Delivery": "delivery",
    "LogSchema": "schema",
    "Operation": "operation",
    "ReadConfig": "config",
    "Replicator": "replicator",
    "Set": "delta",
    "StreamId": "ids",
    "TableName": "ids",
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

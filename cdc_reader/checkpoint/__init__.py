"""Stores of checkpoints: in memory, in an SQLite file, in a ScyllaDB table.

All keep the law of `cdc_reader.ports.CheckpointStore`. Each name is imported when it is used:
only the last one needs the driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_reader.checkpoint.memory import MemoryCheckpoints
    from cdc_reader.checkpoint.scylla import ScyllaCheckpoints
    from cdc_reader.checkpoint.sqlite import SqliteCheckpoints

__all__ = ["MemoryCheckpoints", "ScyllaCheckpoints", "SqliteCheckpoints"]

_HOMES = {
    "MemoryCheckpoints": "memory",
    "ScyllaCheckpoints": "scylla",
    "SqliteCheckpoints": "sqlite",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

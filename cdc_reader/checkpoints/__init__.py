"""Stores of checkpoints: in memory, in an SQLite file, in a ScyllaDB table.

All implement `cdc_reader.checkpoints.store.CheckpointStore`. Each name is imported when it is
used: only the last one needs the driver. May import `cluster` and the rooms below. Begin with
`store`; `acknowledgement` says what may be saved.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_reader.checkpoints.memory import MemoryCheckpoints
    from cdc_reader.checkpoints.scylla import ScyllaCheckpoints
    from cdc_reader.checkpoints.sqlite import SqliteCheckpoints

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

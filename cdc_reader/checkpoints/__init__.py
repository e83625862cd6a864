"""Stores of checkpoints: in memory, in an SQLite file, in a ScyllaDB table.

All implement `cdc_reader.checkpoints.store.CheckpointStore`. Each name is imported when it is used:
only the last one needs the driver. May import `cluster` and the packages below. Begin with `store`;
`acknowledgement` says what may be saved.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_reader.checkpoints.memory import MemoryCheckpoints
    from cdc_reader.checkpoints.scylla import ScyllaCheckpoints
    from cdc_reader.checkpoints.sqlite import SqliteCheckpoints
    from cdc_reader.checkpoints.store import CheckpointName, CheckpointStore, LeasingStore, Owner

__all__ = [
    "CheckpointName",
    "CheckpointStore",
    "LeasingStore",
    "MemoryCheckpoints",
    "Owner",
    "ScyllaCheckpoints",
    "SqliteCheckpoints",
]

_HOMES = {
    "CheckpointName": "cdc_reader.checkpoints.store",
    "CheckpointStore": "cdc_reader.checkpoints.store",
    "LeasingStore": "cdc_reader.checkpoints.store",
    "MemoryCheckpoints": "cdc_reader.checkpoints.memory",
    "Owner": "cdc_reader.checkpoints.store",
    "ScyllaCheckpoints": "cdc_reader.checkpoints.scylla",
    "SqliteCheckpoints": "cdc_reader.checkpoints.sqlite",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)

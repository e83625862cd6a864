"""Checkpoint stores: in memory, in an SQLite file, or in a ScyllaDB table.

To write another store, implement `CheckpointStore` or `LeasingStore`. The other names are the types
of the values that a store saves. Each name is imported on first use, because only
`ScyllaCheckpoints` needs the driver.

For maintainers: this package may import `cluster` and the packages below it. Begin with `store`;
`acknowledgement` decides what may be saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_reader._lazy import lazily

if TYPE_CHECKING:
    from cdc_reader.checkpoints.memory import MemoryCheckpoints as MemoryCheckpoints
    from cdc_reader.checkpoints.scylla import ScyllaCheckpoints as ScyllaCheckpoints
    from cdc_reader.checkpoints.sqlite import SqliteCheckpoints as SqliteCheckpoints
    from cdc_reader.checkpoints.store import CheckpointName as CheckpointName
    from cdc_reader.checkpoints.store import CheckpointStore as CheckpointStore
    from cdc_reader.checkpoints.store import LeasingStore as LeasingStore
    from cdc_reader.checkpoints.store import Owner as Owner
    from cdc_reader.reading.expiry import TtlHistory as TtlHistory
    from cdc_reader.reading.progress import Checkpoint as Checkpoint
    from cdc_reader.reading.progress import Mark as Mark
    from cdc_reader.reading.progress import RowKey as RowKey
    from cdc_reader.reading.progress import SnapshotProgress as SnapshotProgress

_HOMES = {
    "Checkpoint": "cdc_reader.reading.progress",
    "CheckpointName": "cdc_reader.checkpoints.store",
    "CheckpointStore": "cdc_reader.checkpoints.store",
    "LeasingStore": "cdc_reader.checkpoints.store",
    "Mark": "cdc_reader.reading.progress",
    "MemoryCheckpoints": "cdc_reader.checkpoints.memory",
    "Owner": "cdc_reader.checkpoints.store",
    "RowKey": "cdc_reader.reading.progress",
    "ScyllaCheckpoints": "cdc_reader.checkpoints.scylla",
    "SnapshotProgress": "cdc_reader.reading.progress",
    "SqliteCheckpoints": "cdc_reader.checkpoints.sqlite",
    "TtlHistory": "cdc_reader.reading.expiry",
}

__all__ = list(_HOMES)

__getattr__ = lazily(__name__, _HOMES)

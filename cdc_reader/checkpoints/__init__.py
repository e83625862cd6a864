"""Checkpoint stores: in memory, in an SQLite file, or in a ScyllaDB table.

To write another store, implement `CheckpointStore` or `LeasingStore`. The other names are the types
of the values that a store saves. Each name is imported on first use, because only
`ScyllaCheckpoints` needs the driver.

For maintainers: this package may import `cluster` and the packages below it. Begin with `store`;
`acknowledgement` decides what may be saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_reader._lazy import homes, lazily

if TYPE_CHECKING:
    from cdc_reader.checkpoints.memory import MemoryCheckpoints as MemoryCheckpoints
    from cdc_reader.checkpoints.scylla import ScyllaCheckpoints as ScyllaCheckpoints
    from cdc_reader.checkpoints.sqlite import SqliteCheckpoints as SqliteCheckpoints
    from cdc_reader.checkpoints.store import CheckpointName as CheckpointName
    from cdc_reader.checkpoints.store import CheckpointStore as CheckpointStore
    from cdc_reader.checkpoints.store import LeasingStore as LeasingStore
    from cdc_reader.checkpoints.store import Owner as Owner
    from cdc_reader.reading.cursor import Checkpoint as Checkpoint
    from cdc_reader.reading.cursor import KnownGenerations as KnownGenerations
    from cdc_reader.reading.cursor import LateState as LateState
    from cdc_reader.reading.cursor import Mark as Mark
    from cdc_reader.reading.cursor import RowKey as RowKey
    from cdc_reader.reading.cursor import SnapshotProgress as SnapshotProgress
    from cdc_reader.reading.expiry import TtlHistory as TtlHistory

_HOMES = homes(
    {
        "cdc_reader.checkpoints.memory": "MemoryCheckpoints",
        "cdc_reader.checkpoints.scylla": "ScyllaCheckpoints",
        "cdc_reader.checkpoints.sqlite": "SqliteCheckpoints",
        "cdc_reader.checkpoints.store": "CheckpointName CheckpointStore LeasingStore Owner",
        "cdc_reader.reading.expiry": "TtlHistory",
        "cdc_reader.reading.cursor": (
            "Checkpoint KnownGenerations LateState Mark RowKey SnapshotProgress"
        ),
    }
)

__all__ = list(_HOMES)

__getattr__ = lazily(__name__, _HOMES)

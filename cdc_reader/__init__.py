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

from cdc_reader._lazy import homes, lazily

if TYPE_CHECKING:
    from cdc_reader._time import Clock as Clock
    from cdc_reader._time import Micros as Micros
    from cdc_reader._time import Moment as Moment
    from cdc_reader.changes.change import Bound as Bound
    from cdc_reader.changes.change import Change as Change
    from cdc_reader.changes.change import RowRange as RowRange
    from cdc_reader.changes.delta import Assigned as Assigned
    from cdc_reader.changes.delta import CollectionDelta as CollectionDelta
    from cdc_reader.changes.delta import Deleted as Deleted
    from cdc_reader.changes.delta import Delta as Delta
    from cdc_reader.changes.folding.fold import fold as fold
    from cdc_reader.changes.folding.fold import needed_partitions as needed_partitions
    from cdc_reader.changes.folding.fold import row_updates as row_updates
    from cdc_reader.changes.frames.change_format import ChangeFormat as ChangeFormat
    from cdc_reader.changes.operation import ChangeOperation as ChangeOperation
    from cdc_reader.changes.part import Part as Part
    from cdc_reader.checkpoints import MemoryCheckpoints as MemoryCheckpoints
    from cdc_reader.checkpoints import ScyllaCheckpoints as ScyllaCheckpoints
    from cdc_reader.checkpoints import SqliteCheckpoints as SqliteCheckpoints
    from cdc_reader.cluster import CqlWriter as CqlWriter
    from cdc_reader.config import ConnectionConfig as ConnectionConfig
    from cdc_reader.config import DataLossMode as DataLossMode
    from cdc_reader.config import DeliveryMode as DeliveryMode
    from cdc_reader.config import LateRowsMode as LateRowsMode
    from cdc_reader.config import ReadConfig as ReadConfig
    from cdc_reader.config import SnapshotMode as SnapshotMode
    from cdc_reader.consumer import CdcConsumer as CdcConsumer
    from cdc_reader.consumer import ConsumerConfig as ConsumerConfig
    from cdc_reader.consumer import OnError as OnError
    from cdc_reader.consumer import OnHeld as OnHeld
    from cdc_reader.consumer.aio import AsyncCdcConsumer as AsyncCdcConsumer
    from cdc_reader.consumer.aio import AsyncChanges as AsyncChanges
    from cdc_reader.consumer.aio import AsyncHandler as AsyncHandler
    from cdc_reader.consumer.events import ConsumerEvent as ConsumerEvent
    from cdc_reader.consumer.events import OnEvent as OnEvent
    from cdc_reader.consumer.events import RowsLost as RowsLost
    from cdc_reader.consumer.events import SnapshotBegins as SnapshotBegins
    from cdc_reader.consumer.events import SnapshotComplete as SnapshotComplete
    from cdc_reader.consumer.events import WindowHandled as WindowHandled
    from cdc_reader.consumer.handling import DeadLetter as DeadLetter
    from cdc_reader.consumer.handling import Handler as Handler
    from cdc_reader.cql.names import TableName as TableName
    from cdc_reader.cql.schema import CdcOptions as CdcOptions
    from cdc_reader.cql.schema import Column as Column
    from cdc_reader.cql.schema import ColumnKind as ColumnKind
    from cdc_reader.cql.schema import ImageMode as ImageMode
    from cdc_reader.cql.schema import LogSchema as LogSchema
    from cdc_reader.cql.schema import Operation as Operation
    from cdc_reader.cql.schema import TableSchema as TableSchema
    from cdc_reader.cql.statement import UNSET as UNSET
    from cdc_reader.cql.statement import Statement as Statement
    from cdc_reader.cql.types import CqlType as CqlType
    from cdc_reader.cql.values import Duration as Duration
    from cdc_reader.cql.values import FrozenDict as FrozenDict
    from cdc_reader.errors import CdcError as CdcError
    from cdc_reader.metrics import MemoryMetrics as MemoryMetrics
    from cdc_reader.metrics import PrometheusMetrics as PrometheusMetrics
    from cdc_reader.reader import CdcReader as CdcReader
    from cdc_reader.reading.cursor import Checkpoint as Checkpoint
    from cdc_reader.reading.cursor import SnapshotProgress as SnapshotProgress
    from cdc_reader.reading.delivery import Delivery as Delivery
    from cdc_reader.reading.delivery import RowsRead as RowsRead
    from cdc_reader.reading.delivery import WindowComplete as WindowComplete
    from cdc_reader.reading.snapshot import RangeComplete as RangeComplete
    from cdc_reader.reading.snapshot import SnapshotDelivery as SnapshotDelivery
    from cdc_reader.reading.snapshot import SnapshotRows as SnapshotRows
    from cdc_reader.reading.snapshot import SnapshotShare as SnapshotShare
    from cdc_reader.replication.replicator import Expiry as Expiry
    from cdc_reader.replication.replicator import Replicator as Replicator
    from cdc_reader.replication.replicator import Writer as Writer
    from cdc_reader.streams.ring import TokenRange as TokenRange
    from cdc_reader.streams.ring import TokenRanges as TokenRanges
    from cdc_reader.streams.shard import Shard as Shard
    from cdc_reader.streams.stream import StreamId as StreamId
    from cdc_reader.streams.task import Task as Task
    from cdc_reader.streams.window import Window as Window
    from cdc_reader.table_reader import TableReader as TableReader
    from cdc_reader.table_snapshot import TableSnapshot as TableSnapshot

_HOMES = homes(
    {
        "cdc_reader._time": "Clock Micros Moment",
        "cdc_reader.changes.change": "Bound Change RowRange",
        "cdc_reader.changes.delta": "Assigned CollectionDelta Deleted Delta",
        "cdc_reader.changes.folding.fold": "fold needed_partitions row_updates",
        "cdc_reader.changes.frames.change_format": "ChangeFormat",
        "cdc_reader.changes.operation": "ChangeOperation",
        "cdc_reader.changes.part": "Part",
        "cdc_reader.checkpoints": "MemoryCheckpoints ScyllaCheckpoints SqliteCheckpoints",
        "cdc_reader.cluster": "CqlWriter",
        "cdc_reader.config": (
            "ConnectionConfig DataLossMode DeliveryMode LateRowsMode ReadConfig SnapshotMode"
        ),
        "cdc_reader.consumer": "CdcConsumer ConsumerConfig OnError OnHeld",
        "cdc_reader.consumer.aio": "AsyncCdcConsumer AsyncChanges AsyncHandler",
        "cdc_reader.consumer.events": (
            "ConsumerEvent OnEvent RowsLost SnapshotBegins SnapshotComplete WindowHandled"
        ),
        "cdc_reader.consumer.handling": "DeadLetter Handler",
        "cdc_reader.cql.names": "TableName",
        "cdc_reader.cql.schema": (
            "CdcOptions Column ColumnKind ImageMode LogSchema Operation TableSchema"
        ),
        "cdc_reader.cql.statement": "UNSET Statement",
        "cdc_reader.cql.types": "CqlType",
        "cdc_reader.cql.values": "Duration FrozenDict",
        "cdc_reader.errors": "CdcError",
        "cdc_reader.metrics": "MemoryMetrics PrometheusMetrics",
        "cdc_reader.reader": "CdcReader",
        "cdc_reader.reading.delivery": "Delivery RowsRead WindowComplete",
        "cdc_reader.reading.cursor": "Checkpoint SnapshotProgress",
        "cdc_reader.reading.snapshot": "RangeComplete SnapshotDelivery SnapshotRows SnapshotShare",
        "cdc_reader.replication.replicator": "Expiry Replicator Writer",
        "cdc_reader.streams.ring": "TokenRange TokenRanges",
        "cdc_reader.streams.shard": "Shard",
        "cdc_reader.streams.stream": "StreamId",
        "cdc_reader.streams.task": "Task",
        "cdc_reader.streams.window": "Window",
        "cdc_reader.table_reader": "TableReader",
        "cdc_reader.table_snapshot": "TableSnapshot",
    }
)

__all__ = list(_HOMES)

__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__

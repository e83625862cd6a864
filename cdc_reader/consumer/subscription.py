"""What a consumer follows, how, and where its progress is kept: checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Required, TypedDict

from attrs import field, frozen

from cdc_reader.checkpoint.memory import MemoryCheckpoints
from cdc_reader.clock import SystemClock
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.consumer.config import ConsumerConfig
from cdc_reader.consumer.table_progress import OnWindow
from cdc_reader.errors import ConfigurationError
from cdc_reader.ids import TableName
from cdc_reader.metrics import NoMetrics, Recorder
from cdc_reader.ports import CheckpointStore, Clock
from cdc_reader.shard import Shard
from cdc_reader.table_reader import Moment, as_micros
from cdc_reader.window import BEGINNING, FOREVER

EARLIEST, NOW = "earliest", "now"
Start = Moment | str
"""``earliest``, ``now``, or a moment: µs since 1970 or a datetime."""


class Options(TypedDict, total=False):
    """The options of every face of a consumer; see `CdcConsumer`."""

    application: Required[str]
    start: Start
    end: Moment | None
    checkpoints: CheckpointStore
    config: ConsumerConfig
    read: ReadConfig
    shard: str | Shard
    on_window: OnWindow | None
    clock: Clock
    metrics: Recorder


def _tables(names: str | Iterable[str | TableName]) -> tuple[TableName, ...]:
    listed = [names] if isinstance(names, str | TableName) else list(names)
    return tuple(TableName.parse(name) if isinstance(name, str) else name for name in listed)


def _shard(shard: str | Shard) -> Shard:
    return Shard.parse(shard) if isinstance(shard, str) else shard


def _end(moment: Moment | None) -> int:
    return FOREVER if moment is None else as_micros(moment)


@frozen(kw_only=True)
class Subscription:
    """What is to be followed; see `CdcConsumer`. Raises ConfigurationError for unfit values."""

    connection: ConnectionConfig
    tables: tuple[TableName, ...] = field(converter=_tables)
    application: str
    start: Start = EARLIEST
    end: int = field(default=None, converter=_end)
    checkpoints: CheckpointStore = field(factory=MemoryCheckpoints)
    config: ConsumerConfig = ConsumerConfig()
    read: ReadConfig = ReadConfig()
    shard: Shard = field(default=Shard(), converter=_shard)
    on_window: OnWindow | None = None
    clock: Clock = field(factory=SystemClock)
    metrics: Recorder = field(factory=NoMetrics)

    def __attrs_post_init__(self) -> None:
        if not self.application:
            raise ConfigurationError("application", "", "give a name to keep checkpoints under")
        if isinstance(self.start, str) and self.start not in (EARLIEST, NOW):
            remedy = f"give '{EARLIEST}', '{NOW}', a datetime or µs since 1970"
            raise ConfigurationError("start", self.start, remedy)

    def first_position(self) -> int:
        """Where to begin without a checkpoint, in µs since 1970."""
        if self.start == EARLIEST:
            return BEGINNING
        return self.clock.now() if isinstance(self.start, str) else as_micros(self.start)

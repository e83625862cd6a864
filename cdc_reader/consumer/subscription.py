"""What a consumer follows, how, and where its progress is kept: checked before anything runs."""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import datetime
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
End = Moment | str | None
"""``now``, or a moment; None for good."""


class Options(TypedDict, total=False):
    """The options of every face of a consumer; see `CdcConsumer`."""

    application: Required[str]
    start: Start
    end: End
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
    return shard if isinstance(shard, Shard) else Shard.parse(str(shard))


def _check(option: str, value: Start | None, words: Container[Start | None]) -> None:
    """ConfigurationError unless `value` is one of `words` or a moment."""
    if value not in words and not isinstance(value, int | datetime):
        named = f"'{EARLIEST}', '{NOW}'" if EARLIEST in words else f"'{NOW}'"
        raise ConfigurationError(option, value, f"give {named}, a datetime or µs since 1970")


@frozen(kw_only=True)
class Subscription:
    """What is to be followed; see `CdcConsumer`. Raises ConfigurationError for unfit values."""

    connection: ConnectionConfig
    tables: tuple[TableName, ...] = field(converter=_tables)
    application: str
    start: Start = EARLIEST
    end: End = None
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
        _check("start", self.start, (EARLIEST, NOW))
        _check("end", self.end, (NOW, None))

    def first_position(self) -> int:
        """Where to begin without a checkpoint, in µs since 1970."""
        return BEGINNING if self.start == EARLIEST else self._micros(self.start)

    def last_position(self) -> int:
        """Where to stop, in µs since 1970; FOREVER for good."""
        return FOREVER if self.end is None else self._micros(self.end)

    def _micros(self, moment: Start) -> int:
        return self.clock.now() if isinstance(moment, str) else as_micros(moment)

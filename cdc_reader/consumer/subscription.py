"""What a consumer follows and where it saves its progress; validated before it runs."""

from __future__ import annotations

from functools import cached_property

from attrs import field, frozen

from cdc_reader._settings import member
from cdc_reader._time import (
    EARLIEST,
    Clock,
    Micros,
    Moment,
    SystemClock,
    check_order,
    end_micros,
    is_relative,
    start_micros,
)
from cdc_reader.checkpoints.default import default_checkpoints
from cdc_reader.checkpoints.store import CheckpointStore
from cdc_reader.config import (
    ConnectionConfig,
    DataLossMode,
    ReadConfig,
    SnapshotMode,
    as_connection,
)
from cdc_reader.consumer.config import ConsumerConfig
from cdc_reader.consumer.events import OnEvent
from cdc_reader.cql.names import TableName, tables_or_patterns
from cdc_reader.errors import ConfigurationError
from cdc_reader.metrics import NoMetrics, Recorder
from cdc_reader.streams.shard import Shard

_LONGEST_NAME = 1_000
"""The longest application name, in characters; the name is part of a key of at most 64 KiB."""


def _snapshot(value: str) -> SnapshotMode:
    return member("snapshot", value, SnapshotMode)


def _config(config: ConsumerConfig | None) -> ConsumerConfig:
    return config or ConsumerConfig()


def _read(read: ReadConfig | None) -> ReadConfig:
    return read or ReadConfig()


def _clock(clock: Clock | None) -> Clock:
    return clock or SystemClock()


def _shard(shard: str | Shard | None) -> Shard:
    return Shard.of(shard)


def _metrics(metrics: Recorder | None) -> Recorder:
    return NoMetrics() if metrics is None else metrics


@frozen(kw_only=True)
class Subscription:
    """What a consumer follows; see `CdcConsumer`. Raises ConfigurationError for invalid values."""

    connection: ConnectionConfig = field(converter=as_connection)
    tables: tuple[TableName, ...] = field(converter=tables_or_patterns)
    application: str
    start: Moment
    snapshot: SnapshotMode = field(converter=_snapshot)
    end: Moment | None
    checkpoints: CheckpointStore | None
    config: ConsumerConfig = field(converter=_config)
    read: ReadConfig = field(converter=_read)
    shard: Shard = field(converter=_shard)
    on_event: OnEvent | None
    clock: Clock = field(converter=_clock)
    metrics: Recorder = field(converter=_metrics)

    def __attrs_post_init__(self) -> None:
        application = self.application
        if not application:
            remedy = "give a name to keep checkpoints under"
            raise ConfigurationError("application", application, remedy)
        if len(application) > _LONGEST_NAME:
            remedy = f"give at most {_LONGEST_NAME:,}"
            raise ConfigurationError("application", application, remedy)
        if not application.isprintable():
            remedy = "give printable characters only"
            raise ConfigurationError("application", application, remedy)
        if self.takes_new_snapshots and not self.shard.is_whole:
            remedy = (
                "shards fall behind one by one, and a snapshot has to be taken by all of them at "
                "once: give 'fail' or 'continue', or follow the table in one process"
            )
            raise ConfigurationError("data_loss", self.read.data_loss.value, remedy)
        if self.snapshot is SnapshotMode.INITIAL and self.start != EARLIEST:
            remedy = "the log is followed from the time of the snapshot: leave out start"
            raise ConfigurationError("snapshot", self.snapshot.value, remedy)
        self._check_bounds(self.clock.now())

    def _check_bounds(self, now: Micros) -> None:
        """Raise ConfigurationError for a start or an end that cannot be used.

        Relative moments are resolved in each run, by the cluster's clock, so the order of a
        relative and a fixed moment is not checked here. A start is ignored if there is a
        checkpoint.
        """
        start_micros(self.start, now), self.last_position(now)
        if is_relative(self.end) == is_relative(self.start):
            self.first_position(now)

    @property
    def patterns(self) -> tuple[TableName, ...]:
        """The patterns among `tables`."""
        return tuple(name for name in self.tables if name.is_pattern)

    @property
    def named(self) -> tuple[TableName, ...]:
        """The others, which are names of tables."""
        return tuple(name for name in self.tables if not name.is_pattern)

    @cached_property
    def store(self) -> CheckpointStore:
        """`checkpoints`, or else the default store, which each run closes."""
        if self.checkpoints is not None:
            return self.checkpoints
        return default_checkpoints(self.application)

    @property
    def takes_new_snapshots(self) -> bool:
        """True if rows that expire before they are read cause a new snapshot of the table."""
        return self.read.data_loss is DataLossMode.RESNAPSHOT

    def __str__(self) -> str:
        """Describe the subscription without secrets: application, tables, hosts and shard."""
        tables = ", ".join(map(str, self.tables))
        shard = "" if self.shard.is_whole else f", shard {self.shard}"
        return f"{self.application!r} of {tables} at {self.connection.hosts}{shard}"

    def first_position(self, now: Micros) -> Micros:
        """Return the position at which a run without a checkpoint begins, in µs since 1970.

        Raises ConfigurationError if this position is after the end.
        """
        start = start_micros(self.start, now)
        check_order(start, self.last_position(now))
        return start

    def last_position(self, now: Micros) -> Micros:
        """Return where a run that starts at `now` ends, in µs; FOREVER if it has no end."""
        return end_micros(self.end, now)

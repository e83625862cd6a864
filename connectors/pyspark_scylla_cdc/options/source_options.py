"""The validated options of one query, and the values derived from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from attrs import evolve, field, frozen

from cdc_reader._time import (
    FOREVER,
    Micros,
    SystemClock,
    check_order,
    duration_micros,
    is_relative,
)
from cdc_reader.changes.frames.change_format import ChangeFormat
from cdc_reader.config import ConnectionConfig, DataLossMode, LateRowsMode, ReadConfig, SnapshotMode
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import TableSchema
from cdc_reader.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    ConnectionFailedError,
)
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.offset import Offset
from pyspark_scylla_cdc.options.late_rows import LateRowsChoice
from pyspark_scylla_cdc.options.table import (
    SchemaMode,
    parse_options,
)
from pyspark_scylla_cdc.options.words import (
    CONNECTION_OPTIONS,
    READ_OPTIONS,
    in_option_words,
    in_words,
)

LONGEST_ANSWER = timedelta(seconds=8)
"""The longest time a page may take, so that arrival times are known to within `DOUBT`."""


@frozen
class SourceOptions:
    """The validated options of one query.

    The object is pickled and sent to executors. It contains the `password` if the password was
    given as an option, but not if the password is in a file.
    """

    table: TableName
    format: ChangeFormat
    partition_key: str | None
    """As JSON; validated against the table's schema later."""
    schema_mode: SchemaMode
    starting: Micros
    """µs since 1970, inclusive; BEGINNING for the earliest, FOREVER for the latest."""
    starting_offset: Offset | None
    """The offset from which `starting` was taken."""
    starting_option: str
    """The option from which `starting` was taken."""
    ending: Micros | None
    """µs since 1970, exclusive."""
    relative: frozenset[str]
    """The options with relative times, which refer to this machine's clock until `corrected`."""
    snapshot: bool
    """Whether the base table is read first."""
    data_loss: DataLossMode
    late_rows: LateRowsMode | None
    """None if the log's TTL decides."""
    rereads_late_rows: bool
    """Whether late rows become a delete of their partition, and then the rows that it has now."""
    late_horizon: timedelta
    max_window: timedelta | None
    max_rows: int | None
    max_bytes: int | None
    max_partitions: int
    min_partitions: int
    read: ReadConfig
    password_file: Path | None
    _connection: Mapping[str, Any] = field(repr=False, alias="connection")

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Parse the options that Spark passes.

        Raises ConfigurationError, which names an option, and CheckpointError for an offset of
        another table.
        """
        values = parse_options(given)
        password_file = values["passwordFile"]
        starting_option = _starting_option(values, given)
        starting: Micros | Offset = values[starting_option]
        try:
            options = cls(
                table=_table(values),
                format=_format(values),
                partition_key=values["partitionKey"],
                schema_mode=values["schemaMode"],
                starting=starting.position if isinstance(starting, Offset) else starting,
                starting_offset=starting if isinstance(starting, Offset) else None,
                starting_option=starting_option,
                ending=values["endingTimestamp"],
                relative=_relative(given),
                snapshot=_snapshot(values, given),
                data_loss=_data_loss(values),
                late_rows=_late_rows(values),
                rereads_late_rows=values["lateRows"] is LateRowsChoice.REREAD,
                late_horizon=values["lateHorizon"],
                max_window=values["maxWindowPerTrigger"],
                max_rows=values["maxRowsPerTrigger"],
                max_bytes=values["maxBytesPerTrigger"],
                max_partitions=values["maxPartitions"],
                min_partitions=values["minPartitions"] or 1,
                read=ReadConfig(**_settings(values, READ_OPTIONS)),
                password_file=None if password_file is None else Path(password_file),
                connection=_connection_arguments(values),
            )
            options.connection()
        except ConfigurationError as error:
            raise in_option_words(error) from None
        options._check_window()
        options.check_start()
        options._check_partitions()
        return options

    @property
    def limits(self) -> list[str]:
        """The names of the options that limit micro-batches."""
        given = {
            "maxWindowPerTrigger": self.max_window is not None,
            "maxRowsPerTrigger": self.max_rows is not None,
            "maxBytesPerTrigger": self.max_bytes is not None,
        }
        return [name for name, is_given in given.items() if is_given]

    @property
    def of_streams(self) -> list[str]:
        """The names of the options given that have an effect on streams only."""
        late = self.late_rows is LateRowsMode.DELIVER
        return [
            *self.limits,
            *(["lateRows"] if late else []),
            *(["schemaMode"] if self.schema_mode is not SchemaMode.KEEP else []),
        ]

    @property
    def confidence(self) -> int:
        """The confidence window, in µs."""
        return duration_micros(self.read.confidence_window)

    @property
    def takes_new_snapshots(self) -> bool:
        """True if a stream takes a new snapshot when rows have expired before they were read."""
        return self.data_loss is DataLossMode.RESNAPSHOT

    @contextmanager
    def as_option_errors(self) -> Iterator[None]:
        """Rephrase connection errors with the names of the options that cause them."""
        try:
            yield
        except ConfigurationError as error:
            raise in_option_words(error) from None
        except ConnectionFailedError as error:
            hosts = self._connection["contact_points"]
            found, remedy = f"hosts is {hosts!r}: {error.found}", in_words(error.remedy)
            raise ConnectionFailedError(found, remedy) from None
        except AuthenticationFailedError as error:
            username = self._connection["username"]
            raise AuthenticationFailedError(f"username is {username!r}: {error}") from None

    def connection(self) -> ConnectionConfig:
        """Return the connection's configuration.

        If there is a password file, it is read now, on this machine.
        """
        if self.password_file is None:
            return ConnectionConfig(**self._connection)
        if self._connection["password"] is not None:
            remedy = "give password or passwordFile, not both"
            raise ConfigurationError("passwordFile", str(self.password_file), remedy)
        return ConnectionConfig(**{**self._connection, "password": self._read_password()})

    def corrected(self, correction: int) -> SourceOptions:
        """Return the options with relative times moved `correction` µs later.

        `correction` is how far the cluster's clock is ahead of this machine's clock, which resolved
        the relative times when the options were parsed.
        """
        ending = self.ending
        if ending is not None and "endingTimestamp" in self.relative:
            ending += correction
        starting = self.starting
        if "startingTimestamp" in self.relative:
            starting += correction
        return evolve(self, starting=starting, ending=ending)

    def window(self, now: Micros) -> Window:
        """Return the window of write times that the options select, in µs.

        A start of ``latest`` becomes `now`. Raises ConfigurationError if the start is after the
        end.
        """
        start = now if self.starting == FOREVER else self.starting
        window = Window(start, FOREVER if self.ending is None else self.ending)
        check_order(window.start, window.end, self.starting_option, "endingTimestamp")
        return window

    def ttls(self, base: TableSchema, now: Micros) -> TtlHistory:
        """Return the TTL history of the table's log, as known at `now` (µs)."""
        if self.starting_offset is None:
            return TtlHistory().updated(base, now, self.starting)
        return self.starting_offset.ttls_at(base, now)

    def check_start(self, table_id: UUID | None = None) -> None:
        """Raise CheckpointError if no query can start at startingOffsets.

        The id of the table is compared with the offset's if it is given.
        """
        if self.starting_offset is not None:
            self.starting_offset.check_table(self.table, table_id, "startingOffsets")
            self.starting_offset.check_complete("startingOffsets")

    def _check_window(self) -> None:
        """Raise ConfigurationError if the window begins after its end.

        A relative and a fixed moment are compared later, by the cluster's clock.
        """
        is_start_relative = self.starting == FOREVER or "startingTimestamp" in self.relative
        if is_start_relative == ("endingTimestamp" in self.relative):
            self.window(SystemClock().now())  # the order does not depend on the clock

    def _read_password(self) -> str:
        path = str(self.password_file)
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            remedy = f"it cannot be read ({reason}); give a file that is on this machine"
            raise ConfigurationError("passwordFile", path, remedy) from None
        if not lines:
            raise ConfigurationError("passwordFile", path, "put the password in its first line")
        return lines[0]

    def _check_partitions(self) -> None:
        if self.min_partitions > self.max_partitions:
            remedy = f"give no more than maxPartitions, which is {self.max_partitions}"
            raise ConfigurationError("minPartitions", self.min_partitions, remedy)


def _table(values: Mapping[str, Any]) -> TableName:
    """Return the table named by `path`, or by `keyspace` and `table`.

    Raises ConfigurationError if `path` is given and one of the others differs from it.
    """
    path: TableName | None = values["path"]
    parts: dict[str, str | None] = {name: values[name] for name in ("keyspace", "table")}
    if path is not None:
        for name, named in (("keyspace", path.keyspace), ("table", path.name)):
            if parts[name] not in (None, named):
                remedy = f"path is {str(path)!r} and names another {name}: leave one of them out"
                raise ConfigurationError(name, parts[name], remedy)
        return path
    for name, given in parts.items():
        if not given:
            remedy = f"give {name}, that of the base table, or both by load('keyspace.table')"
            raise ConfigurationError(name, given, remedy)
    return TableName(values["keyspace"], values["table"])


def _format(values: Mapping[str, Any]) -> ChangeFormat:
    return ChangeFormat(
        name=values["format"],
        columns=values["columns"],
        include_delta=values["includeDelta"],
        range_deletes=values["rangeDeletes"],
        preimages=values["preimages"],
        decimal_type=values["decimalType"],
        on_bad_record=values["onBadRecord"],
    )


def _late_rows(values: Mapping[str, Any]) -> LateRowsMode | None:
    """Return how the driver treats late rows; raise ConfigurationError for other formats."""
    given: LateRowsChoice | None = values["lateRows"]
    is_folded = values["format"] == "changes" and values["includeDelta"]
    if given is LateRowsChoice.REREAD and not (is_folded and values["rangeDeletes"] == "emit"):
        remedy = "give format 'changes' with includeDelta 'true' and rangeDeletes 'emit'"
        raise ConfigurationError("lateRows", str(given), remedy)
    return None if given is None else given.mode


def _starting_option(values: Mapping[str, Any], given: Mapping[str, str]) -> str:
    """Return the option that sets the start; raise ConfigurationError if both do."""
    if values["startingOffsets"] is None:
        return "startingTimestamp"
    if (text := _given(given, "startingTimestamp")) is not None:
        remedy = "give startingTimestamp or startingOffsets, not both"
        raise ConfigurationError("startingTimestamp", text, remedy)
    return "startingOffsets"


def _snapshot(values: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    if values["snapshot"] is SnapshotMode.NONE:
        return False
    _check_snapshot(values, "snapshot", SnapshotMode.INITIAL.value)
    for name in ("startingTimestamp", "startingOffsets"):
        if (text := _given(given, name)) is not None:
            remedy = "a snapshot reads the whole table as it is now: leave it out"
            raise ConfigurationError(name, text, remedy)
    return True


def _given(given: Mapping[str, str], option: str) -> str | None:
    """Return the text that Spark passes for an option, whose name may be in any case."""
    return {name.lower(): text for name, text in given.items()}.get(option.lower())


def _data_loss(values: Mapping[str, Any]) -> DataLossMode:
    """Return the mode; raise ConfigurationError if the format or the key forbids it."""
    mode: DataLossMode = values["onDataLoss"]
    if mode is DataLossMode.RESNAPSHOT:
        _check_snapshot(values, "onDataLoss", mode.value)
    return mode


def _check_snapshot(values: Mapping[str, Any], option: str, value: str) -> None:
    """Raise ConfigurationError if the query cannot include a snapshot of the table."""
    if values["format"] == "log":
        remedy = (
            "a snapshot has rows of the table, not of its log: give format 'changes' or 'envelope'"
        )
        raise ConfigurationError(option, value, remedy)
    if values["partitionKey"] is not None:
        remedy = "a snapshot reads the whole table as it is now: leave it out"
        raise ConfigurationError("partitionKey", values["partitionKey"], remedy)


def _relative(given: Mapping[str, str]) -> frozenset[str]:
    moments = ("startingTimestamp", "endingTimestamp")
    return frozenset(name for name in moments if is_relative(_given(given, name)))


def _connection_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    settings = _settings(values, CONNECTION_OPTIONS)
    return {**settings, "request_timeout": _request_timeout(values)}


def _settings(values: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of these options, by the settings of `cdc_reader` that they set."""
    return {setting: values[option] for setting, option in options.items()}


def _request_timeout(values: Mapping[str, Any]) -> timedelta:
    timeout: timedelta = values["requestTimeout"]
    is_bounded = _late_rows(values) is LateRowsMode.DELIVER
    return min(timeout, LONGEST_ANSWER) if is_bounded else timeout

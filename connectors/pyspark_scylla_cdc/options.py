"""The options of one query, checked, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import field, frozen

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    ConnectionFailedError,
)
from cdc_reader.ids import TableName
from cdc_reader.strategy import Strategy
from cdc_reader.timestamp import format_timestamp
from cdc_reader.window import BEGINNING, FOREVER, Window
from pyspark_scylla_cdc.formats.asked import Asked, FormatName
from pyspark_scylla_cdc.option_table import SchemaMode, Snapshot, parse_options

_OPTION_OF_FIELD = {
    "contact_points": "hosts",
    "tls_ca": "ssl.caFile",
    "tls_cert": "ssl.certFile",
    "tls_key": "ssl.keyFile",
    "local_dc": "localDC",
    "consistency": "consistencyLevel",
    "fetch_size": "fetchSize",
    "connect_timeout": "connectTimeout",
    "request_timeout": "requestTimeout",
}
_FIELD = re.compile(rf"\b({'|'.join(_OPTION_OF_FIELD)})\b")


@frozen
class SourceOptions:
    """The options of one query, checked. Pickles of it go to executors, with a `password`
    if that was given as an option, without if it stands in a file.
    """

    table: TableName
    asked: Asked
    columns: tuple[str, ...] | None
    partition_key: str | None
    """As JSON; the table's schema tells whether it is one."""
    decimal_type: pa.DataType
    schema_mode: SchemaMode
    starting: int
    """µs since 1970, inclusive; BEGINNING for the earliest, FOREVER for the latest."""
    ending: int | None
    """µs since 1970, exclusive."""
    snapshot: bool
    """Whether the base table is read first."""
    fail_on_data_loss: bool
    confidence_window: timedelta
    max_window: timedelta | None
    max_rows: int | None
    min_advance: timedelta
    strategy: Strategy
    max_partitions: int
    min_partitions: int
    read: ReadConfig
    password_file: Path | None
    _connection: Mapping[str, Any] = field(repr=False, alias="connection")

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """The options that Spark hands over; raises ConfigurationError, naming one of them."""
        values = parse_options(given)
        password_file = values["passwordFile"]
        try:
            options = cls(
                table=TableName(values["keyspace"], values["table"]),
                asked=_asked(values),
                columns=values["columns"],
                partition_key=values["partitionKey"],
                decimal_type=values["decimalType"],
                schema_mode=values["schemaMode"],
                starting=_starting(values, given),
                ending=_ending(values),
                snapshot=_snapshot(values, given),
                fail_on_data_loss=values["failOnDataLoss"],
                confidence_window=values["confidenceWindow"],
                max_window=values["maxWindowPerTrigger"],
                max_rows=values["maxRowsPerTrigger"],
                min_advance=values["minAdvance"],
                strategy=values["readStrategy"],
                max_partitions=values["maxPartitions"],
                min_partitions=values["minPartitions"] or 1,
                read=ReadConfig(
                    fetch_size=values["fetchSize"],
                    confidence_window=values["confidenceWindow"],
                    retry_deadline=values["retryTimeout"],
                ),
                password_file=None if password_file is None else Path(password_file),
                connection=_connection_arguments(values),
            )
            options.connection()
        except ConfigurationError as error:
            raise _in_options_words(error) from None
        options._check_order()
        options._check_partitions()
        return options

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Errors of reaching the cluster, told in the names of the options they hang on."""
        try:
            yield
        except ConfigurationError as error:
            raise _in_options_words(error) from None
        except ConnectionFailedError as error:
            hosts = self._connection["contact_points"]
            raise ConnectionFailedError(f"hosts is {hosts!r}: {error}") from None
        except AuthenticationFailedError as error:
            username = self._connection["username"]
            raise AuthenticationFailedError(f"username is {username!r}: {error}") from None

    def connection(self) -> ConnectionConfig:
        """How to reach the cluster; the password file is read now, on this machine."""
        if self.password_file is None:
            return ConnectionConfig(**self._connection)
        if self._connection["password"] is not None:
            remedy = "give password or passwordFile, not both"
            raise ConfigurationError("passwordFile", str(self.password_file), remedy)
        return ConnectionConfig(**{**self._connection, "password": self._read_password()})

    def window(self, now: int) -> Window:
        """What is to be read at most, with the latest start resolved; µs."""
        start = now if self.starting == FOREVER else self.starting
        return Window(start, FOREVER if self.ending is None else self.ending)

    def _read_password(self) -> str:
        path = str(self.password_file)
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            remedy = f"it cannot be read ({reason}); give a file that this machine has"
            raise ConfigurationError("passwordFile", path, remedy) from None
        if not lines:
            raise ConfigurationError("passwordFile", path, "put the password in its first line")
        return lines[0]

    def _check_order(self) -> None:
        if self.ending is None or self.starting in (BEGINNING, FOREVER):
            return
        if self.starting > self.ending:
            remedy = (
                f"it is after endingTimestamp, {format_timestamp(self.ending)}: "
                "give an earlier start or a later end"
            )
            raise ConfigurationError("startingTimestamp", format_timestamp(self.starting), remedy)

    def _check_partitions(self) -> None:
        if self.min_partitions > self.max_partitions:
            remedy = f"give no more than maxPartitions, which is {self.max_partitions}"
            raise ConfigurationError("minPartitions", self.min_partitions, remedy)


def _asked(values: Mapping[str, Any]) -> Asked:
    if values["includeDelta"] and values["format"] is FormatName.LOG:
        remedy = "rows of the log tell what they changed: leave it out, or give format 'changes'"
        raise ConfigurationError("includeDelta", "true", remedy)
    return Asked(
        format=values["format"],
        include_delta=values["includeDelta"],
        range_deletes=values["rangeDeletes"],
        preimages=values["preimages"],
    )


def _starting(values: Mapping[str, Any], given: Mapping[str, str]) -> int:
    if values["startingOffsets"] is None:
        start = int(values["startingTimestamp"])
        is_moment = start not in (BEGINNING, FOREVER)
        return start + 1 if is_moment and not values["startingBoundInclusive"] else start
    lowered = {name.lower(): text for name, text in given.items()}
    if (text := lowered.get("startingtimestamp")) is not None:
        remedy = "give startingTimestamp or startingOffsets, not both"
        raise ConfigurationError("startingTimestamp", text, remedy)
    return int(values["startingOffsets"])


def _snapshot(values: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    if values["snapshot"] is Snapshot.NONE:
        return False
    if values["format"] is FormatName.LOG:
        remedy = "a row of the table is no row of its log: give format 'changes' or 'envelope'"
        raise ConfigurationError("snapshot", Snapshot.INITIAL.value, remedy)
    for name in ("startingTimestamp", "startingOffsets", "partitionKey"):
        if name.lower() in {key.lower() for key in given}:
            remedy = "a snapshot is of the whole table, and of now: leave it out"
            raise ConfigurationError(name, str(values[name]), remedy)
    return True


def _ending(values: Mapping[str, Any]) -> int | None:
    end: int | None = values["endingTimestamp"]
    return end + 1 if end is not None and values["endingBoundInclusive"] else end


def _in_options_words(error: ConfigurationError) -> ConfigurationError:
    """The error with this package's names for the settings of the reader."""
    option = _OPTION_OF_FIELD.get(error.option, error.option)
    remedy = _FIELD.sub(lambda name: _OPTION_OF_FIELD[name.group()], error.remedy)
    return ConfigurationError(option, error.value, remedy)


def _connection_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "contact_points": values["hosts"],
        "port": values["port"],
        "username": values["username"],
        "password": values["password"],
        "tls_ca": values["ssl.caFile"],
        "tls_cert": values["ssl.certFile"],
        "tls_key": values["ssl.keyFile"],
        "local_dc": values["localDC"],
        "consistency": values["consistencyLevel"],
        "connect_timeout": values["connectTimeout"],
        "request_timeout": values["requestTimeout"],
    }

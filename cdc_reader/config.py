"""Settings of connections and reads; each value is checked when it is set."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Any

from attrs import Attribute, field, frozen
from attrs.validators import optional

from cdc_reader._settings import (
    FLAG,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_NUMBER,
    TEXT,
    TEXT_REMEDY,
    between,
    duration,
    is_text,
    member,
    path,
    require,
)
from cdc_reader._time import duration_micros
from cdc_reader.errors import ConfigurationError

CONSISTENCIES = ("ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "LOCAL_ONE")
DEFAULT_PORT = 9042
_HOST = re.compile(
    r"(?!.{254})[\w-]{1,63}(\.[\w-]{1,63})*\.?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[\w.-]+)?"
)
"""A name with labels of at most 63 characters, or an IPv6 address; the resolver rejects others."""
_PORT = re.compile(
    r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
)
"""A port number: 1 to 65535."""


def _contact_points(value: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Convert comma-separated text or a sequence to a tuple without empty entries."""
    points = value.split(",") if isinstance(value, str) else value
    return tuple(point.strip() for point in points if point.strip())


def _upper_case(value: str) -> str:
    return value.upper()


def _password(_: object, attribute: Attribute[Any], value: str | None) -> None:
    if value is not None and not is_text(value):
        raise ConfigurationError(attribute.name, "(not shown)", TEXT_REMEDY)


@frozen
class ConnectionConfig:
    """Settings of a connection to the cluster.

    `contact_points` are ``host`` or ``host:port`` (IPv6 as ``[::1]:9142``), as a sequence or
    separated by commas; the default port is 9042. No `repr` contains the password.

    `tls` turns TLS on, and so does `tls_ca`, a PEM file of CA certificates. A node's certificate
    must be signed by one of these CAs, or by one of the system's trusted CAs if no file is given.
    Unless `tls_verify_hostname` is False, the certificate must also contain the contact point's
    name, or the address that the client connects to. `tls_cert` and `tls_key`, also PEM files,
    authenticate the client.

    Queries are sent only to nodes of the datacenter `local_dc`, by default the datacenter of the
    contact point that is reached first. `consistency` is the consistency level of log reads. If
    writes use QUORUM, reads at a lower level may miss rows. `request_timeout` limits each attempt
    to read a page.

    Raises ConfigurationError for values that cannot be used.
    """

    contact_points: tuple[str, ...] = field(
        converter=_contact_points,
        validator=require(bool, "give at least one host, as 'host' or 'host:port'"),
    )
    username: str | None = field(default=None, validator=TEXT)
    password: str | None = field(default=None, repr=False, validator=_password)
    tls_ca: str | None = field(default=None, converter=path, validator=TEXT)
    tls_cert: str | None = field(default=None, converter=path, validator=TEXT)
    tls_key: str | None = field(default=None, repr=False, converter=path, validator=TEXT)
    local_dc: str | None = field(default=None, validator=TEXT)
    consistency: str = field(
        default="QUORUM",
        converter=_upper_case,
        validator=require(CONSISTENCIES.__contains__, f"give one of {', '.join(CONSISTENCIES)}"),
    )
    request_timeout: timedelta = field(
        default=timedelta(seconds=20), converter=duration, validator=POSITIVE
    )
    tls: bool | None = field(default=None, validator=optional(FLAG))
    tls_verify_hostname: bool = field(default=True, validator=FLAG)

    def __attrs_post_init__(self) -> None:
        self.endpoints()
        if (self.username is None) != (self.password is None):
            missing = "password" if self.password is None else "username"
            raise ConfigurationError(missing, None, "give username and password, or neither")
        self._check_tls()

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.tls_ca is not None if self.tls is None else self.tls

    def _check_tls(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise ConfigurationError(missing, None, "give tls_cert and tls_key, or neither")
        if self.tls is None and self.tls_cert and not self.tls_ca:
            remedy = (
                "give the authority that signs the servers' certificates, or turn tls on to "
                "trust those of the system"
            )
            raise ConfigurationError("tls_ca", None, remedy)
        given = "tls_ca" if self.tls_ca else "tls_cert" if self.tls_cert else None
        if given and not self.uses_tls:
            raise ConfigurationError("tls", self.tls, f"leave {given} out, or turn tls on")

    @property
    def hosts(self) -> str:
        """The contact points as text, each with its port."""
        return ", ".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in self.endpoints()
        )

    def endpoints(self) -> list[tuple[str, int]]:
        """Return the contact points as pairs of host and port."""
        if any("@" in point for point in self.contact_points):
            *_, host = ",".join(self.contact_points).rpartition("@")
            remedy = "give the login as username and password, not in front of a host"
            raise ConfigurationError("contact_points", f"...@{host}", remedy)
        return [self._endpoint(point) for point in self.contact_points]

    def _endpoint(self, point: str) -> tuple[str, int]:
        if bracketed := re.fullmatch(r"\[([^]]*)](?::(.+))?", point):
            host, port = bracketed[1], bracketed[2] or ""
        elif point.count(":") > 1:
            host, port = point, ""
        else:
            host, _, port = point.partition(":")
        if not (_HOST.fullmatch(host) and (not port or _PORT.fullmatch(port))):
            remedy = "give each host as 'host' or 'host:port', an IPv6 address as '[::1]:9042'"
            raise ConfigurationError("contact_points", point, remedy)
        return host, int(port or DEFAULT_PORT)


def as_connection(connection: ConnectionConfig | str) -> ConnectionConfig:
    """Return `connection`, or a configuration with these contact points if it is text."""
    return connection if isinstance(connection, ConnectionConfig) else ConnectionConfig(connection)


class DeliveryMode(StrEnum):
    """When rows are delivered, and in which order.

    With `settled`, rows are delivered after they have settled, stream by stream, each stream in
    order. With `ordered`, rows are delivered after they have settled, each table's rows in order of
    write time. With `eager`, rows are delivered as soon as they have been read, in the order in
    which they are read.
    """

    SETTLED = "settled"
    ORDERED = "ordered"
    EAGER = "eager"


class LateRowsMode(StrEnum):
    """What to do with late rows, which arrive after the position has passed their write time."""

    IGNORE = "ignore"
    REPORT = "report"
    DELIVER = "deliver"


class DataLossMode(StrEnum):
    """What to do when rows expired, or their log was dropped, before they were read.

    With `continue`, a warning is logged. With `fail`, DataLossError is raised. With `resnapshot`, a
    consumer takes a new snapshot of the table, and follows the log from there; other readers raise
    DataLossError.
    """

    CONTINUE = "continue"
    FAIL = "fail"
    RESNAPSHOT = "resnapshot"


class SnapshotMode(StrEnum):
    """What a consumer without a checkpoint reads first.

    With `none`, it reads only the log. With `initial`, it reads the table's existing rows, and then
    the log.
    """

    NONE = "none"
    INITIAL = "initial"


def _delivery(value: str) -> DeliveryMode:
    return member("delivery", value, DeliveryMode)


def _optional_duration(value: timedelta | str | None) -> timedelta | None:
    return None if value is None else duration(value)


def _late_rows(value: str | None) -> LateRowsMode | None:
    return None if value is None else member("late_rows", value, LateRowsMode)


def _data_loss(value: str) -> DataLossMode:
    return member("data_loss", value, DataLossMode)


@frozen
class ReadConfig:
    """Settings of log reads.

    `window` is the length of a window with data; without data it grows up to a day. While a reader
    follows the log, its position stays at least `confidence_window` behind the present, because
    writes take time to arrive and clocks differ. `poll_interval` is the time between passes once
    the reader has caught up: 5 seconds by default, and 30 ms with eager delivery.

    `fetch_size` is the number of rows per page (the server may end a page sooner, after 1 MiB of
    one stream). `max_queries_per_second` limits how many pages a connection requests per second,
    and spreads the requests evenly. The tables of a `CdcReader` or consumer share one connection.
    With or without a limit, a reader slows down while nodes report that they are overloaded, and
    recovers within 30 seconds afterwards. `retry_deadline` limits how long one page is retried.

    If `delivery` is ordered, a window's rows are collected, sorted by write time, and then
    delivered. A window whose rows take more than 32 MiB is replaced with smaller windows. Rows
    written in the same microsecond are delivered stream by stream. If `delivery` is eager, rows are
    delivered as soon as they have been read: streams with new rows are polled every
    `poll_interval`, and idle streams up to eight times less often. Each chunk's whole confidence
    window is read again about once a second.

    `late_rows` determines what happens to rows that arrive behind the position, and to strays: rows
    in streams of a generation that was not in force at their write time. If the log has a TTL, they
    are reported by default, else they are ignored. To find rows that arrive behind the position,
    the keys of the last `late_horizon` are read again once a minute, of at most 4,096 streams; if
    late rows are delivered, all rows are read. A restart then repeats the late rows of the last
    minute. With a `confidence_window` below 15 seconds, it repeats all rows
    of that minute, because the time of a row's arrival is known only to within 14 seconds.
    `data_loss` determines what happens when rows expired before they were read.

    Durations are timedeltas, or strings such as ``5s``; `delivery`, `late_rows` and `data_loss` are
    members of `DeliveryMode`, `LateRowsMode` and `DataLossMode`, or their values.

    Raises ConfigurationError for values that cannot be used.
    """

    window: timedelta = field(default=timedelta(seconds=60), converter=duration, validator=POSITIVE)
    confidence_window: timedelta = field(
        default=timedelta(seconds=30), converter=duration, validator=NOT_NEGATIVE
    )
    poll_interval: timedelta | None = field(
        default=None, converter=_optional_duration, validator=optional(POSITIVE)
    )
    fetch_size: int = field(default=5_000, validator=between(1, 1_000_000))
    retry_deadline: timedelta = field(
        default=timedelta(minutes=2), converter=duration, validator=NOT_NEGATIVE
    )
    delivery: DeliveryMode = field(default=DeliveryMode.SETTLED, converter=_delivery)
    late_rows: LateRowsMode | None = field(default=None, converter=_late_rows)
    late_horizon: timedelta = field(
        default=timedelta(minutes=10), converter=duration, validator=POSITIVE
    )
    data_loss: DataLossMode = field(default=DataLossMode.FAIL, converter=_data_loss)
    max_queries_per_second: float | None = field(default=None, validator=POSITIVE_NUMBER)


_EAGER_REFRESH = 1_000_000
"""µs between refreshes of the schema and the generations, even if rows are polled more often."""


def refresh_interval(config: ReadConfig) -> int:
    """Return the time between two looks at the schema and the generations, in µs."""
    is_eager = config.delivery is DeliveryMode.EAGER
    return _EAGER_REFRESH if is_eager else poll_interval(config)


def poll_interval(config: ReadConfig) -> int:
    """Return the time between two polls, in µs."""
    is_eager = config.delivery is DeliveryMode.EAGER
    default = timedelta(milliseconds=30) if is_eager else timedelta(seconds=5)
    return duration_micros(config.poll_interval or default)

"""How to reach the cluster, and how to read; each value checked when it is set."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any

from attrs import Attribute, field, frozen

from cdc_reader.errors import ConfigurationError
from cdc_reader.strategy import Strategy

CONSISTENCIES = ("ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "LOCAL_ONE")
DEFAULT_PORT = 9042
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[\w.-]+)?")
_PORT = re.compile(
    r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
)
"""1 to 65535."""

_Validator = Callable[[Any, "Attribute[Any]", Any], None]


def _require(test: Callable[[Any], bool], remedy: str) -> _Validator:
    def validate(_: object, attribute: Attribute[Any], value: object) -> None:
        if not test(value):
            raise ConfigurationError(attribute.name, value, remedy)

    return validate


def _between(low: int, high: int) -> _Validator:
    def test(value: Any) -> bool:
        return isinstance(value, int) and low <= value <= high

    return _require(test, f"give a whole number from {low} to {high}")


_POSITIVE = _require(lambda value: value > timedelta(0), "give a duration above zero")
_NOT_NEGATIVE = _require(lambda value: value >= timedelta(0), "give a duration of zero or more")


def _contact_points(value: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """A comma-separated text or a sequence, as a tuple without blanks."""
    points = value.split(",") if isinstance(value, str) else value
    return tuple(point.strip() for point in points if point.strip())


def _upper_case(value: str) -> str:
    return value.upper()


@frozen
class ConnectionConfig:
    """Where the cluster is and how to talk to it.

    `contact_points` are ``host`` or ``host:port`` (IPv6 as ``[::1]:9042``), as a sequence or
    separated by commas; `port` is for those that name none. The password never shows in a
    `repr`. The TLS paths are PEM files: `tls_ca` turns TLS on, and servers must then show a
    certificate that this authority signed; `tls_cert` and `tls_key` authenticate the client.
    `consistency` is that of log reads: with writes at QUORUM it must be QUORUM too, or rows
    can be missed. `connect_timeout` bounds the whole of connecting, `request_timeout` each
    attempt at a page.
    Raises ConfigurationError for values that cannot be used.
    """

    contact_points: tuple[str, ...] = field(
        converter=_contact_points,
        validator=_require(bool, "give at least one host, as 'host' or 'host:port'"),
    )
    port: int = field(default=DEFAULT_PORT, validator=_between(1, 65_535))
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = field(default=None, repr=False)
    local_dc: str | None = None
    consistency: str = field(
        default="QUORUM",
        converter=_upper_case,
        validator=_require(
            lambda value: value in CONSISTENCIES, f"give one of {', '.join(CONSISTENCIES)}"
        ),
    )
    connect_timeout: timedelta = field(default=timedelta(seconds=10), validator=_POSITIVE)
    request_timeout: timedelta = field(default=timedelta(seconds=20), validator=_POSITIVE)
    protocol_version: int = field(default=4, validator=_between(3, 4))

    def __attrs_post_init__(self) -> None:
        self.endpoints()
        if (self.username is None) != (self.password is None):
            missing = "password" if self.password is None else "username"
            raise ConfigurationError(missing, None, "give username and password, or neither")
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise ConfigurationError(missing, None, "give tls_cert and tls_key, or neither")
        if self.tls_cert and not self.tls_ca:
            remedy = "give the authority that signs the servers' certificates"
            raise ConfigurationError("tls_ca", None, remedy)

    def endpoints(self) -> list[tuple[str, int]]:
        """The contact points as pairs of host and port."""
        if any("@" in point for point in self.contact_points):
            *_, host = ",".join(self.contact_points).rpartition("@")
            remedy = "give user and password by username and password, not before a host"
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
        return host, int(port or self.port)


class DeliveryMode(StrEnum):
    """When rows are handed on: once they have settled, in order; or as soon as they are seen."""

    SETTLED = "settled"
    EAGER = "eager"


class LateRowsMode(StrEnum):
    """What is done about rows that arrive behind the position."""

    IGNORE = "ignore"
    REPORT = "report"
    DELIVER = "deliver"


class DataLossMode(StrEnum):
    """What is done about rows that expired before they were read."""

    WARN = "warn"
    FAIL = "fail"


def _named(kind: type[StrEnum]) -> _Validator:
    return _require(lambda value: value in list(kind), f"give one of {', '.join(kind)}")


@frozen
class ReadConfig:
    """How the log is read.

    `window` is the length of a window on data (it grows up to `max_window` while there is
    none); following never passes now - `confidence_window`, as writes take time to arrive
    and clocks differ; `poll_interval` is the pause once it has caught up. `fetch_size` is in
    rows a page (the server may end one sooner, at 1 MiB of a stream), `chunk_size` in streams
    a query, `in_flight` in queries at a time.
    `retry_deadline` bounds how long one page is asked for again. `strategy` is the way a window
    is read, see `cdc_reader.strategy`.

    With `delivery` eager, rows are handed on as soon as they are seen, and the confidence
    window is read again every `eager_interval`. `late_rows` says what is done about rows that
    arrive behind the position: a look back over `late_horizon` every `late_interval` finds
    them. `data_loss` says what to do when rows expired before they were read.
    `publication_wait` is how long the position waits for a generation whose streams are
    written down, but which is not announced yet.
    Raises ConfigurationError for values that cannot be used.
    """

    window: timedelta = field(default=timedelta(seconds=60), validator=_POSITIVE)
    max_window: timedelta = field(default=timedelta(days=1), validator=_POSITIVE)
    confidence_window: timedelta = field(default=timedelta(seconds=30), validator=_NOT_NEGATIVE)
    poll_interval: timedelta = field(default=timedelta(seconds=5), validator=_POSITIVE)
    fetch_size: int = field(default=5_000, validator=_between(1, 1_000_000))
    chunk_size: int = field(default=64, validator=_between(1, 100))
    in_flight: int = field(default=8, validator=_between(1, 1_024))
    retry_deadline: timedelta = field(default=timedelta(minutes=2), validator=_NOT_NEGATIVE)
    strategy: str = field(default=Strategy.STREAMS, validator=_named(Strategy))
    delivery: str = field(default=DeliveryMode.SETTLED, validator=_named(DeliveryMode))
    eager_interval: timedelta = field(default=timedelta(milliseconds=100), validator=_POSITIVE)
    late_rows: str = field(default=LateRowsMode.IGNORE, validator=_named(LateRowsMode))
    late_horizon: timedelta = field(default=timedelta(hours=1), validator=_POSITIVE)
    late_interval: timedelta = field(default=timedelta(minutes=1), validator=_POSITIVE)
    data_loss: str = field(default=DataLossMode.WARN, validator=_named(DataLossMode))
    publication_wait: timedelta = field(default=timedelta(minutes=10), validator=_NOT_NEGATIVE)

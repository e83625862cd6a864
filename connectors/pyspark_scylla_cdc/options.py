"""The options of the data source: one table, from which parsing, errors and docs follow.

Spark lower-cases the names it hands over; messages spell them as the table does.
``python -m pyspark_scylla_cdc.options`` prints the table as Markdown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from attrs import field, frozen

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.duration import parse_duration
from cdc_reader.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    ConnectionFailedError,
)
from cdc_reader.ids import TableName
from cdc_reader.timestamp import format_timestamp, parse_timestamp
from cdc_reader.window import BEGINNING, FOREVER, Window

EARLIEST = "earliest"
LATEST = "latest"


@frozen
class Kind:
    """A type of value: its name in the docs, and how text becomes it (text, option) -> value."""

    name: str
    parse: Callable[[str, str], Any]


@frozen
class Option:
    """One option. Without a default it is unset until given; `secret` values show nowhere."""

    name: str
    kind: Kind
    doc: str
    default: str | None = None
    required: bool = False
    secret: bool = False

    def value(self, given: str | None) -> Any:
        """The value of the text given, or of the default; raises ConfigurationError."""
        text = self.default if given is None else given if self.secret else given.strip()
        if text is None and not self.required:
            return None
        if not text:
            remedy = f"give {self.name}, {self.doc[0].lower()}{self.doc[1:]}"
            raise ConfigurationError(self.name, given, remedy)
        return self.kind.parse(text, self.name)


def _text(text: str, _option: str) -> str:
    return text


def _count(text: str, option: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0):
        raise ConfigurationError(option, text, "give a whole number above zero, of 64 bits")
    return int(text)


def _start(text: str, option: str) -> int:
    words = {EARLIEST: BEGINNING, LATEST: FOREVER}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return parse_timestamp(text, option)
    except ConfigurationError as error:
        remedy = f"{error.remedy}, or '{EARLIEST}' or '{LATEST}'"
        raise ConfigurationError(option, text, remedy) from None


def _positive_duration(text: str, option: str) -> timedelta:
    duration = parse_duration(text, option)
    if not duration:
        raise ConfigurationError(option, text, "give a duration above zero")
    return duration


TEXT = Kind("text", _text)
COUNT = Kind("number", _count)
DURATION = Kind("duration", parse_duration)
POSITIVE_DURATION = Kind("duration", _positive_duration)
TIMESTAMP = Kind("timestamp", parse_timestamp)
START = Kind(f"timestamp, `{EARLIEST}` or `{LATEST}`", _start)

OPTIONS = (
    Option(
        "hosts",
        TEXT,
        "Contact points of the cluster, separated by commas, each `host` or `host:port`.",
        required=True,
    ),
    Option("port", COUNT, "Port of the contact points that name none.", default="9042"),
    Option("keyspace", TEXT, "Keyspace of the table, as stored (case-sensitive).", required=True),
    Option(
        "table",
        TEXT,
        "The base table, as stored (case-sensitive), not its log table.",
        required=True,
    ),
    Option("username", TEXT, "Role to log in with; goes with a password."),
    Option("password", TEXT, "Password of the role. Shown in no plan and no error.", secret=True),
    Option(
        "passwordFile",
        TEXT,
        "File whose first line is the password, on the driver and every executor: "
        "the password itself then never travels with the query.",
    ),
    Option("ssl.caFile", TEXT, "PEM file of trusted authorities; turns on TLS with verification."),
    Option("ssl.certFile", TEXT, "PEM file of the client's certificate."),
    Option("ssl.keyFile", TEXT, "PEM file of the client's private key."),
    Option("localDC", TEXT, "Datacenter to ask; without it, that of the first contact point."),
    Option(
        "consistencyLevel",
        TEXT,
        "Consistency of log reads. Rows written at QUORUM are all seen at QUORUM only.",
        default="QUORUM",
    ),
    Option(
        "connectTimeout",
        POSITIVE_DURATION,
        "How long to try to reach the cluster.",
        default="10s",
    ),
    Option(
        "requestTimeout",
        POSITIVE_DURATION,
        "How long to wait for one page of rows.",
        default="20s",
    ),
    Option(
        "retryTimeout",
        DURATION,
        "How long to ask for a page again while the cluster fails in a way that may pass.",
        default="2m",
    ),
    Option(
        "startingTimestamp",
        START,
        f"Write time to start at (inclusive). `{EARLIEST}` is all that the log still holds; "
        f"`{LATEST}` is the moment the query starts. A checkpoint overrides it.",
        default=EARLIEST,
    ),
    Option(
        "endingTimestamp",
        TIMESTAMP,
        "Write time to end before (exclusive). Without it a batch reads all that is there, "
        "and a stream goes on.",
    ),
    Option(
        "confidenceWindow",
        DURATION,
        "A stream never reads past now minus this: writes take time to arrive, and clocks differ.",
        default="30s",
    ),
    Option(
        "maxWindowPerTrigger",
        POSITIVE_DURATION,
        "The longest span of write time in one micro-batch. Without it a micro-batch reads "
        "all that has settled.",
    ),
    Option(
        "minAdvance",
        POSITIVE_DURATION,
        "The shortest span of write time worth a micro-batch of its own.",
        default="1s",
    ),
    Option("fetchSize", COUNT, "Rows in a page.", default="2000"),
    Option(
        "maxPartitions",
        COUNT,
        "Spark partitions to read with, at most; never more than there are streams. "
        "In a stream each costs some 35 ms per micro-batch.",
        default="8",
    ),
)

_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}
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
_SECRET_NAME = re.compile("pass|secret|token|pwd", re.IGNORECASE)


@frozen
class SourceOptions:
    """The options of one query, checked. Pickles of it go to executors, with a `password`
    if that was given as an option, without if it stands in a file.
    """

    table: TableName
    starting: int
    """µs since 1970; BEGINNING for the earliest, FOREVER for the latest."""
    ending: int | None
    confidence_window: timedelta
    max_window: timedelta | None
    min_advance: timedelta
    max_partitions: int
    read: ReadConfig
    password_file: Path | None
    _connection: Mapping[str, Any] = field(repr=False, alias="connection")

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """The options that Spark hands over; raises ConfigurationError, naming one of them."""
        _refuse_unknown(given)
        lowered = {name.lower(): text for name, text in given.items()}
        values = {name: option.value(lowered.get(name)) for name, option in _BY_LOWER_NAME.items()}
        password_file = values["passwordfile"]
        try:
            options = cls(
                table=TableName(values["keyspace"], values["table"]),
                starting=values["startingtimestamp"],
                ending=values["endingtimestamp"],
                confidence_window=values["confidencewindow"],
                max_window=values["maxwindowpertrigger"],
                min_advance=values["minadvance"],
                max_partitions=values["maxpartitions"],
                read=ReadConfig(
                    fetch_size=values["fetchsize"],
                    confidence_window=values["confidencewindow"],
                    retry_deadline=values["retrytimeout"],
                ),
                password_file=None if password_file is None else Path(password_file),
                connection=_connection_arguments(values),
            )
            options.connection()
        except ConfigurationError as error:
            raise _in_options_words(error) from None
        options._check_order()
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
        "tls_ca": values["ssl.cafile"],
        "tls_cert": values["ssl.certfile"],
        "tls_key": values["ssl.keyfile"],
        "local_dc": values["localdc"],
        "consistency": values["consistencylevel"],
        "connect_timeout": values["connecttimeout"],
        "request_timeout": values["requesttimeout"],
    }


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for name, text in given.items():
        if name.lower() not in _BY_LOWER_NAME:
            nearest = _nearest(name)
            secret = _SECRET_NAME.search(name) or (nearest and nearest.secret)
            known = f"the options are {', '.join(option.name for option in OPTIONS)}"
            remedy = f"did you mean {nearest.name}?" if nearest else known
            shown = "(not shown)" if secret else text
            raise ConfigurationError(name, shown, f"no such option; {remedy}")


def _nearest(name: str) -> Option | None:
    close = difflib.get_close_matches(name.lower(), _BY_LOWER_NAME, n=1, cutoff=0.5)
    return _BY_LOWER_NAME[close[0]] if close else None


def markdown() -> str:
    """The table of options for the reference pages."""
    rows = ["| option | value | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = "required" if option.required else f"`{option.default}`"
        default = "" if default == "`None`" else default
        rows.append(f"| `{option.name}` | {option.kind.name} | {default} | {option.doc} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the module's output is its purpose

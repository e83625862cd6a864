"""The options by which commands reach a cluster, in one place."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from cdc_reader.cli.failure import told
from cdc_reader.config import CONSISTENCIES, DEFAULT_PORT, ConnectionConfig
from cdc_reader.errors import ConfigurationError

_FILE = click.Path(dir_okay=False, path_type=Path)
_HOSTS = (
    click.option(
        "--hosts",
        default="127.0.0.1",
        show_default=True,
        envvar="SCYLLA_CDC_HOSTS",
        show_envvar=True,
        help="Nodes to begin with, separated by commas, each as HOST or HOST:PORT.",
    ),
)
_TIMEOUT = (
    click.option(
        "--connect-timeout",
        default=10.0,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        help="Seconds after which connecting is given up.",
    ),
)
_NAMES = "port username password_file tls_ca tls_cert tls_key local_dc consistency".split()


@frozen
class _Side:
    """The cluster that options are of: the only one, or one of two, whose name they begin with."""

    name: str = ""

    def option(self, name: str) -> str:
        """Its option for the setting `name`."""
        return "--" + "-".join(filter(None, [self.name, *name.split("_")]))

    def variable(self, name: str) -> str:
        """Its environment variable for the setting `name`."""
        return "_".join(filter(None, ["SCYLLA_CDC", self.name.upper(), name.upper()]))

    def parameter(self, name: str) -> str:
        """The name of what the command gets for the setting `name`."""
        return f"{self.name}_{name}" if self.name else name

    def options(self, use: str) -> tuple[Callable[..., Any], ...]:
        """All there are but hosts and timeout; `use` is what the consistency is of."""
        name = self.option
        of = f" of the {self.name}" if self.name else ""
        return (
            click.option(
                name("port"),
                default=DEFAULT_PORT,
                show_default=True,
                help=f"Port of the nodes that {self.name.upper() or '--hosts'} gives none for.",
            ),
            click.option(
                name("username"),
                envvar=self.variable("username"),
                show_envvar=True,
                help=f"Log in as this user{of}; the password is that of {name('password_file')} "
                f"or ${self.variable('password')}, or is asked for.",
            ),
            click.option(
                name("password_file"), type=_FILE, help="A file with the password as its only line."
            ),
            click.option(
                name("tls_ca"), type=_FILE, help="Turn TLS on; servers are signed by this (PEM)."
            ),
            click.option(name("tls_cert"), type=_FILE, help="Certificate of this client (PEM)."),
            click.option(name("tls_key"), type=_FILE, help="Private key of the certificate (PEM)."),
            click.option(
                name("local_dc"), help=f"Datacenter{of} whose nodes are asked; all by default."
            ),
            click.option(
                name("consistency"),
                default="QUORUM",
                show_default=True,
                type=click.Choice(CONSISTENCIES, case_sensitive=False),
                help=f"Consistency of {use}.",
            ),
        )

    def taken(self, hosts: str, timeout: float, values: dict[str, Any]) -> ConnectionConfig:
        """The connection that `values` tell of, which are taken out of them."""
        given = {name: values.pop(self.parameter(name)) for name in _NAMES}
        try:
            return self._config(hosts, connect_timeout=timeout, **given)
        except ConfigurationError as error:
            option = " ".join(filter(None, [self.name, error.option]))
            raise ConfigurationError(option, error.value, error.remedy) from error

    def _config(
        self,
        hosts: str,
        username: str | None,
        password_file: Path | None,
        connect_timeout: float,
        **values: Any,
    ) -> ConnectionConfig:
        rest: dict[str, Any] = {
            name: str(value) if isinstance(value, Path) else value for name, value in values.items()
        }
        return ConnectionConfig(
            hosts,
            username=username,
            password=self._password(username, password_file),
            connect_timeout=timedelta(seconds=connect_timeout),
            **rest,
        )

    def _password(self, username: str | None, file: Path | None) -> str | None:
        """Never from the command line, which other users of the machine can see."""
        if file is not None:
            return _first_line(file)
        if username is None:
            return None
        return os.environ.get(self.variable("password")) or self._asked(username)

    def _asked(self, username: str) -> str:
        """Ask a person; a program that gives no password has made a mistake."""
        if not _at_terminal():
            file, variable = self.option("password_file"), self.variable("password")
            raise ConfigurationError(
                "username", username, f"give its password in {file} or ${variable}"
            )
        of = f" at the {self.name}" if self.name else ""
        answer: str = click.prompt(f"Password of {username}{of}", hide_input=True, err=True)
        return answer


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a connection; it gets them as `connection`."""
    side = _Side()

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        with told():
            timeout = values.pop("connect_timeout")
            connection = side.taken(values.pop("hosts"), timeout, values)
        command(connection=connection, **values)

    return _with_options(wrapped, (*_HOSTS, *side.options("log reads"), *_TIMEOUT))


def two_connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command whose arguments `source` and `target` are hosts the options of both sides.

    It gets connections instead of the hosts.
    """
    source, target = _Side("source"), _Side("target")

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        with told():
            timeout = values.pop("connect_timeout")
            for side in (source, target):
                values[side.name] = side.taken(values[side.name], timeout, values)
        command(**values)

    options = (*source.options("log reads"), *target.options("writes"), *_TIMEOUT)
    return _with_options(wrapped, options)


def _with_options(
    command: Callable[..., None], options: Sequence[Callable[..., Any]]
) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


def _first_line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, UnicodeError, IndexError) as error:
        remedy = "give a readable file whose first line is the password"
        raise ConfigurationError("password_file", str(file), remedy) from error


def _at_terminal() -> bool:
    return sys.stdin.isatty()

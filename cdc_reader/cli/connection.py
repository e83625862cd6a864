"""The options by which commands reach a cluster, in one place."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from cdc_reader.cli.failure import told
from cdc_reader.config import CONSISTENCIES, DEFAULT_PORT, ConnectionConfig
from cdc_reader.errors import ConfigurationError

_FILE = click.Path(dir_okay=False, path_type=Path)
_PASSWORD = "SCYLLA_CDC_PASSWORD"  # noqa: S105 - the name of a variable
_OPTIONS = (
    click.option(
        "--hosts",
        default="127.0.0.1",
        show_default=True,
        envvar="SCYLLA_CDC_HOSTS",
        show_envvar=True,
        help="Nodes to begin with, separated by commas, each as HOST or HOST:PORT.",
    ),
    click.option(
        "--port",
        default=DEFAULT_PORT,
        show_default=True,
        help="Port of the nodes that --hosts gives none for.",
    ),
    click.option(
        "--username",
        envvar="SCYLLA_CDC_USERNAME",
        show_envvar=True,
        help=f"Log in as this user; the password is that of --password-file or ${_PASSWORD}, "
        "or is asked for.",
    ),
    click.option("--password-file", type=_FILE, help="A file with the password as its only line."),
    click.option("--tls-ca", type=_FILE, help="Turn TLS on; servers are signed by this (PEM)."),
    click.option("--tls-cert", type=_FILE, help="Certificate of this client (PEM)."),
    click.option("--tls-key", type=_FILE, help="Private key of the certificate (PEM)."),
    click.option("--local-dc", help="Datacenter whose nodes are asked; all by default."),
    click.option(
        "--consistency",
        default="QUORUM",
        show_default=True,
        type=click.Choice(CONSISTENCIES, case_sensitive=False),
        help="Consistency of log reads.",
    ),
    click.option(
        "--connect-timeout",
        default=10.0,
        show_default=True,
        type=click.FloatRange(min=0, min_open=True),
        help="Seconds after which connecting is given up.",
    ),
)
_NAMES = (
    "hosts port username password_file tls_ca tls_cert tls_key local_dc consistency connect_timeout"
).split()


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a connection; it gets them as `connection`."""

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        given = {name: values.pop(name) for name in _NAMES}
        with told():
            connection = _config(**given)
        command(connection=connection, **values)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def _config(
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
        password=_password(username, password_file),
        connect_timeout=timedelta(seconds=connect_timeout),
        **rest,
    )


def _password(username: str | None, file: Path | None) -> str | None:
    """Never from the command line, which other users of the machine can see."""
    if file is not None:
        return _first_line(file)
    if username is None:
        return None
    return os.environ.get(_PASSWORD) or _asked(username)


def _first_line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, UnicodeError, IndexError) as error:
        remedy = "give a readable file whose first line is the password"
        raise ConfigurationError("password_file", str(file), remedy) from error


def _asked(username: str) -> str:
    """Ask a person; a program that gives no password has made a mistake."""
    if not _at_terminal():
        remedy = f"give its password in --password-file or ${_PASSWORD}"
        raise ConfigurationError("username", username, remedy)
    answer: str = click.prompt(f"Password of {username}", hide_input=True, err=True)
    return answer


def _at_terminal() -> bool:
    return sys.stdin.isatty()

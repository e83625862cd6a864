"""The connection options that commands share."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from click.core import ParameterSource

from cdc_reader.cli.failure import Misuse, cli_errors
from cdc_reader.config import CONSISTENCIES, ConnectionConfig
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError, ConfigurationError, ConnectionFailedError


@frozen
class Side:
    """A table in one of the clusters that a command connects to."""

    connection: ConnectionConfig
    table: TableName

    def __str__(self) -> str:
        return f"{self.table} at {self.hosts}"

    @property
    def hosts(self) -> str:
        """The cluster's contact points."""
        return ",".join(f"{host}:{port}" for host, port in sorted(self.connection.endpoints()))


_FILE = click.Path(dir_okay=False, path_type=Path)
_HOSTS = (
    click.option(
        "--hosts",
        default="127.0.0.1",
        show_default=True,
        envvar="SCYLLA_CDC_HOSTS",
        show_envvar=True,
        help="Nodes to connect to first, separated by commas, each as HOST or HOST:PORT.",
    ),
)
_NAMES = (
    "username password_file tls tls_ca tls_verify_hostname tls_cert tls_key local_dc consistency"
).split()


@frozen
class _Options:
    """The options for one cluster of a command, with the cluster's `name`, if any, as a prefix."""

    name: str = ""

    def option(self, name: str) -> str:
        """Return the cluster's option for the setting `name`."""
        return "--" + "-".join(filter(None, [self.name, *name.split("_")]))

    def variable(self, name: str) -> str:
        """Return the cluster's environment variable for the setting `name`."""
        return "_".join(filter(None, ["SCYLLA_CDC", self.name.upper(), name.upper()]))

    def parameter(self, name: str) -> str:
        """Return the command's parameter for the setting `name`."""
        return f"{self.name}_{name}" if self.name else name

    def options(self, use: str) -> tuple[Callable[..., Any], ...]:
        """Return all options except hosts; `use` is the consistency level's purpose."""
        name = self.option
        of = f" of the {self.name}" if self.name else ""
        return (
            click.option(
                name("username"),
                envvar=self.variable("username"),
                show_envvar=True,
                help=f"Log in as this user{of}. The password is read from "
                f"{name('password_file')} or ${self.variable('password')}; without either, the "
                "command asks for it.",
            ),
            click.option(
                name("password_file"), type=_FILE, help="A file with the password as its only line."
            ),
            click.option(
                name("tls"),
                is_flag=True,
                default=None,
                help="Use TLS. Trusts the system's CAs unless a CA file is given.",
            ),
            click.option(
                name("tls_ca"), type=_FILE, help="Use TLS and trust the CAs in this file (PEM)."
            ),
            click.option(
                f"{name('tls_verify_hostname')}/{name('no_tls_verify_hostname')}",
                default=True,
                show_default=True,
                help="Check that a node's certificate contains its host name or address.",
            ),
            click.option(name("tls_cert"), type=_FILE, help="Certificate of this client (PEM)."),
            click.option(name("tls_key"), type=_FILE, help="Private key of the certificate (PEM)."),
            click.option(
                name("local_dc"),
                help=f"Send queries only to nodes of this datacenter{of}. Default: the "
                "datacenter of the first node that is reached.",
            ),
            click.option(
                name("consistency"),
                default="QUORUM",
                show_default=True,
                type=click.Choice(CONSISTENCIES, case_sensitive=False),
                help=f"Consistency of {use}.",
            ),
        )

    def taken(self, hosts: str, values: dict[str, Any]) -> ConnectionConfig:
        """Return the connection to this cluster, and remove its options from `values`."""
        given = {name: values.pop(self.parameter(name)) for name in _NAMES}
        file = given.pop("password_file")
        try:
            password = self._password(given["username"], file)
            return ConnectionConfig(hosts, password=password, **given)
        except ConfigurationError as error:
            raise self._in_options(error) from error

    def refuse(self, path: str, values: dict[str, Any]) -> None:
        """Remove this cluster's options from `values`; raise Misuse if one was given.

        The user named the copy at `path` instead of a cluster.
        """
        context = click.get_current_context()
        for name in _NAMES:
            values.pop(self.parameter(name))
            if context.get_parameter_source(self.parameter(name)) is ParameterSource.COMMANDLINE:
                raise Misuse(
                    f"{self.option(name)} is for a cluster, and the {self.name} is the path "
                    f"{path}: leave it out"
                )

    def _in_options(self, error: ConfigurationError) -> ConfigurationError:
        """Return the error with each setting replaced by this cluster's option or argument."""
        options = {name: self.option(name) for name in _NAMES}
        options |= {"contact_points": self.name.upper() or "--hosts"}
        remedy = _in_words(error.remedy, options)
        return ConfigurationError(options.get(error.option, error.option), error.value, remedy)

    def in_words(self, error: CdcError) -> str:
        """Return the error's text with each setting replaced by this cluster's option."""
        if isinstance(error, ConnectionFailedError):
            options = {name: self.option(name) for name in _NAMES}
            return f"{error.found}; {_in_words(error.remedy, options)}"
        return str(self._in_options(error) if isinstance(error, ConfigurationError) else error)

    def caused(self, error: BaseException | None, connection: ConnectionConfig) -> bool:
        """Return True if the error names the cluster, or a value of its connection."""
        if isinstance(error, ConfigurationError):
            return getattr(connection, error.option, None) == error.value
        return any(f"{host}:{port}" in str(error) for host, port in connection.endpoints())

    def _password(self, username: str | None, file: Path | None) -> str | None:
        """Return the password: from a file, the environment or a terminal.

        A password given as an argument would be visible to the machine's other users.
        """
        if file is not None:
            return _first_line(file)
        if username is None:
            return None
        return os.environ.get(self.variable("password")) or self._asked(username)

    def _asked(self, username: str) -> str:
        """Prompt for the password; raise ConfigurationError if there is no terminal."""
        if not _at_terminal():
            file, variable = self.option("password_file"), self.variable("password")
            raise ConfigurationError(
                "username", username, f"give its password in {file} or ${variable}"
            )
        of = f" at the {self.name}" if self.name else ""
        answer: str = click.prompt(f"Password of {username}{of}", hide_input=True, err=True)
        return answer


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the connection options to a command, which receives them as one value, `connection`."""
    side = _Options()

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        with cli_errors():
            connection = side.taken(values.pop("hosts"), values)
        with _errors_in_options({side: connection}):
            command(connection=connection, **values)

    return _with_options(wrapped, (*_HOSTS, *side.options("log reads")))


def source_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of one cluster to a command with the argument `source`.

    Users pass hosts as this argument, and the command receives a connection instead.
    """
    side = _Options("source")

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        with cli_errors():
            source = values["source"] = side.taken(values["source"], values)
        with _errors_in_options({side: source}):
            command(**values)

    return _with_options(wrapped, side.options("reads"))


def two_connection_options(
    source_use: str, target_use: str, is_path: Callable[[str], bool] = lambda _: False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of two clusters to a command with the arguments `source` and `target`.

    Users pass hosts as these arguments, and the command receives connections instead. A target for
    which `is_path` returns True is passed on as it is. In the help text, `source_use` and
    `target_use` say what each consistency level applies to.
    """
    source, target = _Options("source"), _Options("target")

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            path = values["target"] if is_path(values["target"]) else None
            with cli_errors():
                if path is not None:
                    target.refuse(path, values)
                sides = (source,) if path is not None else (source, target)
                for side in sides:
                    values[side.name] = side.taken(values[side.name], values)
            with _errors_in_options({side: values[side.name] for side in sides}):
                command(**values)

        options = (*source.options(source_use), *target.options(target_use))
        return _with_options(wrapped, options)

    return decorate


@contextmanager
def _errors_in_options(sides: Mapping[_Options, ConnectionConfig]) -> Iterator[None]:
    """Rewrite the errors of a command, so that they name the options of the cluster concerned."""
    try:
        yield
    except click.ClickException as error:
        cause = error.__cause__
        causes = [side for side, its in sides.items() if len(sides) == 1 or side.caused(cause, its)]
        if not (isinstance(cause, CdcError) and causes):
            raise
        told = error.message.replace(str(cause), causes[0].in_words(cause))
        raise type(error)(told) from cause


def _in_words(text: str, options: Mapping[str, str]) -> str:
    words = re.compile(rf"(?<![-\w:])({'|'.join(options)})(?![-\w])")
    return words.sub(lambda name: options[name.group()], text)


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

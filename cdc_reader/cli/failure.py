"""Failures of commands: one line on stderr, and an exit status for each kind of failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from cdc_reader.errors import CdcError, ConfigurationError, DataLossError


class Failure(click.ClickException):
    """Ends a command with one line and status 1, for failures of the cluster or the table."""

    exit_code = 1


class Misuse(click.ClickException):
    """Ends a command with one line and status 2, for wrong usage."""

    exit_code = 2


class Loss(click.ClickException):
    """Ends a command with one line and status 2, for lost changes: a restart would fail as well."""

    exit_code = 2


class Trouble(click.ClickException):
    """Ends a command with one line and status 2, for commands whose status 1 is a result."""

    exit_code = 2


@contextmanager
def cli_errors(failure: type[click.ClickException] = Failure) -> Iterator[None]:
    """End the command on errors of this package.

    Ends it with `Misuse` if an option caused the error, and with `Loss` if changes were lost; the
    message then names the option ``--data-loss``.
    """
    try:
        yield
    except ConfigurationError as error:
        raise Misuse(str(error)) from error
    except DataLossError as error:
        raise Loss(str(error).replace("set data_loss to", "set --data-loss to")) from error
    except CdcError as error:
        raise failure(str(error)) from error

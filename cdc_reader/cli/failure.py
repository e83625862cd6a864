"""How a command fails: one line on stderr, and a status that says whose fault it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from cdc_reader.errors import CdcError, ConfigurationError


class Failure(click.ClickException):
    """Ends a command with one line and the status 1: the cluster or the table let it down."""

    exit_code = 1


class Misuse(click.ClickException):
    """Ends a command with one line and the status 2: it was called wrongly."""

    exit_code = 2


@contextmanager
def told() -> Iterator[None]:
    """Errors of this package end the command: as a misuse if an option is at fault."""
    try:
        yield
    except ConfigurationError as error:
        raise Misuse(str(error)) from error
    except CdcError as error:
        raise Failure(str(error)) from error

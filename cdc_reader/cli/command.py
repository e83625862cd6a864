"""The group of subcommands. A subcommand's module is imported when the subcommand is called."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version as installed_version

import click

from cdc_reader._extras import not_installed
from cdc_reader.cli.failure import Misuse

_COMMANDS = {
    "compare": "compare the rows of a table with those of a copy",
    "demo": "watch a Spark DataFrame fill from a CDC log",
    "generations": "list the generations of CDC streams",
    "import-position": "continue where scylla-cdc-go or scylla-cdc-rust stopped",
    "mirror": "keep a copy of a table in a Delta table, without Spark",
    "replicate": "apply the changes of a table to a copy of it",
    "serve": "run the embedded ScyllaDB, for development and tests",
    "status": "show what a table's log holds, and how far it has been read",
    "streams": "list a table's CDC streams, or find the stream of a key",
    "tail": "print the changes of tables as they happen",
}
_EXTRAS = {"demo": "cli,spark,embedded", "serve": "cli,embedded"}
"""The extras of subcommands that need more than `cli`."""


class _LazyGroup(click.Group):
    """A group whose commands are in the modules of the same names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        try:
            command = import_module(f"cdc_reader.cli.{cmd_name.replace('-', '_')}").command
        except ModuleNotFoundError as error:
            extras = _EXTRAS.get(cmd_name, "cli")
            raise click.ClickException(not_installed(cmd_name, error, extras)) from error
        assert isinstance(command, click.Command)  # noqa: S101 - each module defines `command`
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _refuse_empty(command, ctx, rest)
        return name, command, rest

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing them."""
        own = {name: self.commands[name].get_short_help_str(limit=80) for name in self.commands}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**own, **_COMMANDS}.items()))


def _refuse_empty(command: click.Command, ctx: click.Context, args: Sequence[str]) -> None:
    """Reject empty options, which a script passes if one of its variables is not set."""
    try:
        own = command.context_class(command, parent=ctx)
        given, _, _ = command.make_parser(own).parse_args(list(args))
    except click.UsageError:
        return  # the command itself reports this
    for param in command.params:
        value = given.get(param.name or "")
        values = value if isinstance(value, list) else [value]
        if isinstance(param, click.Option) and "" in values:
            raise Misuse(f"{param.opts[0]} is '': give a value, or leave it out")


def _print_version(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        _echo_version()
        ctx.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def main() -> None:
    """Follow ScyllaDB's change data capture log."""


@main.command(short_help="print the version, and which kernel decodes pages")
def version() -> None:
    """Print the version of this package, and which kernel decodes pages."""
    _echo_version()


def _echo_version() -> None:
    from cdc_reader.errors import ConfigurationError

    try:
        from cdc_reader.decoding import NAME
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"scylla-cdc {installed_version('scylla-cdc')} (kernel: {NAME})")

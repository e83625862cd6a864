"""The command `scylla-cdc`. A subcommand's module is imported when the subcommand is called.

The command needs the extra `cli`. This package may import all packages, but only `demo` and `serve`
may import `testing`. Begin with `command`.
"""

from __future__ import annotations

import sys

from cdc_reader._extras import not_installed


def main() -> None:
    """Run the command. If its extra is not installed, exit and say what to install."""
    try:
        from cdc_reader.cli.command import main as run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(not_installed("scylla-cdc", error, "cli"))
    run()

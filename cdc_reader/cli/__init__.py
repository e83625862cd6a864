"""The command `scylla-cdc`: each subcommand is a module, imported when it is called.

Needs the extra `cli`. May import all packages; only `demo` and `serve` may import `testing`. Begin
with `command`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; if its extra is not installed, end with a line that says what to install."""
    try:
        from cdc_reader.cli.command import main as run
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit(
            f"scylla-cdc: the package {error.name!r} is not installed: "
            "run pip install 'scylla-cdc[cli]'"
        )
    run()

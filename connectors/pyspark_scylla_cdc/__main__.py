"""The command line of the data source: `python -m pyspark_scylla_cdc`."""

from __future__ import annotations

import sys

from cdc_reader._extras import missing_package, not_installed

_NAME = "python -m pyspark_scylla_cdc"


def main() -> None:
    """Run the command. If an extra is not installed, exit and say what to install."""
    try:
        import click

        from pyspark_scylla_cdc.installation import doctor
    except ModuleNotFoundError as error:
        if missing_package(error) not in ("click", "py4j", "pyspark"):
            raise
        sys.exit(not_installed(_NAME, error, "cli,spark"))
    group = click.Group(
        commands=[doctor.command],
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Tools for the Spark data source scylla_cdc.",
    )
    group(prog_name=_NAME)


if __name__ == "__main__":
    main()

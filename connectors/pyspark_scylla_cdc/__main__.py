"""The command line of the data source: `python -m pyspark_scylla_cdc`."""

from __future__ import annotations

import click

from pyspark_scylla_cdc.installation import doctor


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Tools for the Spark data source scylla_cdc."""


main.add_command(doctor.command)

if __name__ == "__main__":
    main(prog_name="python -m pyspark_scylla_cdc")

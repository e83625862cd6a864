"""`python -m pyspark_scylla_cdc doctor`: diagnoses why Spark does not find the data source."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pyspark_scylla_cdc.installation.faults import faults
from pyspark_scylla_cdc.installation.pythons import (
    Python,
    Unusable,
    executors,
    planner,
    planner_command,
    this_python,
)
from pyspark_scylla_cdc.local_session import JavaError, quiet_session

_WIDEST = 160


def _pairs(_ctx: click.Context, _option: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """Parse the NAME=VALUE pairs of a repeated option."""
    for text in given:
        if "=" not in text:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


@click.command("doctor")
@click.option("--master", help="The cluster's master URL; without it, Spark's default.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="An option of the data source, such as hosts=scylla:9042; repeat for more. With hosts, "
    "keyspace and table, each machine also reads the table's schema.",
)
@click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="A setting of Spark, such as spark.archives=env.tar.gz#environment; repeat for more.",
)
def command(master: str | None, options: dict[str, str], conf: dict[str, str]) -> None:
    """Find out why Spark does not find the data source.

    Starts a Spark application in the same way as your own, with the same environment variables.
    Checks the Python of the driver and of each executor: its version, whether it has this package
    and its dependencies, and whether it reaches ScyllaDB. Prints a table, and a remedy for each
    fault. Exits with status 1 if there is a fault.
    """
    log = Path(tempfile.gettempdir()) / "scylla-cdc-doctor.log"
    builder = SparkSession.builder.appName("scylla-cdc doctor")
    try:
        spark = quiet_session(builder.master(master) if master else builder, log, conf)
    except JavaError as error:
        raise click.ClickException(str(error)) from None
    except (PySparkException, Py4JError) as error:
        [reason, *_] = str(error).strip().splitlines()
        message = f"Spark does not start: {reason}; its output is in {log}"
        raise click.ClickException(message) from None
    try:
        failed = _examine(spark, options)
    finally:
        spark.stop()
    raise SystemExit(failed)


def _examine(spark: SparkSession, options: dict[str, str]) -> bool:
    """Print what was found; return True if there is a fault."""
    context = spark.sparkContext
    started = planner_command(context)
    here, plans = this_python({}), planner(started, options)
    runs = executors(context, started, options)
    _print_table([("driver", here), ("planner", plans), *(("executor", each) for each in runs)])
    found = faults(here, started, plans, runs)
    for number, fault in enumerate(found, 1):
        click.echo(f"{number}. {fault.found}.\n   Remedy: {fault.remedy}.")
    if not found:
        click.echo("Spark finds the data source on the driver and on each executor.")
    return bool(found)


def _print_table(pythons: Sequence[tuple[str, Python | Unusable]]) -> None:
    table = Table(box=SIMPLE_HEAD)
    for name in ("", "host", "python", "version", "spark", "pyarrow", "scylla-cdc", "kernel"):
        table.add_column(name, overflow="fold")
    table.add_column("cluster", overflow="fold")
    for role, python in pythons:
        if isinstance(python, Unusable):
            table.add_row(role, python.where, "does not run")
        else:
            table.add_row(
                role,
                python.host,
                python.python,
                python.version,
                python.pyspark or "missing",
                python.pyarrow or "missing",
                python.package or "missing",
                python.kernel,
                python.cluster.partition(":")[0],
            )
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDEST)
    console.print(table)

"""`python -m pyspark_scylla_cdc doctor`: diagnoses why Spark does not find the data source."""

from __future__ import annotations

import os
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

from pyspark_scylla_cdc.installation.executors import Executors, executors
from pyspark_scylla_cdc.installation.faults import Fault, faults
from pyspark_scylla_cdc.installation.pythons import (
    TIMEOUT,
    Python,
    Unusable,
    planner,
    planner_command,
    this_python,
)
from pyspark_scylla_cdc.installation.reasons import reason
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
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT,
    show_default=True,
    help="The seconds in which the executors must run the tasks of this check.",
)
def command(
    master: str | None, options: dict[str, str], conf: dict[str, str], timeout: float
) -> None:
    """Find out why Spark does not find the data source.

    Starts a Spark application in the same way as your own, with the same environment variables.
    Checks the Python of the driver and of each executor: its version, whether it has this package
    and its dependencies, and whether it reaches ScyllaDB. Prints a table, and a remedy for each
    fault. Exits with status 1 if there is a fault, or if an executor was not examined.
    """
    _refuse_connect(master, conf)
    spark = _start(SparkSession.builder.master(master) if master else SparkSession.builder, conf)
    try:
        failed = _examine(spark, options, timeout)
    finally:
        spark.stop()
    raise SystemExit(failed)


def _refuse_connect(master: str | None, conf: dict[str, str]) -> None:
    """Raise ClickException for a session of Spark Connect, which shows no driver or executors."""
    is_remote = "spark.remote" in conf or conf.get("spark.api.mode") == "connect"
    if is_remote or (master is None and os.environ.get("SPARK_REMOTE")):
        raise click.ClickException(
            "found a session of Spark Connect, which does not show the server's machines: run "
            "doctor on the server, without SPARK_REMOTE, with the server's master and settings"
        )


def _start(builder: SparkSession.Builder, conf: dict[str, str]) -> SparkSession:
    """Start Spark, with its output in a new file; raise ClickException if it does not start."""
    handle, path = tempfile.mkstemp(prefix="scylla-cdc-doctor-", suffix=".log")
    os.close(handle)
    # spark-submit has started the JVM, which keeps its own output.
    shown = "" if "PYSPARK_GATEWAY_PORT" in os.environ else f"; its output is in {path}"
    _progress(f"Starting Spark{shown}")
    try:
        return quiet_session(builder.appName("scylla-cdc doctor"), Path(path), conf)
    except JavaError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        home = os.environ.get("SPARK_HOME", "not set")
        message = f"Spark does not start: {error}; SPARK_HOME is {home}: unset or correct it"
        raise click.ClickException(message) from None
    except (PySparkException, Py4JError) as error:
        message = f"Spark does not start: {reason(error)}{shown}"
        raise click.ClickException(message) from None


def _examine(spark: SparkSession, options: dict[str, str], timeout: float) -> bool:
    """Print what was found; return True if there is a fault."""
    context = spark.sparkContext
    started = planner_command(context)
    _progress(f"Examining {started.path} on the driver")
    here, plans = this_python({}), planner(started, options)
    _progress(f"Waiting up to {timeout:g} s for tasks on the executors")
    runs = executors(context, started, options, timeout)
    pythons = [("executor", each) for each in runs.pythons]
    _print_table([("driver", here), ("planner", plans), *pythons])
    found = faults(here, started, plans, runs) or unexamined(runs)
    for number, fault in enumerate(found, 1):
        click.echo(f"{number}. {fault.found}.\n   Remedy: {fault.remedy}.")
    if not found:
        click.echo("Spark finds the data source on the driver and on each executor.")
    for note in (started.note, *slow_kernels([plans, *runs.pythons])):
        if note:
            click.echo(f"{note}.")
    return bool(found)


def unexamined(runs: Executors) -> list[Fault]:
    """Return a fault if there are executors of which nothing is known, otherwise an empty list."""
    if not runs.unexamined:
        return []
    return [
        Fault(
            f"{len(runs.pythons)} of {runs.count} executors were examined, without a fault; no "
            "task ran on the others",
            "run doctor again; if it does not help, see in Spark's user interface whether "
            "executors are excluded or busy",
        )
    ]


def slow_kernels(pythons: Sequence[Python | Unusable]) -> list[str]:
    """Return a sentence for each Python whose package lacks the compiled kernel."""
    slow = {
        (each.host, each.python)
        for each in pythons
        if isinstance(each, Python) and each.kernel == "python"
    }
    return [
        f"On {host}, {python} decodes rows without the compiled kernel, many times more slowly: "
        "install a wheel there, or a C compiler before the package"
        for host, python in sorted(slow)
    ]


def _progress(doing: str) -> None:
    click.echo(f"{doing} ...", err=True)


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

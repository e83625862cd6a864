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

from pyspark_scylla_cdc.installation.faults import Fault, examine
from pyspark_scylla_cdc.installation.pythons import TIMEOUT, Facts, reason
from pyspark_scylla_cdc.local_session import JavaError, quiet_session

_SHOWN = ("python", "version", "pyspark", "pyarrow", "pandas", "package", "cluster")


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
    type=click.IntRange(1, 86_400),
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
    and its dependencies, and whether it reaches ScyllaDB. Prints what it finds, and a remedy for
    each fault. Exits with status 1 if there is a fault, or if an executor was not examined.
    """
    is_remote = "spark.remote" in conf or conf.get("spark.api.mode") == "connect"
    if is_remote or (master is None and os.environ.get("SPARK_REMOTE")):
        raise click.ClickException(
            "found a session of Spark Connect, which does not show the server's machines: run "
            "doctor on the server, without SPARK_REMOTE, with the server's master and settings"
        )
    spark = _start(SparkSession.builder.master(master) if master else SparkSession.builder, conf)
    try:
        doing = f"Examining the driver, and waiting up to {timeout:g} s for the executors' tasks"
        click.echo(f"{doing} ...", err=True)
        pythons, faults = examine(spark.sparkContext, options, timeout)
    finally:
        spark.stop()
    _show(pythons, faults)
    raise SystemExit(bool(faults))


def _start(builder: SparkSession.Builder, conf: dict[str, str]) -> SparkSession:
    """Start Spark, with its output in a new file; raise ClickException if it does not start."""
    with tempfile.NamedTemporaryFile("w", prefix="scylla-cdc-", suffix=".log", delete=False) as log:
        path = Path(log.name)
    click.echo(f"Starting Spark; its output is in {path} ...", err=True)
    try:
        return quiet_session(builder.appName("scylla-cdc doctor"), path, conf)
    except (JavaError, OSError, PySparkException, Py4JError) as error:
        home = os.environ.get("SPARK_HOME")
        check = f"; SPARK_HOME is {home}: unset or correct it" if home else ""
        message = f"Spark does not start: {reason(str(error))}; its output is in {path}{check}"
        raise click.ClickException(message) from None


def _show(pythons: Sequence[Facts], faults: Sequence[Fault]) -> None:
    for python in pythons:
        facts = [f"{fact} {python[fact]}" for fact in _SHOWN if python.get(fact)]
        click.echo(f"{python['role']} on {python['host']}: {', '.join(facts) or 'does not run'}")
    for number, fault in enumerate(faults, 1):
        click.echo(f"{number}. {fault.found}.\n   Remedy: {fault.remedy}.")
    if not faults:
        click.echo("Spark finds the data source on the driver and on each executor.")

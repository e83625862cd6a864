"""Installed from a wheel or in editable mode, the package is found by Python, Spark and pytest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.packaging.conftest import Environment

ROOT = Path(__file__).parents[2]

# A registered source fails without its options. An unknown source is not found.
DISCOVERY = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.read.format("scylla_cdc").load()
except PySparkException as error:
    print(error)
spark.stop()
"""
HOMES = "import cdc_reader, pyspark_scylla_cdc as s; print(cdc_reader.__file__, s.__file__)"

EXTRAS = (
    "click rich pyspark py4j cramjam lark sortedcontainers testcontainers prometheus_client".split()
)


def without(packages: list[str]) -> str:
    """Return code that makes these packages impossible to import."""
    return f"import sys; sys.modules.update(dict.fromkeys({packages}))"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_spark_discovers_the_source(
    environment: Environment, kind: str, request: pytest.FixtureRequest
) -> None:
    """A new session finds `scylla_cdc` without configuration, and reports its required options."""
    if kind == "editable":
        environment.install("--editable", ROOT)
        home = ROOT
    else:
        environment.install(request.getfixturevalue("wheel"))
        home = environment.folder
    assert all(path.startswith(f"{home}/") for path in environment.execute(HOMES).split())
    said = environment.execute(DISCOVERY)
    assert "hosts" in said
    assert "DATA_SOURCE_NOT_FOUND" not in said


def test_the_command_and_the_pytest_plugin_are_installed(
    environment: Environment, wheel: Path
) -> None:
    """The command and the pytest plugin work directly after installation."""
    environment.install(wheel)
    command = f"import subprocess; subprocess.run([{str(environment.folder / 'bin/scylla-cdc')!r}, "
    assert "serve" in environment.execute(command + '"--help"], check=True)')
    assert "--scylla=TARGET" in environment.execute("import pytest; pytest.main(['--help'])")


@pytest.mark.parametrize("package", ["cdc_reader", "cdc_reader.testing", "pyspark_scylla_cdc"])
def test_packages_import_without_any_extra(
    environment: Environment, wheel: Path, package: str
) -> None:
    """Spark and the packages of extras are imported only when they are used."""
    environment.install(wheel)
    environment.execute(f"{without(EXTRAS)}; import {package}")


@pytest.mark.parametrize(
    ("package", "words", "remedy"),
    [("click", "", "scylla-cdc[cli]"), ("rich", "tail", "scylla-cdc[cli]"),
     ("lark", "serve", "scylla-cdc[cli,embedded]")],
)  # fmt: skip
def test_the_command_asks_for_its_extra(
    environment: Environment, wheel: Path, package: str, words: str, remedy: str
) -> None:
    """Without its extra, the command fails with a one-line error."""
    environment.install(wheel)
    run = f"sys.argv = ['scylla-cdc', *{words.split()}]; from cdc_reader.cli import main; main()"
    line = refusal(environment, package, run)
    assert f"the package '{package}" in line
    assert line.endswith(f"is not installed: run pip install '{remedy}'")


@pytest.mark.parametrize("package", ["click", "rich", "pyspark"])
def test_the_connector_s_command_asks_for_its_extras(
    environment: Environment, wheel: Path, package: str
) -> None:
    """Without one of its extras, `python -m pyspark_scylla_cdc` fails with a one-line error."""
    environment.install(wheel)
    run = "import runpy; runpy.run_module('pyspark_scylla_cdc', run_name='__main__')"
    line = refusal(environment, package, f"sys.argv = ['-m', 'doctor']; {run}")
    assert line.startswith(f"python -m pyspark_scylla_cdc: the package '{package}")
    assert line.endswith("is not installed: run pip install 'scylla-cdc[cli,spark]'")


def refusal(environment: Environment, package: str, run: str) -> str:
    """Return the only line that the code prints without the package, before it exits with 1."""
    code = f"{without([package])}; sys.stderr = sys.stdout\n{run}"
    [line] = environment.execute(code, status=1).splitlines()
    return line

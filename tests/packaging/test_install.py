"""Installed from a wheel, the package is found by Python, Spark and pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging.conftest import Environment, make_environment

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

EXTRAS = """
    click rich matplotlib pyspark py4j cramjam lark sortedcontainers testcontainers
    prometheus_client
""".split()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """An environment with the wheel and all packages that it may need."""
    made = make_environment(tmp_path_factory.mktemp("installed"))
    made.borrow()
    made.install(wheel)
    return made


def without(packages: list[str]) -> str:
    """Return code that makes these packages impossible to import."""
    return f"import sys; sys.modules.update(dict.fromkeys({packages}))"


@pytest.mark.slow
def test_spark_discovers_the_source(installed: Environment) -> None:
    """A new session finds `scylla_cdc` without configuration, and reports its required options.

    All other tests find it in an editable installation.
    """
    assert all(path.startswith(f"{installed.folder}/") for path in installed.execute(HOMES).split())
    said = installed.execute(DISCOVERY)
    assert "hosts" in said
    assert "DATA_SOURCE_NOT_FOUND" not in said


@pytest.mark.slow
def test_the_command_and_the_pytest_plugin_are_installed(installed: Environment) -> None:
    """The command and the pytest plugin work directly after installation."""
    command = f"import subprocess; subprocess.run([{str(installed.folder / 'bin/scylla-cdc')!r}, "
    assert "serve" in installed.execute(command + '"--help"], check=True)')
    assert "--scylla=TARGET" in installed.execute("import pytest; pytest.main(['--help'])")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["cdc_reader", "cdc_reader.testing", "pyspark_scylla_cdc"])
def test_packages_import_without_any_extra(installed: Environment, package: str) -> None:
    """Spark and the packages of extras are imported only when they are used."""
    installed.execute(f"{without(EXTRAS)}; import {package}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "words", "remedy"),
    [("click", "", "scylla-cdc[cli]"), ("rich", "tail", "scylla-cdc[cli]"),
     ("lark", "serve", "scylla-cdc[cli,embedded]")],
)  # fmt: skip
def test_the_command_asks_for_its_extra(
    installed: Environment, package: str, words: str, remedy: str
) -> None:
    """Without its extra, the command fails with a one-line error."""
    run = f"sys.argv = ['scylla-cdc', *{words.split()}]; from cdc_reader.cli import main; main()"
    line = refusal(installed, package, run)
    assert f"the package '{package}" in line
    assert line.endswith(f"is not installed: run pip install '{remedy}'")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["click", "pyspark"])
def test_the_connector_s_command_asks_for_its_extras(installed: Environment, package: str) -> None:
    """Without one of its extras, `python -m pyspark_scylla_cdc` fails with a one-line error."""
    run = "import runpy; runpy.run_module('pyspark_scylla_cdc', run_name='__main__')"
    line = refusal(installed, package, f"sys.argv = ['-m', 'doctor']; {run}")
    assert line.startswith(f"python -m pyspark_scylla_cdc: the package '{package}")
    assert line.endswith("is not installed: run pip install 'scylla-cdc[cli,spark]'")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "name", "extra"),
    [
        ("lark", "cdc_reader.testing.EmbeddedScylla", "embedded"),
        ("sortedcontainers", "cdc_reader.testing.EmbeddedScylla", "embedded"),
        ("testcontainers", "cdc_reader.testing.ScyllaContainer", "docker"),
        ("pyspark", "pyspark_scylla_cdc.mirror", "spark"),
    ],
)
def test_a_name_asks_for_its_extra(
    installed: Environment, missing: str, name: str, extra: str
) -> None:
    """Without its extra, a name cannot be imported, and the error names the extra."""
    package, _, attribute = name.rpartition(".")
    code = f"{without([missing])}\ntry:\n    from {package} import {attribute}\n"
    said = installed.execute(f"{code}except ModuleNotFoundError as error:\n    print(error)")
    assert said.strip() == (
        f"{name}: the package {missing!r} is not installed: run pip install 'scylla-cdc[{extra}]'"
    )


def refusal(installed: Environment, package: str, run: str) -> str:
    """Return the only line that the code prints without the package, before it exits with 1."""
    code = f"{without([package])}; sys.stderr = sys.stdout\n{run}"
    [line] = installed.execute(code, status=1).splitlines()
    return line

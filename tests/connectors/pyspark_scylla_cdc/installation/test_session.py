"""The Python that `session` chooses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.installation.session import _archives, prepare


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start in an empty directory, without the variables."""
    monkeypatch.chdir(tmp_path)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")  # so that the variable is restored after the test
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("archives", "folder"),
    [
        ("env.tar.gz#environment", "environment"),
        ("env.tar.gz#own", "own"),
        ("model.zip#model,env.tar.gz#environment", "environment"),
        ("env.tar.gz#environment,s3://b/env.tar.gz#environment,data.zip", "environment"),
    ],
)
def test_archive(archives: str, folder: str) -> None:
    """Spark starts the Python in the archive named `environment`, or in the only named one."""
    prepare(archives)
    assert os.environ["PYSPARK_PYTHON"] == f"./{folder}/bin/python"
    assert Path(folder).readlink() == Path(sys.prefix)


SHIPPED = "env.tar.gz#environment"


@pytest.mark.parametrize(
    ("arguments", "defaults"),
    [
        ("", f"spark.archives  {SHIPPED}"),
        ("", f"# comment\n spark.archives={SHIPPED} \nspark.x y"),
        (f"--archives {SHIPPED} pyspark-shell", "spark.archives other.zip"),
        (f"--conf spark.archives={SHIPPED} pyspark-shell", ""),
        (f"--conf=spark.archives={SHIPPED} --properties-file no.conf pyspark-shell", ""),
        ("--properties-file own.conf pyspark-shell", "spark.archives other.zip"),
    ],
)
def test_archive_of_the_administrator(
    monkeypatch: pytest.MonkeyPatch, arguments: str, defaults: str
) -> None:
    """Archives in Spark's arguments or defaults count. The builder has precedence."""
    Path("spark-defaults.conf").write_text(defaults)
    Path("own.conf").write_text(f"spark.archives: {SHIPPED}")
    monkeypatch.setenv("SPARK_CONF_DIR", ".")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    assert _archives(SparkSession.Builder()) == SHIPPED
    assert _archives(SparkSession.Builder().config("spark.archives", "mine.zip")) == "mine.zip"


@pytest.mark.parametrize("archives", ["", "data.zip"])
def test_no_environment(archives: str) -> None:
    """Without a named archive, Spark starts the running Python."""
    prepare(archives)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_ambiguous_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """If several archives have other names, the error asks for one; PYSPARK_PYTHON decides."""
    archives = "model.zip#model,env.tar.gz#own"
    with pytest.raises(ConfigurationError, match=r"^spark.archives is '.*name that archive #env"):
        prepare(archives)
    assert not list(Path().iterdir())
    monkeypatch.setenv("PYSPARK_PYTHON", "./own/bin/python")
    prepare(archives)
    assert Path("own").is_symlink()

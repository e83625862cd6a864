"""The Python that `session` chooses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.installation.session import prepare


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

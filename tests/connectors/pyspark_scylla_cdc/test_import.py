"""Importing the package, as each Spark session does when it looks for data sources."""

from __future__ import annotations

import subprocess
import sys

import pytest

HIDING = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
import pyspark_scylla_cdc
assert not hasattr(pyspark_scylla_cdc, "DefaultSource")
"""
LIGHT = """
import sys
import pyspark_scylla_cdc
assert pyspark_scylla_cdc.DefaultSource.name() == "scylla_cdc"
heavy = {"cassandra", "cdc_reader.cluster", "pyspark_scylla_cdc.options.source_options"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


def run(code: str) -> None:
    """Run the code in a new Python process."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("hidden", ["pyspark", "pyspark.sql.datasource"])
def test_import_never_fails(hidden: str) -> None:
    """Without Spark, or with a version that lacks data sources, the import defines no source."""
    run(HIDING.format(hidden=hidden))


def test_import_is_light() -> None:
    """The import loads neither the driver nor the reader."""
    run(LIGHT)

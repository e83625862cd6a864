"""The declarative pipelines on a page run with Spark's own command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cdc_reader.testing import Scylla

HAS_PIPELINES = find_spec("pyspark.pipelines") is not None
HAS_AUTO_CDC = HAS_PIPELINES and hasattr(import_module("pyspark.pipelines"), "create_auto_cdc_flow")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/keep-a-copy-with-fold.md"
RUNNER = Path(__file__).with_name("run_pipelines.py")
BLOCK = r"^```{}\n(.*?)^```$"
TABLE = (
    "CREATE TABLE {ks}.orders (customer int, number int, status text, "
    "PRIMARY KEY (customer, number)) WITH cdc = {{'enabled': true, 'postimage': true}}"
)
INSERT = "INSERT INTO {ks}.orders (customer, number, status) VALUES (7, %s, 'placed')"
CHANGES = (
    "UPDATE {ks}.orders SET status = 'shipped' WHERE customer = 7 AND number = 2",
    "DELETE FROM {ks}.orders WHERE customer = 7 AND number = 1",
)


def blocks(language: str) -> list[str]:
    """Return the page's code blocks in this language."""
    return re.findall(BLOCK.format(language), PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def orders(scylla: Scylla, keyspace: str) -> str:
    """A keyspace with the page's table, whose log contains changes of all kinds."""
    scylla.session.execute(TABLE.format(ks=keyspace))
    for number in (1, 2, 3):
        scylla.session.execute(INSERT.format(ks=keyspace), (number,))
    for statement in CHANGES:
        scylla.session.execute(statement.format(ks=keyspace))
    return keyspace


def project(folder: Path, spec: str, module: str, scylla: Scylla, keyspace: str) -> str:
    """Create a pipeline project that reads the test's log, and return the path of its spec."""
    folder.mkdir()
    module = module.replace("scylla.example.com:9042", scylla.contact_point)
    module = module.replace('"shop"', f'"{keyspace}"')
    module = module.replace('"snapshot", "initial"', '"confidenceWindow", "0s"')
    (folder / "orders.py").write_text(module)
    (folder / "spark-pipeline.yml").write_text(spec.replace("/data/", f"{folder}/"))
    return str(folder / "spark-pipeline.yml")


def run(number: int, scylla: Scylla, keyspace: str, folder: Path) -> tuple[str, list[Any]]:
    """Run a pipeline of the page. Return its output, and the rows of the table `orders`."""
    (spec,) = blocks("yaml")
    modules = [block for block in blocks("py") if "pipelines" in block]
    spec = project(folder / "project", spec, modules[number], scylla, keyspace)
    ran = subprocess.run(
        [sys.executable, str(RUNNER), str(folder), spec],
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    told = json.loads(ran.stdout.splitlines()[-1])
    return told["said"], told["orders"]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.skipif(not HAS_PIPELINES, reason="Spark 4.1 and later have declarative pipelines")
def test_a_view_of_the_changes(scylla: Scylla, orders: str, tmp_path: Path) -> None:
    """The pipeline's view equals the table."""
    said, found = run(0, scylla, orders, tmp_path)
    assert "Run is COMPLETED" in said, said
    assert sorted(found, key=lambda row: int(row["number"])) == [
        {"customer": 7, "number": 2, "status": "shipped"},
        {"customer": 7, "number": 3, "status": "placed"},
    ]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not HAS_AUTO_CDC, reason="Spark 4.2 and later apply changes themselves")
def test_changes_applied_by_spark(scylla: Scylla, orders: str, tmp_path: Path) -> None:
    """The pipeline runs up to the merge, which Parquet tables do not support."""
    said, _ = run(1, scylla, orders, tmp_path)
    assert "Starting run" in said, said
    assert "[AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE]" in said, said

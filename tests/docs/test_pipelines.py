"""The declarative pipelines that a page shows run, with the command that Spark has for them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_reader.testing import Scylla

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/keep-a-table-current.md"
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
    """The blocks of the page in a language."""
    return re.findall(BLOCK.format(language), PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def orders(scylla: Scylla, keyspace: str) -> str:
    """The keyspace of a table as the page speaks of it, with changes of all kinds in its log."""
    scylla.session.execute(TABLE.format(ks=keyspace))
    for number in (1, 2, 3):
        scylla.session.execute(INSERT.format(ks=keyspace), (number,))
    for statement in CHANGES:
        scylla.session.execute(statement.format(ks=keyspace))
    return keyspace


def project(folder: Path, spec: str, module: str, scylla: Scylla, keyspace: str) -> str:
    """A pipeline's project that reads the test's log from its beginning; returns its spec."""
    folder.mkdir()
    module = module.replace("scylla.example.com:9042", scylla.contact_point)
    module = module.replace('"shop"', f'"{keyspace}"')
    module = module.replace('"snapshot", "initial"', '"confidenceWindow", "0s"')
    (folder / "orders.py").write_text(module)
    (folder / "spark-pipeline.yml").write_text(spec.replace("/data/", f"{folder}/"))
    return str(folder / "spark-pipeline.yml")


@pytest.mark.spark
def test_the_pipelines_of_the_page_run(scylla: Scylla, orders: str, tmp_path: Path) -> None:
    """The first to its end; Spark's own applying of changes up to the merge that Parquet lacks."""
    (spec,) = blocks("yaml")
    specs = [
        project(tmp_path / str(number), spec, module, scylla, orders)
        for number, module in enumerate(blocks("py"))
    ]
    ran = subprocess.run(
        [sys.executable, str(RUNNER), str(tmp_path), *specs],
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
    )
    told = json.loads(ran.stdout.splitlines()[-1])
    viewed, applied = told["said"]
    assert "Run is COMPLETED" in viewed, viewed
    assert sorted(told["orders"], key=lambda row: int(row["number"])) == [
        {"customer": 7, "number": 2, "status": "shipped"},
        {"customer": 7, "number": 3, "status": "placed"},
    ]
    assert "Starting run" in applied, applied
    assert "[AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE]" in applied, applied

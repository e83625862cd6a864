"""The Python blocks of each page run in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_reader.testing import Scylla
from pyspark_scylla_cdc.local_session import local_session

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
READERS_CLUSTER = "scylla.example.com:9042"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r'"checkpointLocation", "([^"]+)"')
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
CREATE = (
    "CREATE TABLE {ks}.orders (customer int, number int, status text, "
    "PRIMARY KEY (customer, number)) WITH cdc = {{'enabled': true}}"
)
ORDERS = (
    CREATE,
    "INSERT INTO {ks}.orders (customer, number, status) VALUES (7, 1, 'placed')",
    "DELETE FROM {ks}.orders WHERE customer = 7 AND number = 1",
    "INSERT INTO {ks}.orders (customer, number, status) VALUES (7, 2, 'placed')",
)
LEFT = [{"customer": 7, "number": 2, "status": "placed"}]
"""The rows that the statements leave in the table."""


def blocks(page: Path) -> str:
    """Return the Python code of a page. Each line keeps its line number."""
    text = page.read_text()
    code = [""] * text.count("\n")
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        lines = block[1].splitlines()
        code[first : first + len(lines)] = lines
    return "\n".join(code)


def shows_tests(page: Path) -> bool:
    """Return True if the page's Python code is a test module."""
    return "def test_" in blocks(page)


PATIENT = "connect_timeout=60, control_connection_timeout=60"
"""Arguments with which the driver connects even on a busy machine."""

SCRIPTS = [page for page in PAGES if blocks(page).strip() and not shows_tests(page)]
COPIES = ("keep-a-table-current.md", "keep-a-copy-with-fold.md")
LONG = {ROOT / "docs" / "howto" / each for each in COPIES}
"""These pages make one copy with each of their tools."""
TESTS = [page for page in PAGES if shows_tests(page)]


def name(page: Path) -> str:
    """Return the page's path in the project."""
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The quiet session that `getOrCreate` returns on the pages."""
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    return local_session("docs", log_file, **{"spark.sql.adaptive.enabled": "false"})


@pytest.fixture
def orders(scylla: Scylla, keyspace: str) -> str:
    """A keyspace with the pages' table, whose log contains changes."""
    for statement in ORDERS:
        scylla.session.execute(statement.format(ks=keyspace))
    return keyspace


@pytest.mark.spark
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page in LONG)) for page in SCRIPTS],
    ids=name,
)
@pytest.mark.usefixtures("spark")
def test_the_python_blocks_of_a_page_run(
    page: Path, scylla: Scylla, orders: str, tmp_path: Path
) -> None:
    """The blocks run with the test's cluster and directory in place of the reader's."""
    code = blocks(page)
    if READERS_CLUSTER in code:
        code = code.replace(READERS_CLUSTER, scylla.contact_point)
        code = re.sub(r'"shop(?=[".])', f'"{orders}', code).replace("/data/", f"{tmp_path}/")
        code = code.replace("start_http_server(9408", "start_http_server(0")  # any free port
    code = code.replace("protocol_version=4", f"protocol_version=4, {PATIENT}")
    defined: dict[str, Any] = {"__name__": page.stem}
    exec(compile(code, str(page), "exec"), defined)
    assert all(rows == LEFT for rows in copies(defined))
    for apply in (defined[name] for name in ("update", "merge") if name in defined):
        with pytest.raises((FileNotFoundError, ValueError), match="start over"):
            apply(defined["spark"].createDataFrame([], "customer int"), 99)


def test_no_two_queries_of_the_pages_share_a_path() -> None:
    """No two queries share a checkpoint, because a reader may run all pages."""
    found = [PATH.findall(blocks(page)) for page in PAGES]
    paths = [path for of_page in found for path in of_page]
    assert len(paths) >= 3
    assert len(paths) == len(set(paths))
    copies = [Path(path.removesuffix(".checkpoint")) for path in paths]
    assert len(copies) == len(set(copies))


def copies(defined: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each copy that a page made, in Parquet files and Delta tables."""
    if "states" in defined:
        newest = max(defined["states"].iterdir(), key=lambda folder: int(folder.name))
        yield [row.asDict() for row in defined["spark"].read.parquet(str(newest)).collect()]
        yield defined["orders"].to_pyarrow_table().to_pylist()
    if "copy" in defined:
        yield [row.asDict() for row in defined["copy"].read().collect()]


@pytest.mark.parametrize("page", TESTS, ids=name)
def test_the_tests_shown_on_a_page_pass(page: Path, pytester: pytest.Pytester) -> None:
    """The tests shown on a page pass when run as a user would run them."""
    pytester.makepyfile(blocks(page))
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["passed"] == blocks(page).count("def test_")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_exist(page: Path) -> None:
    """Links to files of the project lead to existing files."""
    for link in LINK.findall(page.read_text()):
        assert (page.parent / link).exists(), link

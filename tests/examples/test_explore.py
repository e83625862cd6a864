"""The notebook runs from its first cell to its last, and is stored without results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXECUTE = "from nbclient.cli import main; main()"
NOTEBOOK = Path(__file__).parents[2] / "examples" / "explore.ipynb"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The result of each cell that shows one, by the cell's id and the type of the content."""
    copy = tmp_path_factory.mktemp("notebook") / NOTEBOOK.name
    copy.write_text(NOTEBOOK.read_text())
    # A separate process: Jupyter's packages warn about their own dependencies.
    ran = subprocess.run(
        [sys.executable, "-c", EXECUTE, "--inplace", copy.name],
        cwd=copy.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = {}
    for cell in json.loads(copy.read_text())["cells"]:
        outputs = cell.get("outputs", [])
        assert all(output["output_type"] == "execute_result" for output in outputs), outputs
        for output in outputs:
            found[cell["id"]] = {kind: "".join(text) for kind, text in output["data"].items()}
    return found


@pytest.mark.slow
def test_readers_schemas_and_changes_are_shown_as_tables(
    results: dict[str, dict[str, Any]],
) -> None:
    """Jupyter shows readers, schemas and changes as HTML tables."""
    assert "<caption>shop.orders: CDC on, preimage full" in results["reader"]["text/html"]
    assert "(customer), number" in results["shown"]["text/html"]
    change = results["changes"]["text/html"]
    assert "<caption>update shop.orders at " in change
    assert "<td>&#x27;placed&#x27;</td><td>&#x27;shipped&#x27;</td>" in change


def test_each_tool_has_the_changes(results: dict[str, dict[str, Any]]) -> None:
    """Each tool finds three inserts, an update and a delete in the log. Two orders remain."""
    pandas = results["pandas"]["text/plain"].splitlines()
    kinds = ["insert"] * 3 + ["update_preimage", "update_postimage", "delete"]
    assert sorted(line.split()[1] for line in pandas[1:]) == sorted(kinds)
    polars = [line for line in results["polars"]["text/plain"].splitlines() if line[:1] == "│"]
    assert [line.split()[1::2][:2] for line in polars[-2:]] == [["7", "4"], ["8", "1"]]
    orders = results["duckdb"]["text/plain"].splitlines()
    assert [line.split()[1:4] for line in orders[1:]] == [
        ["7", "1", "shipped"],
        ["8", "1", "placed"],
    ]


def test_the_notebook_is_stored_without_results() -> None:
    """The notebook is stored without results, because they would change with each run."""
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None

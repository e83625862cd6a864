"""Packages stay small, so that modules are easy to find."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path

from cdc_reader import testing

CODE = Path(testing.__file__).parents[1]
CONNECTOR = CODE.parent / "connectors" / "pyspark_scylla_cdc"
EMBEDDED = CODE / "testing" / "embedded"
MOST = 15


def test_modules_of_a_package() -> None:
    """The embedded server, a product of its own, is exempt."""
    modules = [path for code in (CODE, CONNECTOR) for path in code.rglob("*.py")]
    counts = Counter(
        path.parent
        for path in modules
        if path.name != "__init__.py" and not path.is_relative_to(EMBEDDED)
    )
    assert counts[CODE / "reading"], "expected the packages beside the tests, found none"
    crowded = {
        str(package.relative_to(CODE.parent)): n for package, n in counts.items() if n > MOST
    }
    assert not crowded, f"packages of more than {MOST} modules: {crowded}"


def test_the_drawing_of_the_packages() -> None:
    """The design names each package of the import contracts."""
    page = (CODE.parent / "docs" / "explanation" / "design.md").read_text()
    [drawing] = re.findall(r"^```\ncdc_reader/\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    contracts = tomllib.loads((CODE.parent / "pyproject.toml").read_text())
    layers = [
        name.strip()
        for contract in contracts["tool"]["importlinter"]["contracts"]
        for layer in contract.get("layers", ())
        for name in layer.split("|")
    ]
    assert len(layers) > 20
    assert [name for name in layers if not re.search(rf"\b{name}\b", drawing)] == ["__main__"]

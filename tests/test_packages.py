"""Packages stay small, so that modules are easy to find."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from cdc_reader import testing
from tests.syntax import parse

CODE = Path(testing.__file__).parents[1]
CONNECTOR = CODE.parent / "connectors" / "pyspark_scylla_cdc"
EMBEDDED = CODE / "testing" / "embedded"
MOST = 15


def test_modules_of_a_package() -> None:
    """Packages have at most `MOST` modules. The embedded server, a product in itself, is exempt."""
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


@pytest.mark.parametrize(
    "package",
    sorted(path.parent for code in (CODE, CONNECTOR) for path in code.rglob("__init__.py")),
    ids=lambda path: str(path.relative_to(CODE.parent)),
)
def test_a_package_says_what_it_may_import_and_where_to_begin(package: Path) -> None:
    """Each package's docstring says what it may import, and names a module to begin with."""
    said = ast.get_docstring(parse((package / "__init__.py").read_text())) or ""
    said = " ".join(said.split())
    assert re.search(r"\b(may import|May import)\b", said) or package == CODE
    [begin] = re.findall(r"\bBegin with ((?:[^`]*?`\w+`)+?)", said, re.IGNORECASE)
    [first, *_] = re.findall(r"`(\w+)`", begin)
    names = (package / "__init__.py").read_text()
    assert any((package / f"{first}{end}").exists() for end in (".py", "")) or first in names


def test_the_drawing_of_the_packages() -> None:
    """The design page lists each package above all packages that it may import."""
    page = (CODE.parent / "docs" / "explanation" / "design.md").read_text()
    [drawing] = re.findall(r"^```\ncdc_reader/\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    contracts = tomllib.loads((CODE.parent / "pyproject.toml").read_text())
    layers = [
        contract["layers"]
        for contract in contracts["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    ]
    for of_project, rooms in zip(layers, drawing.split("\n\n"), strict=True):
        drawn = [
            name
            for line in rooms.splitlines()
            for name in re.split(r", ", re.split(r"(?<!,) +", line.strip())[0])
        ]
        floors = {
            name.strip(): floor
            for floor, layer in enumerate(of_project)
            for name in layer.split("|")
            if name.strip() != "__main__"
        }
        assert len(floors) > 10
        assert set(floors) <= set(drawn)
        in_contract = [floors[name] for name in drawn if name in floors]
        assert in_contract == sorted(in_contract), "a package is drawn below one it may import"

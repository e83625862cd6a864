"""Public names can be imported and are documented; the pages use no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from scripts.api_reference import MODULES, PAGE, page

ROOT = Path(__file__).parents[1]
SHOWN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
BLOCK = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("module", MODULES)
def test_all_names_what_can_be_imported(module: str) -> None:
    """`__all__` has each name once, and each exists."""
    public = import_module(module)
    assert len(set(public.__all__)) == len(public.__all__)
    assert all(hasattr(public, name) for name in public.__all__)


@pytest.mark.parametrize("package", ["cdc_reader", "cdc_reader.checkpoints", "cdc_reader.testing"])
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    """Lazy packages behave like any module."""
    with pytest.raises(AttributeError, match="nonesuch"):
        getattr(import_module(package), "nonesuch")  # noqa: B009 - mypy knows it is not there


def test_the_reference_is_current() -> None:
    """`make api` writes it."""
    assert PAGE.read_text() == page(), "the docstrings have changed: run make api"


def sources() -> Iterator[tuple[str, str]]:
    """Yield all Python code that users are shown, with its place."""
    for example in EXAMPLES:
        yield str(example.relative_to(ROOT)), example.read_text()
    for shown in SHOWN:
        if shown != PAGE:
            for block in BLOCK.findall(shown.read_text()):
                yield str(shown.relative_to(ROOT)), block


def names_of_ours(code: str) -> Iterator[tuple[str, str]]:
    """Return the project's modules that are imported, and the names taken from them."""
    nodes = list(ast.walk(ast.parse(code)))
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module)):
                yield from ((module, alias.name) for alias in node.names if is_ours(module))
            case ast.Import():
                modules = {alias.asname or alias.name: alias.name for alias in node.names}
                for used in nodes:
                    match used:
                        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if is_ours(
                            modules.get(name, "")
                        ):
                            yield modules[name], attribute


def is_ours(module: str) -> bool:
    """True if a module belongs to this project."""
    return module.partition(".")[0] in ("cdc_reader", "pyspark_scylla_cdc")


def test_the_docs_import_public_names_only() -> None:
    """Pages and examples use no private names."""
    used = {(*use, place) for place, code in sources() for use in names_of_ours(code)}
    assert len(used) > 10
    private = {
        (module, name, place)
        for module, name, place in used
        if module not in MODULES or name not in import_module(module).__all__
    }
    assert not private

"""Public names can be imported and are documented. The pages use no other names."""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pytest

from scripts.api_reference import MADE, MODULES, PAGE, VALUES, page
from tests.syntax import parse

ROOT = Path(__file__).parents[1]
SHOWN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))
BLOCK = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```(?:console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"""(?:python3? -c|echo) (['"])(.*?)\1""", re.DOTALL)
"""A program in a command line: run directly, or written to a file."""


@pytest.mark.parametrize("module", MODULES)
def test_all_names_what_can_be_imported(module: str) -> None:
    """`__all__` lists each name once, and each name exists."""
    public = import_module(module)
    assert len(set(public.__all__)) == len(public.__all__)
    assert all(hasattr(public, name) for name in public.__all__)


@pytest.mark.parametrize("package", ["cdc_reader", "cdc_reader.checkpoints", "cdc_reader.testing"])
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    """Packages with lazy imports raise AttributeError for unknown names, like any other module."""
    with pytest.raises(AttributeError, match="nonesuch"):
        getattr(import_module(package), "nonesuch")  # noqa: B009 - mypy knows that it is missing


@pytest.mark.parametrize(
    "package",
    ["cdc_reader", "cdc_reader.checkpoints", "cdc_reader.testing", "pyspark_scylla_cdc"],
)
def test_names_are_imported_from_where_type_checkers_find_them(package: str) -> None:
    """A package imports the same names on first use as it does for type checking."""
    module = import_module(package)
    [checked] = [node for node in parse(inspect.getsource(module)).body if isinstance(node, ast.If)]
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: each.module for each in imports for alias in each.names}
    assert ast.unparse(checked.test) == "TYPE_CHECKING"
    assert homes == module._HOMES


@pytest.mark.skipif(
    version("pyspark") < "4.3", reason="the data source has the signature of Spark's base class"
)
def test_the_reference_is_current() -> None:
    """The reference page is the output of `make api`."""
    assert PAGE.read_text() == page(), "the docstrings have changed: run make api"


def test_the_reference_names_nothing_private() -> None:
    """The reference mentions no module, class or function that users may not import."""
    code = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    text = code.sub("", PAGE.read_text())
    shown = set(re.findall(r"\w+", "".join(code.findall(PAGE.read_text()))))
    named = set(re.findall(r"`([\w.]+)`", text))
    assert {name for name in named if "." in name and is_ours(name)} <= set(MODULES)
    assert not named & {name for name in defined() if not name.islower() or "_" in name} - shown
    assert "For maintainers" not in text


def defined() -> Iterator[str]:
    """Yield the names of all classes and functions of this project that are not public."""
    for file in [*(ROOT / "cdc_reader").rglob("*.py"), *(ROOT / "connectors").rglob("*.py")]:
        for node in parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name not in PUBLIC:
                yield node.name


def sources() -> Iterator[tuple[str, str]]:
    """Yield all Python code of the pages and examples, with its path."""
    for example in EXAMPLES:
        yield str(example.relative_to(ROOT)), example.read_text()
    for notebook in NOTEBOOKS:
        for cell in json.loads(notebook.read_text())["cells"]:
            if cell["cell_type"] == "code":
                yield str(notebook.relative_to(ROOT)), "".join(cell["source"])
    for shown in SHOWN:
        if shown != PAGE:
            for block in BLOCK.findall(shown.read_text()):
                yield str(shown.relative_to(ROOT)), block
            for _, program in QUOTED.findall("".join(CONSOLE.findall(shown.read_text()))):
                yield str(shown.relative_to(ROOT)), program


def names_of_ours(code: str) -> Iterator[tuple[str, str]]:
    """Yield each use of a name from this project's modules: the module and the name."""
    nodes = list(ast.walk(parse(code)))
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
    """Return True if a module belongs to this project."""
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


PUBLIC = {
    name: getattr(module, name) for module in map(import_module, MODULES) for name in module.__all__
}
"""The public objects by name."""


def test_public_signatures_name_public_types_only() -> None:
    """Parameters, results and fields have public types, or types of Python and of dependencies."""
    named = {use for shown in PUBLIC.values() for use in types_named(shown)}
    assert len(named) > 100
    private = {
        (place, name)
        for place, name, module in named
        if name not in PUBLIC and is_ours(home_of(name, module))
    }
    assert not private


def types_named(shown: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the location, the name and the module of each name in a public signature."""
    if not (inspect.isclass(shown) or inspect.isfunction(shown)):
        return
    for place, hints, module in annotated(shown):
        for annotation in hints.values():
            for node in ast.walk(parse(str(annotation))):
                if isinstance(node, ast.Name):
                    yield place, node.id, module


def annotated(shown: Any) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield the location, the annotations and the module of each signature in the reference."""
    name, module = shown.__name__, shown.__module__
    if inspect.isfunction(shown):
        yield name, shown.__annotations__, module
        return
    fields = vars(shown).get("__annotations__", {})
    yield name, {field: fields[field] for field in fields if not field.startswith("_")}, module
    if name not in MADE and inspect.isfunction(shown.__init__):
        yield name, shown.__init__.__annotations__, shown.__init__.__module__
    for attribute, member in vars(shown).items():
        function = function_of(member)
        if function and not attribute.startswith("_") and name not in VALUES:
            yield f"{name}.{attribute}", function.__annotations__, function.__module__


def function_of(member: Any) -> Any:
    """Return the function of a method or property, or None for other members."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    function = getattr(member, "__func__", member)
    return function if inspect.isfunction(function) else None


def home_of(name: str, module: str) -> str:
    """Return the module that defines a name used in an annotation in `module`."""
    if hasattr(builtins, name) or name in sys.stdlib_module_names:
        return "builtins"
    for node in ast.walk(parse(inspect.getsource(sys.modules[module]))):
        match node:
            case ast.ImportFrom(module=str(home)) if name in names_bound(node):
                return home
            case ast.Import() if name in names_bound(node):
                return name
    is_parameter = isinstance(getattr(sys.modules[module], name, None), TypeVar)
    return "typing" if is_parameter else module


def names_bound(node: ast.ImportFrom | ast.Import) -> set[str]:
    """Return the names that an import statement binds."""
    return {(alias.asname or alias.name).split(".")[0] for alias in node.names}

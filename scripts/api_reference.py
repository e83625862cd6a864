"""Write docs/reference/api.md from the docstrings of the public API: `make api`."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum, StrEnum
from importlib import import_module
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import NOTHING, has

from cdc_reader.metrics import Metric

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "api.md"
MODULES = (
    "cdc_reader",
    "cdc_reader.checkpoints",
    "cdc_reader.errors",
    "cdc_reader.metrics",
    "cdc_reader.testing",
    "pyspark_scylla_cdc",
    "pyspark_scylla_cdc.local_session",
)
"""The public modules. The names in their `__all__` are public."""
MADE = {
    *("Change", "FrozenDict", "Mirror", "RowsRead"),
    *("TableReader", "TableSnapshot", "WindowComplete"),
}
"""Classes whose objects only the library creates: their constructors are private."""
VALUES = {
    *("Column", "ContainerNode", "Generation", "Node", "RowKey"),
    *("StreamRange", "StreamSet", "TtlHistory"),
}
"""Values whose fields are public and whose methods are private."""
HEAD = """\
# Public API

The names on this page are public; the [changelog](../../CHANGELOG.md) announces each change to
them. Import a name from the module it is listed under. All other modules and names are private,
with or without a leading underscore, and may change at any time.

`make api` writes this page from the docstrings.
"""
REFERENCE = re.compile(r"See `\w+\.\w+`\.")
"""A docstring of a method that its interface describes."""
LINE = 100
MARKDOWN = (
    (r"\n\nFor maintainers: [\s\S]*", ""),
    (r"``", "`"),
    (r"^::\n\n", ""),
    (r"^Args:\n", "Arguments:\n\n"),
    (r"^ {4}(\w+): (.*(?:\n {8}.*)*)", r"- `\1`: \2"),
)
"""Replacements that turn docstrings into Markdown, without the part for maintainers.

Indented code stays code.
"""


def page() -> str:
    """Return the text of the page."""
    homes: dict[str, str] = {}
    parts = (part for name in MODULES for part in _module(name, homes))
    return "\n\n".join([HEAD.strip(), *parts]) + "\n"


def _module(name: str, homes: dict[str, str]) -> Iterator[str]:
    """Describe a module and its names. `homes` maps each name described so far to its module."""
    module = import_module(name)
    yield f"## {name}"
    yield _text(module)
    again = [public for public in module.__all__ if _is_described(module, public, homes)]
    if again:
        names = ", ".join(f"`{public}`" for public in again)
        yield f"Also here, described under `{homes[again[0]]}`: {names}."
    values = {public: getattr(module, public) for public in module.__all__}
    metrics = [
        f"- `{public}`: `scylla_cdc_{value.name}`"
        for public, value in values.items()
        if isinstance(value, Metric)
    ]
    if metrics:
        yield "The metrics of a consumer, by the name in [Metrics](metrics.md):"
        yield "\n".join(metrics)
    for public in module.__all__:
        if public not in again and not isinstance(getattr(module, public), Metric):
            homes[public] = name
            yield f"### {public}"
            yield from _described(public, getattr(module, public), name)


def _is_described(module: ModuleType, public: str, homes: dict[str, str]) -> bool:
    """Whether the name was described in another module, and is not of something else there."""
    home = homes.get(public)
    return home is not None and getattr(import_module(home), public) is getattr(module, public)


def _described(name: str, value: Any, module: str) -> Iterator[str]:
    if getattr(value, "__name__", None) != name:
        yield from _assigned(name, module)
    elif inspect.isclass(value) and issubclass(value, Enum):
        yield _text(value)
        yield "\n".join(f"- `{member.name}`: `{member.value!r}`" for member in value)
    elif inspect.isclass(value):
        is_protocol = vars(value).get("_is_protocol")
        if not (issubclass(value, Exception) or is_protocol or name in MADE):
            yield _code(name, value)
        yield _text(value)
        if name not in VALUES:
            yield from _members(name, value)
    else:
        yield _code(name, value)
        yield _text(value)


def _members(name: str, kind: type) -> Iterator[str]:
    """Describe the public methods and properties, in the order of the source.

    A method whose docstring only refers to the method that it implements is left out.
    """
    for attribute, member in vars(kind).items():
        if attribute.startswith("_") or not member.__doc__ or REFERENCE.fullmatch(member.__doc__):
            continue
        function = getattr(member, "__func__", member)
        if inspect.isfunction(function):
            yield _code(
                f"{name}.{attribute}", function, skip_first=not isinstance(member, staticmethod)
            )
            yield _text(function)
        else:
            yield f"`{name}.{attribute}`: {_text(member)}"


def _code(name: str, function: Any, *, skip_first: bool = False) -> str:
    """Return the signature, on one line if it fits, else with a line for each parameter."""
    signature = inspect.signature(function)
    parameters = [*signature.parameters.values()][skip_first:]
    shown = [_parameter(parameter) for parameter in parameters]
    kinds = [parameter.kind for parameter in parameters]
    for at, (before, kind) in enumerate(pairwise([None, *kinds])):
        if kind is inspect.Parameter.KEYWORD_ONLY and before not in (
            inspect.Parameter.KEYWORD_ONLY,
            inspect.Parameter.VAR_POSITIONAL,
        ):
            shown.insert(at, "*")
    returns = signature.return_annotation
    arrow = "" if inspect.isclass(function) or returns in ("None", None) else f" -> {returns}"
    line = f"{name}({', '.join(shown)}){arrow}"
    if len(line) > LINE:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){arrow}"
    return f"```py\n{line}\n```"


def _parameter(parameter: inspect.Parameter) -> str:
    shown = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
    if parameter.annotation is not inspect.Parameter.empty:
        shown += f": {parameter.annotation}"
    if parameter.default is not inspect.Parameter.empty:
        shown += f" = {_default(parameter.default)}"
    return shown


def _default(value: Any) -> str:
    """Return the source text of a default, or `...` for a default created for each object."""
    if value is NOTHING:
        return "..."
    if isinstance(value, Enum):
        return repr(str(value)) if isinstance(value, StrEnum) else str(value)
    if has(type(value)) and value == type(value)():
        return f"{type(value).__name__}()"
    if type(value) is tuple and len(value) != 1:
        return f"({', '.join(map(_default, value))})"
    return repr(value).replace("datetime.", "")


def _assigned(name: str, module: str) -> Iterator[str]:
    """Describe an alias or a constant: its assignment in the source, and its docstring."""
    home = getattr(import_module(module), "_HOMES", {}).get(name, module)
    source = inspect.getsource(import_module(home))
    tree = ast.parse(source)
    blocks = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.With)]
    for statement, after in pairwise([*chain.from_iterable(blocks), ast.Pass()]):
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _target(statement) == name:
            yield f"```py\n{ast.get_source_segment(source, statement)}\n```"
            if isinstance(after, ast.Expr):
                yield _markdown(inspect.cleandoc(ast.literal_eval(after.value)))


def _target(statement: ast.Assign | ast.AnnAssign) -> str:
    first = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
    return ast.unparse(first)


def _text(described: Any) -> str:
    return _markdown(inspect.getdoc(described) or "")


def _markdown(docstring: str) -> str:
    for pattern, instead in MARKDOWN:
        docstring = re.sub(pattern, instead, docstring, flags=re.MULTILINE)
    text, heading, arguments = docstring.partition("Arguments:\n")
    return text + heading + arguments.replace("\n        ", "\n  ")


if __name__ == "__main__":
    PAGE.write_text(page())

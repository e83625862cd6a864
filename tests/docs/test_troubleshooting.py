"""The page on troubleshooting lists each error that a user can get, and no other error."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cdc_reader import errors
from tests.syntax import parse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/operate/troubleshooting.md"
SOURCES = [
    path
    for folder in ("cdc_reader", "connectors/pyspark_scylla_cdc")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "testing" not in path.parts
]
SELF_EXPLANATORY = {"ConfigurationError", "DecodeError"}
"""Error classes whose messages, about options or bytes, the page explains in general terms."""
VARIABLE = "…"
SECTION = re.compile(r"^### `(\w+)`\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
FIRST_CELL = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


@cache
def documented() -> dict[str, list[str]]:
    """Return the messages on the page, by the error class of their section."""
    sections = SECTION.findall(PAGE.read_text() + "\n##")
    return {name: FIRST_CELL.findall(text) for name, text in sections}


@cache
def warnings() -> list[str]:
    """Return the events in the page's table of warnings."""
    _, _, text = PAGE.read_text().partition("\n## Warnings in the log\n")
    return FIRST_CELL.findall(text)


def template(node: ast.expr) -> str:
    """Return the fixed parts of a text, joined by `VARIABLE`."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(template, values))
    return VARIABLE


def fixed(text: str) -> list[str]:
    """Return the non-empty fixed parts of a template."""
    parts = (part.strip(" ;:,") for part in text.split(VARIABLE))
    return [part for part in parts if part]


@cache
def nodes() -> list[ast.AST]:
    """Return all syntax nodes of the sources."""
    return [node for path in SOURCES for node in ast.walk(parse(path.read_text()))]


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield each call in the sources, with the name of the function or class."""
    for node in nodes():
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name, node


@cache
def raised() -> dict[str, set[str]]:
    """Return the messages in the sources, by error class, except messages without fixed text."""
    found = defaultdict(set)
    for name, call in calls():
        if name in errors.__all__ and call.args:
            message = template(call.args[0])
            if sum(map(len, fixed(message))) > len("username is"):
                found[name].add(message)
    return found


@cache
def texts() -> str:
    """Return all fixed texts of the sources, one per line."""
    found = (node for node in nodes() if isinstance(node, ast.Constant | ast.JoinedStr))
    return "\n".join(map(template, found))


def test_each_class_has_a_section_and_no_section_lacks_a_class() -> None:
    """Each error class has a section on the page, and each section describes an error class."""
    assert sorted(documented()) == sorted(errors.__all__)


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - SELF_EXPLANATORY))
def test_each_message_of_a_class_is_in_its_section(name: str) -> None:
    """Each message of an error class is in the section of that class, where users search for it."""
    missing = raised()[name] - set(documented()[name])
    assert missing == set(), f"describe each in {PAGE}, section {name}"


def test_the_messages_of_the_page_are_those_of_the_code() -> None:
    """The fixed parts of each message on the page also occur in the code."""
    shown = {message for messages in documented().values() for message in messages}
    assert shown
    strange = {part for message in shown for part in fixed(message) if part not in texts()}
    assert strange == set()


def test_each_warning_of_the_log_is_on_the_page_and_no_other() -> None:
    """Each event logged as a warning or error has a row on the page, and no other event has one."""
    logged = {
        call.args[0].value
        for name, call in calls()
        if name in ("warning", "error") and call.args
        if isinstance(call.args[0], ast.Constant)
    }
    assert logged <= set(warnings())
    assert {event for event in warnings() if event not in texts()} == set()


def test_each_row_of_the_page_has_an_explanation() -> None:
    """Each row of the page has two cells, none of which is empty."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    whole = re.compile(r"\| `[^`]+` \| [^|]+ \|")
    assert [row for row in rows if not whole.fullmatch(row)] == []

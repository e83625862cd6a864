"""Each `scylla-cdc` command on the pages runs, and prints the output shown there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import frozen
from click.testing import CliRunner

from cdc_reader.cli.command import main

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOSTS = "scylla.example.com:9042"
TO_ITS_END = dict.fromkeys(("mirror", "replicate", "tail"), ("--until", "now"))
"""Options that end commands that would otherwise run forever."""
PICK = "jq -c '[.operation, .key, .deltas]'"
"""The only other program that the pages' commands run. `_picked` does the same in Python."""
COLUMNS = "(customer int, number int, status text, PRIMARY KEY (customer, number))"
ORDERS = (
    f"CREATE TABLE {{ks}}.orders {COLUMNS} WITH cdc = {{{{'enabled': true}}}}",
    f"CREATE TABLE {{ks}}.orders_copy {COLUMNS}",
    "INSERT INTO {ks}.orders (customer, number, status) VALUES (7, 1, 'placed')",
    "DELETE FROM {ks}.orders WHERE customer = 7 AND number = 1",
)


@frozen
class Example:
    """A command on a page, and the output shown below it."""

    line: str
    output: tuple[str, ...]


def examples(page: Path) -> Iterator[Example]:
    """Yield the commands of a page, in order."""
    for block in BLOCK.findall(page.read_text()):
        for shown in block.split("$ ")[1:]:
            line, *output = shown.splitlines()
            if line.startswith("scylla-cdc "):
                yield Example(line, tuple(output))


PAGES = [
    page for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if any(examples(page))
]


@pytest.fixture
def orders(scylla: Scylla, keyspace: str) -> str:
    """The keyspace that replaces the pages' `shop`."""
    for statement in ORDERS:
        scylla.session.execute(statement.format(ks=keyspace))
    return keyspace


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_print_the_shown_output(
    page: Path, scylla: Scylla, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command prints the shown output, except for times, durations and numbers of streams."""
    monkeypatch.chdir(tmp_path)
    for example in examples(page):
        line = re.sub(r"\bshop\.", f"{orders}.", example.line).replace(HOSTS, scylla.contact_point)
        command, _, picked = line.partition(" | ")
        words = shlex.split(command)[1:]
        if "--until" not in words:
            words += TO_ITS_END.get(words[0], [])
        if words[0] in TO_ITS_END:
            words += ["--confidence-window", "0s"]
        outcome = CliRunner().invoke(main, words, env={"SCYLLA_CDC_HOSTS": scylla.contact_point})
        assert outcome.exit_code == 0, (line, outcome.output)
        assert picked in ("", PICK)
        printed = _picked(outcome.stdout) if picked else outcome.stdout
        if example.output:
            expected = "\n".join(example.output).replace("shop.", f"{orders}.")
            assert _known(printed) == _known(expected), line


def _picked(text: str) -> str:
    """Return what the command `PICK` would print for this output."""
    objects = [json.loads(line) for line in text.splitlines()]
    parts = [[found[name] for name in ("operation", "key", "deltas")] for found in objects]
    return "\n".join(json.dumps(part, separators=(",", ":")) for part in parts)


def _known(text: str) -> list[list[str]]:
    """Return the words of each line. Times, durations and numbers of streams are replaced."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "<time>", text)
    text = re.sub(r"\b\d+ (h|min|s)\b", "<duration>", text)
    text = re.sub(r"(vnodes +)\d+ +\d+", r"\1<streams>", text)
    return [line.split() for line in text.splitlines()]

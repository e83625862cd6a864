"""The page on alerts lists each rule of the examples with its expression, and no other rule."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operate/alarms.md").read_text()


def test_the_alarms_of_the_page_are_those_of_the_rules() -> None:
    """Each alert of the rules has a row on the page, which states what to do."""
    groups = yaml.safe_load((ROOT / "examples/monitoring/alerts.yml").read_text())["groups"]
    rules = {rule["alert"] for group in groups for rule in group["rules"]}
    rows = "".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(Cdc\w+)`", rows)) == rules


def test_the_expressions_of_the_page_are_those_of_the_rules() -> None:
    """Each alert of the rules has a row with the same expression and the same `for`."""
    groups = yaml.safe_load((ROOT / "examples/monitoring/alerts.yml").read_text())["groups"]
    rules = [
        (rule["alert"], rule["expr"], rule.get("for", ""))
        for group in groups
        for rule in group["rules"]
    ]
    assert re.findall(r"^\| `(Cdc\w+)` \| `([^`]+)` \| ?(\w*) ?\|$", PAGE, re.MULTILINE) == rules

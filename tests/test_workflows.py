"""All targets and modules that the CI workflows run exist in this project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def commands(value: Any) -> list[str]:
    """Return all texts in a workflow, any of which may be a command."""
    match value:
        case dict():
            return [text for item in value.values() for text in commands(item)]
        case list():
            return [text for item in value for text in commands(item)]
        case str():
            return [value]
    return []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_the_targets_and_modules_of_a_workflow_exist(workflow: Path) -> None:
    """The targets and modules that a workflow runs exist. A missing one would break it."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    texts = commands(yaml.safe_load(workflow.read_text()))
    for target in (name for text in texts for name in re.findall(r"\bmake ([a-z-]+)", text)):
        assert target in targets
    for module in (name for text in texts for name in re.findall(r"python -m (scripts\S+)", text)):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_a_workflow_may_write_only_where_it_publishes() -> None:
    """By default a workflow may only read. Only jobs that publish have more permissions."""
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        writes = [job for job in workflow["jobs"].values() if "permissions" in job]
        assert bool(writes) == (path.stem in {"docs", "release"})

"""The reference of Python settings lists each setting, of which there are few."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from attrs import fields

from cdc_reader import CdcConsumer, ConnectionConfig, ConsumerConfig, ReadConfig

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python-settings.md"
SETTINGS = {
    "setting of `ConnectionConfig`": [field.name for field in fields(ConnectionConfig)],
    "setting of `ReadConfig`": [field.name for field in fields(ReadConfig)],
    "setting of `ConsumerConfig`": [field.name for field in fields(ConsumerConfig)],
    "argument of `CdcConsumer`": list(inspect.signature(CdcConsumer).parameters),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_each_setting_has_a_row(kind: str) -> None:
    """The table has a row for each setting, in the code's order, with a reason to set it."""
    _, table = PAGE.read_text(encoding="utf-8").split(f"| {kind} ")
    rows = re.findall(r"^\| `(\w+)` \| .*\| \S.* \|$", table.split("\n\n")[0], re.MULTILINE)
    assert rows == SETTINGS[kind]


def test_there_are_few_settings() -> None:
    """Each further setting must replace another, or be decided by the code."""
    assert sum(map(len, SETTINGS.values())) <= 43

"""Handlers on the pages are safe to run in several threads."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs/howto/follow-in-python.md"


class Output:
    """A replacement for stdout that records the text of each `write` call."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)


def test_the_handler_writes_each_line_with_a_single_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler writes each line with a single call, so that threads cannot interleave output."""
    page = PAGE.read_text()
    start = page.index("def handle(change):")
    namespace: dict[str, Any] = {"sys": sys, "consumer": SimpleNamespace(stop=lambda: None)}
    exec(page[start : page.index("\n\n", start)], namespace)
    output = Output()
    monkeypatch.setattr(sys, "stdout", output)
    namespace["handle"]("a change")
    assert output.written == ["a change\n"]

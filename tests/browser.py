"""Headless Chromium, controlled with Playwright."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

_FIND = Path(__file__).parents[1] / "scripts" / "chromium"


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium, or skip the test if it is not installed."""
    found = subprocess.run([_FIND], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=found.stdout.strip(), args=["--no-sandbox"]
        ) as browser,
    ):
        yield browser

"""Parsing of the project's sources."""

from __future__ import annotations

import ast
import sys


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a module while other threads wait.

    CPython 3.11 may fail to parse while a thread formats a traceback, as the driver's threads do,
    which outlive the tests that connected.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        return ast.parse(source)
    finally:
        sys.setswitchinterval(interval)

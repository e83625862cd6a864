"""Parsing of the project's sources."""

from __future__ import annotations

import ast
import sys


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a module. No other Python thread runs meanwhile.

    CPython 3.11 may fail to parse while another thread formats a traceback. The driver's threads do
    so, and they outlive the tests that connected.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        return ast.parse(source)
    finally:
        sys.setswitchinterval(interval)

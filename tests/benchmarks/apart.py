"""Runs functions in a separate Python process, so that their memory can be measured."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def apart(function: Callable[..., T], *arguments: object) -> T:
    """Run the function in a new process, and return its result or raise its error."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(theirs, function, arguments), daemon=True
    )
    process.start()
    theirs.close()
    try:
        is_result, answer = ours.recv()
    finally:
        process.join(10)
        process.kill()
    if not is_result:
        raise answer
    result: T = answer
    return result


def peak_mb() -> float:
    """Return this process's peak memory so far, in MB."""
    return _status("VmHWM")


def resident_mb() -> float:
    """Return this process's current memory, in MB."""
    return _status("VmRSS")


def _status(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def _run(pipe: Connection, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
    try:
        pipe.send((True, function(*arguments)))
    except Exception as error:  # noqa: BLE001 - raised again by `apart`
        pipe.send((False, error))

"""Reduces the traceback of a handler's error to the frames of the user's code."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import tenacity

E = TypeVar("E", bound=BaseException)

_OURS = tuple(
    str(folder)
    for folder in (
        Path(__file__).parents[1],
        Path(tenacity.__file__).parent,
        Path(concurrent.futures.__file__).parent,
    )
)


def of_user(error: E) -> E:
    """Remove the frames from the error's traceback that lead from this library to the user's code.

    An error without other frames, such as one of the library's own writers, keeps its traceback.
    """
    found: TracebackType | None = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename.startswith(_OURS):
        found = found.tb_next
    return error if found is None else error.with_traceback(found)

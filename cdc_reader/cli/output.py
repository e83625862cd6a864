"""Handles a stdout that is a pipe whose reader ends early, as in `| head`."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def until_pipe_closes() -> Iterator[None]:
    """Leave the block without an error once nobody reads the output anymore."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Discard the buffered output, so that Python does not try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reader_is_gone() -> bool:
    """Return True if stdout is a pipe without a reader. Does not write to the pipe."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # stdout is not a file
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))

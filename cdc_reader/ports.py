"""What the core needs of the world, in its own words; `driver` and the test kit provide it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from cdc_reader.generation import StreamGroup
from cdc_reader.task import Task


class LogSource(Protocol):
    """Reads rows of one log table."""

    def read(self, task: Task) -> Iterator[pa.RecordBatch]:
        """The task's rows, each stream's in order, a batch a page.

        The first page is asked for at the call, not at the first `next`: starting several
        reads before draining the first one overlaps them.
        """
        ...


class GenerationSource(Protocol):
    """Knows the generations of one table."""

    def timestamps(self) -> Sequence[int]:
        """The starts, in µs, of all generations visible now; in any order."""
        ...

    def groups(self, start: int) -> Sequence[StreamGroup]:
        """The stream groups of the generation that starts at `start`; empty if it has none."""
        ...


class Clock(Protocol):
    """Time, which a test moves by hand."""

    def now(self) -> int:
        """µs since 1970."""
        ...

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Return after `micros`, or as soon as `wake` is set."""
        ...

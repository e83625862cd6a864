"""What the core needs of the world, in its own words; `driver`, `checkpoint` and the test kit
provide it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from cdc_reader.generation import StreamGroup
from cdc_reader.progress import Checkpoint, CheckpointName
from cdc_reader.schema import LogSchema
from cdc_reader.task import RangeTask, Task

REMAINING = "ttl(cdc$operation)"
"""The column, an int32 of seconds, that a read with `remaining` has after the log's own."""


class LogSource(Protocol):
    """Reads rows of one log table, with the columns of one `LogSchema`."""

    def read(self, task: Task | RangeTask, *, remaining: bool = False) -> Iterator[pa.RecordBatch]:
        """The task's rows, each stream's in order, a batch a page; none is empty.

        The first page is asked for at the call, not at the first `next`: starting several
        reads before draining the first one overlaps them. With `remaining` each batch has
        one more column, `REMAINING`: the seconds the row still lives, null if for good.
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

    def unpublished(self) -> Sequence[int]:
        """The starts, in µs, of generations whose streams are written, but whose timestamp is
        not yet: they may be in force already. In any order.
        """
        ...


class LogTable(Protocol):
    """One table as the cluster shows it: its schema, its generations, its log."""

    @property
    def generations(self) -> GenerationSource: ...

    def schema_version(self) -> object:
        """What changes whenever any schema does; costs one small query."""
        ...

    def schema(self) -> LogSchema:
        """The schema as it is now; raises TableNotFoundError, CdcNotEnabledError and so on."""
        ...

    def source(self, schema: LogSchema) -> LogSource:
        """A source of rows with the columns of `schema`."""
        ...


class CheckpointStore(Protocol):
    """Keeps checkpoints; one writer a name."""

    def load(self, name: CheckpointName) -> Checkpoint | None:
        """The last one saved, without marks of rows before its position; None if there is none."""
        ...

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        """Keep it, whole or not at all; it is durable on return.

        Its marks replace those of the same streams and leave those of others as they are;
        a mark whose rows all lie before the position is void. So an idle window costs one
        small write, however many streams there are.
        """
        ...

    def close(self) -> None:
        """Give up what the store holds; using it again opens it anew."""
        ...


class Clock(Protocol):
    """Time, which a test moves by hand."""

    def now(self) -> int:
        """µs since 1970."""
        ...

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Return after `micros`, or as soon as `wake` is set."""
        ...

"""Spark partitions: what one task of Spark reads, packed small for its way to an executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql.datasource import InputPartition

from cdc_reader.generation import Generation
from cdc_reader.ids import StreamId
from cdc_reader.task import Task, plan, split
from cdc_reader.window import Window

_ID_SIZE = 16


class LogPartition(InputPartition):
    """A run of read tasks. Streams travel as bytes: a large cluster has millions of them."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._packed = tuple(
            (task.window.start, task.window.end, b"".join(task.streams)) for task in tasks
        )

    def tasks(self) -> Iterator[Task]:
        """The tasks in the order to read them."""
        for start, end, ids in self._packed:
            streams = (StreamId(ids[at : at + _ID_SIZE]) for at in range(0, len(ids), _ID_SIZE))
            yield Task(Window(start, end), tuple(streams))

    def __repr__(self) -> str:
        streams = sum(len(ids) // _ID_SIZE for _, _, ids in self._packed)
        return f"LogPartition(tasks={len(self._packed)}, streams={streams})"


def partitions(
    generations: Sequence[Generation], window: Window, chunk_size: int, limit: int
) -> list[LogPartition]:
    """The window in at most `limit` partitions: as many as that, given as many streams.

    Chunks are cut smaller than `chunk_size` where the partitions would come out uneven or
    too few: a query less full costs less than an idle executor.
    """
    streams = sum(1 for generation in generations for _ in generation.streams())
    size = max(1, min(chunk_size, streams // limit))
    return [LogPartition(tasks) for tasks in split(plan(generations, window, size), limit)]

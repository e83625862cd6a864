"""Spark partitions: what one task of Spark reads, packed small for its way to an executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from attrs import evolve
from pyspark.sql.datasource import InputPartition

from cdc_reader.ids import StreamId
from cdc_reader.task import Task, split
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


def partitions(tasks: Sequence[Task], limit: int) -> list[LogPartition]:
    """The tasks in at most `limit` partitions: as many as that, given as many streams.

    Tasks are cut where whole ones would make too few partitions, or uneven ones: a query
    that is less full costs less than an executor that is idle.
    """
    size = max(1, sum(len(task.streams) for task in tasks) // limit)
    cut = [part for task in tasks for part in _cut(task, size)]
    return [LogPartition(run) for run in split(cut, limit)]


def _cut(task: Task, size: int) -> Iterator[Task]:
    """The task in parts of at most `size` streams, as even as can be."""
    count = -(-len(task.streams) // size)
    edges = [len(task.streams) * index // count for index in range(count + 1)]
    for start, end in pairwise(edges):
        yield evolve(task, streams=task.streams[start:end])

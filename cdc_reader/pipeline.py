"""Several reads under way at a time, handed on in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import pyarrow as pa

from cdc_reader.ports import LogSource
from cdc_reader.task import RangeTask, Task


def read_tasks(
    source: LogSource, tasks: Iterable[Task | RangeTask], in_flight: int, *, remaining: bool = False
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches of `tasks`, task after task, each with the number of its task.

    Up to `in_flight` tasks have a page asked for while one is handed on; so what is held in
    memory is bounded by that many pages, whatever the tasks hold.
    """
    started: deque[tuple[int, Iterator[pa.RecordBatch]]] = deque()
    for number, task in enumerate(tasks):
        if len(started) >= in_flight:
            yield from _drain(*started.popleft())
        started.append((number, source.read(task, remaining=remaining)))
    while started:
        yield from _drain(*started.popleft())


def _drain(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in batches:
        yield number, batch

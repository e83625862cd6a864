"""Keeps the files of a copy few and of the right size, between micro-batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from attrs import define, evolve, field
from pyspark.sql import SparkSession

from cdc_reader._log import get_logger
from cdc_reader.copies.upkeep import DAY, EVERY, MOST_FILES
from pyspark_scylla_cdc.tables.buckets import split_by, wanted
from pyspark_scylla_cdc.tables.layout import Layout
from pyspark_scylla_cdc.tables.sink import Files, Sink

log = get_logger(__name__)

SECONDS = 10.0
"""How long work may take after a micro-batch; what is left is done after the next one."""
_AT_ONCE = 16
"""The number of buckets that are compacted in one commit."""


@define
class Maintenance:
    """Divides and compacts the buckets of a copy, and removes files that are no longer used.

    Each step is a commit of its own, so that a crash leaves the copy as it was before the step. A
    step that fails is logged, and changes nothing for the micro-batches that follow.
    """

    files: Mapping[int, Files] = field(factory=dict, init=False)
    """The files of each bucket, when they were last looked at."""
    _next: int = field(default=0, init=False)
    """The number of the micro-batch after which to look at the files."""
    _cleaned: float | None = field(default=None, init=False)

    def after(self, number: int, sink: Sink, layout: Layout, spark: SparkSession) -> None:
        """Work on the copy after the micro-batch with this number, if that is due."""
        if number < self._next:
            return
        self._next = number + EVERY
        started = time.monotonic()
        try:
            self.files = sink.files(spark)
            for told in self._steps(sink, layout, spark) if layout.bucket is not None else ():
                log.info("copy_maintained", target=sink.target, **told)
                if time.monotonic() - started > SECONDS:
                    self._next = number + 1
                    return
        except Exception as error:  # noqa: BLE001 - the copy itself is not affected
            log.warning("maintenance_failed", target=sink.target, error=str(error))

    def _steps(
        self, sink: Sink, layout: Layout, spark: SparkSession
    ) -> Iterator[Mapping[str, int]]:
        """Take one step after another, and yield what each has done."""
        most = wanted(sum(each.rows for each in self.files.values()))
        while (count := sink.buckets()) < most:
            _divide(sink, evolve(layout, buckets=count + 1), spark)
            yield {"buckets": count + 1}
        due = sorted(number for number, each in self.files.items() if is_due(each))
        for at in range(0, len(due), _AT_ONCE):
            some = due[at : at + _AT_ONCE]
            sink.compact(layout, some)
            yield {"compacted": len(some)}
        now = time.monotonic()
        if self._cleaned is None or now - self._cleaned > DAY:
            self._cleaned = now
            sink.clean(spark)
            yield {"cleaned": 1}


def is_due(files: Files) -> bool:
    """Return whether a bucket is to be compacted."""
    return files.count > MOST_FILES


def _divide(sink: Sink, layout: Layout, spark: SparkSession) -> None:
    """Add the last bucket of the layout. Its rows keep their values in columns that are dropped."""
    new = layout.buckets - 1
    among = [split_by(new), new]
    rows = layout.placed(sink.rows(spark, among))
    sink.divide(layout, rows, among)

"""Repeats runs with the trigger ``availableNow``, which Spark 4.0 and 4.1 end too early.

These versions end such a run after one micro-batch, even if limits leave rows unread. The source
cannot continue, because Spark does not tell it which trigger is used. `mirror` knows the trigger.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from attrs import define, field
from pyspark.sql import SparkSession

from cdc_reader._time import Micros
from cdc_reader.cluster import ClusterClock, Connection
from cdc_reader.reading.advance import settled_before
from pyspark_scylla_cdc.offsets.offset import Offset
from pyspark_scylla_cdc.offsets.spark_checkpoint import last_committed, planned
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.spark_versions import TELLS_START
from pyspark_scylla_cdc.streaming.snapshot_end import UNLIMITED

_LIMITS = ("maxrowspertrigger", "maxbytespertrigger")


def needs_repeats(trigger: Mapping[str, Any]) -> bool:
    """Return whether Spark ends a run with this trigger before everything available is read."""
    return not TELLS_START and bool(trigger.get("availableNow"))


@define
class RepeatedRuns:
    """Decides whether a query with the trigger ``availableNow`` needs another run.

    The last run is the one that has no micro-batch, or that reaches the rows that had settled when
    the first one began.
    """

    _spark: SparkSession
    _options: Mapping[str, str]
    _checkpoint: str
    _until: Micros | None = field(default=None, init=False)
    _began_after: int | None = field(default=None, init=False)

    def begin(self) -> dict[str, str]:
        """Begin a run, and return its options.

        A snapshot is read in micro-batches of limited size, as in newer versions of Spark.
        """
        options = dict(self._options)
        parsed = SourceOptions.parse(options)
        if self._until is None:
            self._until = _settled(parsed)
        self._began_after = last_committed(self._spark, self._checkpoint)
        is_limited = any(name.lower() in _LIMITS for name in options)
        is_done = (
            self._began_after is not None and not self._end(self._began_after).is_before_snapshot
        )
        if is_limited or (is_done and not parsed.takes_new_snapshots):
            return options
        return {**options, "maxRowsPerTrigger": str(UNLIMITED)}

    def is_last(self) -> bool:
        """Return whether the run that has ended without an error is the last one."""
        last = last_committed(self._spark, self._checkpoint)
        if last is None or last == self._began_after:
            return True
        end = self._end(last)
        return (
            not end.is_before_snapshot and self._until is not None and end.position >= self._until
        )

    def _end(self, number: int) -> Offset:
        """Return the offset at the end of a micro-batch."""
        [end] = planned(self._spark, self._checkpoint, number).ends
        return end


def _settled(options: SourceOptions) -> Micros:
    """Return the write time, by the cluster's clock, before which all rows have settled now."""
    with options.as_option_errors(), closing(Connection(options.connection(), options.read)) as it:
        return settled_before(ClusterClock(it).now(), options.confidence)

"""Streaming reading: the log followed at a distance, in micro-batches Spark can repeat.

What Spark does, and what follows from it:

* `initialOffset` is asked twice at the start of a query, and again on a restart before the
  first commit. So the first `latestOffset` answers with the start itself: an empty first
  micro-batch writes the position to the checkpoint before anything is read from there.
* `latestOffset` is polled some forty times a second: it asks the clock, and the cluster only
  when time for a micro-batch has come, whether a generation is under way and, with a limit of
  rows, how many there are.
* A micro-batch may be planned again after a restart: its partitions follow from the two
  offsets and the generation tables alone.
* `stop` is not called on a clean stop, and `commit` lags one micro-batch: nothing hangs on
  either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from cdc_reader.clock import SystemClock
from cdc_reader.errors import DataLossError
from cdc_reader.logs import get_logger
from cdc_reader.ports import Clock
from cdc_reader.schema import LogSchema
from cdc_reader.window import Window
from pyspark_scylla_cdc.announced import Announced
from pyspark_scylla_cdc.log import (
    check_columns,
    expected,
    generations_of,
    oldest_alive,
    plan,
    read_partition,
    row_limit,
    timeline_of,
)
from pyspark_scylla_cdc.offset import Offset
from pyspark_scylla_cdc.options import SourceOptions
from pyspark_scylla_cdc.pace import Pace
from pyspark_scylla_cdc.refusal import told_plainly
from pyspark_scylla_cdc.snapshot import snapshot_partitions

log = get_logger(__name__)

_GRACE = 60_000_000
"""µs by which rows may outlive the TTL, counted from their write times, before one is missed."""

_ONE_WINDOW = ReadMaxFiles(1)
"""Spark knows no limit by time and carries no limit of our own making: the one it carries
for us says no more than that the source is to observe its limit."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log; the position it keeps is a write time."""

    def __init__(
        self,
        options: SourceOptions,
        schema: LogSchema,
        names: tuple[str, ...],
        clock: Clock | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._names = names
        self._clock = clock or SystemClock()
        self._pace = Pace.of(options)
        self._known = Announced(partial(generations_of, options))
        self._initial: Offset | None = None
        self._planned = False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._pace = self._pace.until(self._clock.now())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return _ONE_WINDOW

    @told_plainly()
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        if self._initial is None:
            self._initial = Offset(self._start(), self._options.snapshot)
        return self._initial.to_json()

    @told_plainly()
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, int]:
        position = Offset.from_json(start)
        if position == self._initial and not self._planned:
            return position.to_json()  # even of a snapshot: it must have been pinned
        limited = not isinstance(limit, ReadAllAvailable)
        now = self._clock.now()
        end = self._pace.next(position.position, now, limited=limited)
        if end > position.position:
            end = max(position.position, min(end, self._known.until(now)))
        if limited and self._options.max_rows is not None:
            end = self._cut(Window(position.position, end))
        return Offset(end).to_json()

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return Offset(self._pace.horizon(self._clock.now())).to_json()

    @told_plainly()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._planned = True
        since, until = Offset.from_json(start), Offset.from_json(end)
        window = Window(since.position, until.position)
        parts: list[InputPartition] = []
        if since.snapshot and not until.snapshot:
            parts += snapshot_partitions(since.position, self._options.max_partitions)
        if window.is_empty:
            return parts
        self._check_loss(window)
        check_columns(self._options, self._names)
        timeline, filled = timeline_of(self._options), self._filled(window)
        return parts + plan(self._options, self._schema.base, timeline, window, filled)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._schema, self._names, partition)

    def _filled(self, window: Window) -> Window | None:
        """Where rows are to be expected, if their time may be spread: that ends the order of rows
        in a partition, so it is done only where more partitions are asked for.
        """
        return expected(self._options, window) if self._options.min_partitions > 1 else None

    def _cut(self, window: Window) -> int:
        """Where the window ends that holds no more rows than a micro-batch may."""
        if window.is_empty:
            return window.end
        return row_limit(self._options, self._schema)(window)

    def _check_loss(self, window: Window) -> None:
        """Rows live as long as the log's TTL says, from when they arrive."""
        ttl = self._schema.base.cdc.ttl
        lost = Window(window.start, self._clock.now() - ttl * 1_000_000 - _GRACE)
        is_first = self._initial is not None and window.start == self._initial.position
        if ttl == 0 or lost.is_empty or is_first:
            return
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"failOnDataLoss is 'true': changes of {self._options.table} written in {lost} "
                f"were not read before they expired (the log's TTL is {ttl} s): give 'false' to "
                "go on without them, or start anew with a new checkpointLocation"
            )
        log.warning("changes_expired", table=str(self._options.table), window=str(lost))

    def _start(self) -> int:
        """Where a new query begins: at what the log may still hold, or later."""
        now, ttl = self._clock.now(), self._schema.base.cdc.ttl
        oldest = oldest_alive(timeline_of(self._options), ttl, now)
        if self._options.snapshot:
            return max(oldest, self._pace.horizon(now))
        kept_since = now - ttl * 1_000_000 if ttl else oldest
        return max(self._options.window(now).start, oldest, kept_since)

"""A listener that Spark calls after each micro-batch, in the driver's Python process."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from attrs import asdict
from pyspark.sql.streaming.listener import StreamingQueryListener

from cdc_reader._log import get_logger
from cdc_reader._time import Clock, SystemClock
from cdc_reader.errors import CdcError
from pyspark_scylla_cdc.monitoring.exporter import Exporter
from pyspark_scylla_cdc.monitoring.known import ALTERED, LISTENERS, RESTARTED
from pyspark_scylla_cdc.monitoring.progress import offset_of, status_at, status_of
from pyspark_scylla_cdc.monitoring.status import StreamStatus
from pyspark_scylla_cdc.monitoring.streams import MonitoredStreams
from pyspark_scylla_cdc.offsets.spark_checkpoint import last_committed, planned

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = get_logger(__name__)

_OUR_ERRORS = f"{CdcError.__module__}."
"""Text that Spark's description of an error contains if the source raised the error."""


class ScyllaCdcListener(StreamingQueryListener):
    """Watches a session's streaming queries that read from the source ``scylla_cdc``.

    After each micro-batch it logs one line, ``micro_batch``, at level info, in the process that
    created the listener. The attribute `streams` contains the same metrics, in a `StreamStatus` for
    each source. If a Prometheus `registry` is passed, the metrics are also exported to it.

    ::

        listener = ScyllaCdcListener()
        spark.streams.addListener(listener)

    Args:
        registry: the registry of `prometheus_client` to export to; by default none. Use only one
            listener for each registry. Needs the extra `metrics`.
        clock: replaces the system's clock in tests.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._streams = MonitoredStreams(self._clock)
        LISTENERS.add(self)
        if registry is not None:
            registry.register(Exporter(self._streams))

    def expect(self, spark: SparkSession, checkpoint: str) -> None:
        """Show where a query stands as soon as it starts, before it has finished a micro-batch.

        Call this before the query starts, with its ``checkpointLocation``. The lag, the headroom
        and the position are those of the last micro-batch that Spark has committed; a query that
        has committed none has no such figures yet. `mirror` calls this itself.
        """
        number = last_committed(spark, checkpoint)
        if number is None:
            return
        plan = planned(spark, checkpoint, number)
        now = self._clock.now()
        self._streams.expect(plan.query, [status_at(plan, end, now) for end in plan.ends])

    @property
    def streams(self) -> tuple[StreamStatus, ...]:
        """The status of each source of the running queries, as of now."""
        return self._streams.statuses()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._streams.start(str(event.id), str(event.runId), event.name or str(event.id))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        ends = [(source, offset_of(source.endOffset)) for source in progress.sources]
        ours = [(source, end) for source, end in ends if end is not None]
        if not ours:
            return
        now = self._clock.now()
        statuses = [status_of(progress, source, end, now) for source, end in ours]
        self._streams.advance(str(progress.id), str(progress.runId), statuses)
        for status in statuses:
            log.info("micro_batch", **_facts(status))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        error, query = event.exception, str(event.id)
        is_restarted = query in RESTARTED and ALTERED in (error or "")
        self._streams.end(
            query,
            str(event.runId),
            has_failed=error is not None and not is_restarted,
            is_ours=_OUR_ERRORS in (error or ""),
        )


def _facts(status: StreamStatus) -> dict[str, Any]:
    """Return the metrics for the log line, without unknown metrics."""
    facts = {
        **asdict(status, recurse=False),
        "table": str(status.table),
        "position": _text(status.position),
        "lost": status.lost and " to ".join(map(_text, status.lost)),
        "generation": status.generation and _text(status.generation),
        "lag_seconds": status.lag_seconds,
        "retention_headroom_seconds": status.retention_headroom_seconds,
        "snapshot_seconds_left": status.snapshot_seconds_left,
    }
    left_out = ("as_of", "expires")
    return {
        name: round(fact, 3) if isinstance(fact, float) else fact
        for name, fact in facts.items()
        if fact is not None and name not in left_out
    }


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")

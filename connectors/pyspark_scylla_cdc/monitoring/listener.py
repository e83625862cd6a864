"""A listener that Spark calls after each micro-batch, in the driver's Python process."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any

from attrs import asdict
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from cdc_reader._log import get_logger
from cdc_reader._time import Clock, SystemClock
from cdc_reader.errors import CdcError, ConfigurationError
from pyspark_scylla_cdc.monitoring.exporter import Exporter
from pyspark_scylla_cdc.monitoring.progress import offset_of, status_of
from pyspark_scylla_cdc.monitoring.status import StreamStatus
from pyspark_scylla_cdc.monitoring.streams import MonitoredStreams
from pyspark_scylla_cdc.offsets.offset import Offset
from pyspark_scylla_cdc.reports import Inbox, Report, everywhere

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = get_logger(__name__)

_OUR_ERRORS = f"{CdcError.__module__}."
"""Text that Spark's description of an error contains if the source raised the error."""
_KEPT = 4096
"""The maximum number of micro-batches whose reports are kept until Spark reports progress."""


class ScyllaCdcListener(StreamingQueryListener):
    """Watches a session's streaming queries that read from the source ``scylla_cdc``.

    After each micro-batch it logs one line, ``micro_batch``, at level info, in the process that
    created the listener. The attribute `streams` contains the same metrics, in a `StreamStatus` for
    each source. If a Prometheus `registry` is passed, the metrics are also exported to it.

    ::

        listener = ScyllaCdcListener()
        spark.streams.addListener(listener)
        changes = spark.readStream.format("scylla_cdc").option("reportTo", listener.address)

    Without option ``reportTo``, the metrics that only tasks provide are missing: see
    `StreamStatus`.

    Args:
        registry: the registry of `prometheus_client` to export to; by default none. Use only one
            listener for each registry. Needs the extra `metrics`.
        host: the host in `address`, at which Spark's executors reach this process, possibly through
            a gateway; the port is then opened at all addresses of this machine. By default
            ``spark.driver.host``, the address of the active session's driver.
        port: the UDP port for `address`; 0 for a free one.
        clock: replaces the system's clock in tests.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        host: str | None = None,
        port: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self._host = host and host.strip("[]")
        self._port = port
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._inbox: Inbox | None = None
        self._reports: dict[tuple[str, int], dict[int, Report]] = {}
        self._streams = MonitoredStreams(self._clock)
        if registry is not None:
            registry.register(Exporter(self._streams))

    @property
    def address(self) -> str:
        """The value of option ``reportTo``: the address to which tasks report, with a secret key.

        The first use opens a UDP port. Raises ConfigurationError if the port cannot be opened, or
        if no `host` is given and no active session names a driver.
        """
        with self._lock:
            if self._inbox is None:
                host, bind = (self._host, everywhere(self._host)) if self._host else _driver()
                self._inbox = Inbox(host, self._port, bind)
            return str(self._inbox.address)

    @property
    def streams(self) -> tuple[StreamStatus, ...]:
        """The status of each source of the running queries, as of now."""
        return self._streams.statuses()

    def close(self) -> None:
        """Close the port. Metrics that only tasks provide are missing from then on."""
        with self._lock:
            if self._inbox is not None:
                self._inbox.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._streams.start(str(event.runId), event.name or str(event.id))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        ends = [(source, offset_of(source.endOffset)) for source in progress.sources]
        ours = [(source, end) for source, end in ends if end is not None]
        if not ours:
            return
        reports, now = self._reports_of(str(progress.id), progress.batchId), self._clock.now()
        are_expected = self._inbox is not None and self._inbox.is_open
        statuses = [
            status_of(progress, source, end, _about(end, reports), now, are_expected=are_expected)
            for source, end in ours
        ]
        self._streams.advance(str(progress.id), str(progress.runId), statuses)
        for status in statuses:
            log.info("micro_batch", **_facts(status))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        with self._lock:
            self._forget(str(event.id))
        error = event.exception
        is_ours = error is not None and _OUR_ERRORS in error
        self._streams.end(
            str(event.id), str(event.runId), has_failed=error is not None, is_ours=is_ours
        )

    def _reports_of(self, query: str, batch: int) -> list[Report]:
        """Drain the inbox, and remove and return the reports of one micro-batch."""
        with self._lock:
            for report in self._inbox.take() if self._inbox is not None else ():
                self._reports.setdefault((report.query, report.batch), {})[report.task] = report
            found = self._reports.get((query, batch), {})
            self._forget(query, batch)
            for oldest in list(self._reports)[:-_KEPT]:
                del self._reports[oldest]
        return list(found.values())

    def _forget(self, query: str, until: float = inf) -> None:
        """Drop the reports of a query's micro-batches up to the number `until`."""
        for key in [key for key in self._reports if key[0] == query and key[1] <= until]:
            del self._reports[key]


def _about(end: Offset, reports: list[Report]) -> list[Report]:
    """Return the reports of the source whose micro-batch ended at this offset."""
    about = (end.table, end.position)
    return [report for report in reports if (report.plan.table, report.plan.end) == about]


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


def _driver() -> tuple[str, str]:
    """Return the address at which executors reach the driver, and the address to listen at."""
    session = SparkSession.getActiveSession()
    if session is not None:
        with suppress(PySparkAttributeError):  # Spark Connect
            conf = session.sparkContext.getConf()
            host = conf.get("spark.driver.host", "")
            return host, conf.get("spark.driver.bindAddress", host)
    remedy = "no session here names a driver: give the address where executors reach this process"
    raise ConfigurationError("host", None, remedy)

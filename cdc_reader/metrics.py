"""Metrics, and the recorders that receive them.

Any object with the two methods of `Recorder` can receive metrics. `PrometheusMetrics` exports to
Prometheus (needs the extra `metrics`), and `MemoryMetrics` keeps the values in memory. Importing
this module registers nothing.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


__all__ = [
    "CHANGES",
    "CHECKPOINTS",
    "CHECKPOINT_RETRIES",
    "GENERATION",
    "HANDLER_ERRORS",
    "HANDLER_RETRIES",
    "HEADROOM",
    "LAG",
    "LATE_ROWS",
    "LOSSES",
    "METRICS",
    "OUTSTANDING",
    "QUERIES",
    "RETRIES",
    "ROWS",
    "SNAPSHOT_ROWS",
    "SNAPSHOT_SECONDS_LEFT",
    "SNAPSHOT_SHARE",
    "WINDOWS",
    "WINDOW_QUERIES",
    "MemoryMetrics",
    "Metric",
    "PrometheusMetrics",
    "Recorder",
]


@frozen
class Metric:
    """A counter or gauge with a value for each table; `help` says what it measures."""

    name: str
    help: str
    is_gauge: bool = False


ROWS = Metric("rows", "Log rows read.")
LATE_ROWS = Metric(
    "late_rows",
    "Log rows that arrived late, or in a stream of a generation that was not in force at their "
    'write time (strays): the number delivered or, with `late_rows="report"`, the number found.',
)
LOSSES = Metric("losses", "Spans of changes that were lost before they were read.")
CHANGES = Metric("changes", "Changes that the handler has finished.")
WINDOWS = Metric("windows", "Windows read completely.")
QUERIES = Metric("queries", "Queries sent to read windows, not counting further pages.")
WINDOW_QUERIES = Metric("window_queries", "Queries needed to read the last window.", is_gauge=True)
RETRIES = Metric("read_retries", "Read requests retried.")
OUTSTANDING = Metric("outstanding_changes", "Changes read but not yet acknowledged.", is_gauge=True)
LAG = Metric("lag_seconds", "Time from the acknowledged position to now.", is_gauge=True)
HEADROOM = Metric(
    "retention_headroom_seconds",
    "Time until the oldest unread rows expire; +Inf if the log keeps rows forever.",
    is_gauge=True,
)
GENERATION = Metric(
    "generation_timestamp_seconds", "When the newest known generation began.", is_gauge=True
)
HANDLER_RETRIES = Metric("handler_retries", "Handler retries.")
HANDLER_ERRORS = Metric("handler_errors", "Changes whose handler failed at every attempt.")
CHECKPOINTS = Metric("checkpoint_saves", "Checkpoints saved.")
CHECKPOINT_RETRIES = Metric("checkpoint_retries", "Retries of checkpoint saves.")
SNAPSHOT_ROWS = Metric("snapshot_rows", "Rows of the table read for a snapshot.")
SNAPSHOT_SHARE = Metric(
    "snapshot_share", "Fraction of the snapshot read so far, from 0 to 1.", is_gauge=True
)
SNAPSHOT_SECONDS_LEFT = Metric(
    "snapshot_seconds_left",
    "Estimated time to complete the snapshot, at the rate of this run; NaN if unknown.",
    is_gauge=True,
)

METRICS = (
    ROWS,
    LATE_ROWS,
    LOSSES,
    CHANGES,
    WINDOWS,
    QUERIES,
    WINDOW_QUERIES,
    RETRIES,
    OUTSTANDING,
    LAG,
    HEADROOM,
    GENERATION,
    HANDLER_RETRIES,
    HANDLER_ERRORS,
    CHECKPOINTS,
    CHECKPOINT_RETRIES,
    SNAPSHOT_ROWS,
    SNAPSHOT_SHARE,
    SNAPSHOT_SECONDS_LEFT,
)
"""All metrics of a consumer; the page "Metrics" of the documentation describes them."""


class Recorder(Protocol):
    """Receives metrics. Must be thread-safe."""

    def add(self, metric: Metric, table: TableName, amount: float = 1) -> None:
        """Add `amount` to the counter."""
        ...

    def set(self, metric: Metric, table: TableName, value: float) -> None:
        """Set the gauge to `value`."""
        ...


class NoMetrics:
    """Discards all metrics."""

    def add(self, metric: Metric, table: TableName, amount: float = 1) -> None:
        """See `Recorder.add`."""

    def set(self, metric: Metric, table: TableName, value: float) -> None:
        """See `Recorder.set`."""


class MemoryMetrics:
    """Keeps the values in memory; ``metrics[ROWS, table]`` is 0 if no value was recorded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: defaultdict[tuple[Metric, TableName], float] = defaultdict(float)

    def add(self, metric: Metric, table: TableName, amount: float = 1) -> None:
        """See `Recorder.add`."""
        with self._lock:
            self._values[metric, table] += amount

    def set(self, metric: Metric, table: TableName, value: float) -> None:
        """See `Recorder.set`."""
        with self._lock:
            self._values[metric, table] = value

    def __getitem__(self, key: tuple[Metric, TableName]) -> float:
        with self._lock:
            return self._values.get(key, 0)

    def __repr__(self) -> str:
        with self._lock:
            shown = [(str(table), metric.name, n) for (metric, table), n in self._values.items()]
        figures = ", ".join(f"{table} {name}={number:g}" for table, name, number in sorted(shown))
        return f"<{type(self).__name__} {figures or 'empty'}>"


class PrometheusMetrics:
    """Exports each metric to Prometheus as ``scylla_cdc_<name>{keyspace=..., table=...}``.

    If `registry` is None, the client library's default registry is used. Create at most one
    recorder per registry. Raises ConfigurationError if the extra `metrics` is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client
        except ImportError as error:
            remedy = "install its extra: pip install 'scylla-cdc[metrics]'"
            raise ConfigurationError("metrics", "prometheus", remedy) from error
        self._collectors: dict[Metric, Any] = {}
        for metric in METRICS:
            make = prometheus_client.Gauge if metric.is_gauge else prometheus_client.Counter
            self._collectors[metric] = make(
                f"scylla_cdc_{metric.name}",
                metric.help,
                ("keyspace", "table"),
                registry=registry or prometheus_client.REGISTRY,
            )

    def add(self, metric: Metric, table: TableName, amount: float = 1) -> None:
        """See `Recorder.add`."""
        self._collectors[metric].labels(table.keyspace, table.name).inc(amount)

    def set(self, metric: Metric, table: TableName, value: float) -> None:
        """See `Recorder.set`."""
        self._collectors[metric].labels(table.keyspace, table.name).set(value)

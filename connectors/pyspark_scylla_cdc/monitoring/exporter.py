"""Exports a listener's metrics to Prometheus, computed at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import frozen

from pyspark_scylla_cdc.monitoring.status import StreamStatus
from pyspark_scylla_cdc.monitoring.streams import Key, MonitoredStreams, Totals, key_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

LABELS = ("query", "keyspace", "table")

V = TypeVar("V")


@frozen
class Figure(Generic[V]):
    """A metric of each stream; `value` returns the metric's value, or None if it is unknown."""

    name: str
    help: str
    value: Callable[[Any], V]


def _counter(name: str, text: str, value: Callable[[Totals], float]) -> Figure[float]:
    return Figure(f"scylla_cdc_spark_{name}", text, value)


def _gauge(
    name: str, text: str, value: Callable[[StreamStatus], float | None]
) -> Figure[float | None]:
    return Figure(f"scylla_cdc_spark_{name}", text, value)


def _of_copy(name: str) -> Callable[[StreamStatus], float | None]:
    """Return a function that returns a figure of a copy, or None for another query."""
    return lambda of: None if of.copy is None else getattr(of.copy, name)


COUNTERS = (
    _counter("rows", "Rows read, as Spark counts them.", lambda of: of.rows),
    _counter(
        "late_rows",
        "Late rows and strays: the number delivered or, with `lateRows=report`, the number found.",
        lambda of: of.late_rows,
    ),
    _counter("micro_batches", "Micro-batches finished.", lambda of: of.micro_batches),
    _counter(
        "micro_batch_seconds",
        "Total duration of micro-batches, in seconds.",
        lambda of: of.seconds,
    ),
    _counter("failures", "Runs of a query that ended with an error.", lambda of: of.failures),
)
GAUGES = (
    _gauge("lag_seconds", "Time from the position to now.", lambda of: of.lag_seconds),
    _gauge(
        "retention_headroom_seconds",
        "Time until the oldest unread rows expire; +Inf if the log keeps rows forever.",
        lambda of: of.retention_headroom_seconds,
    ),
    _gauge(
        "snapshot_share",
        "Fraction of the snapshot read so far, from 0 to 1; absent when no snapshot is running.",
        lambda of: of.snapshot_share,
    ),
    _gauge(
        "snapshot_seconds_left",
        "Estimated time to complete the snapshot, at its average rate; absent when none is "
        "running.",
        lambda of: of.snapshot_seconds_left,
    ),
    _gauge(
        "generation_timestamp_seconds",
        "When the newest generation began.",
        lambda of: None if of.generation is None else of.generation.timestamp(),
    ),
    _gauge("copy_rows", "Rows of the copy that `mirror` maintains.", _of_copy("rows")),
    _gauge("copy_bytes", "Size of the copy's files, without older versions.", _of_copy("size")),
    _gauge("copy_files", "Files of the copy, without older versions.", _of_copy("files")),
    _gauge("copy_buckets_due", "Buckets of the copy that are to be compacted.", _of_copy("due")),
)


class Exporter:
    """A `prometheus_client` collector, which computes gauges when they are scraped.

    The lag of a query that hangs therefore keeps growing. A query that has ended exports no lag.
    """

    def __init__(self, streams: MonitoredStreams) -> None:
        self._streams = streams

    def describe(self) -> Iterable[Family]:
        """Return the metrics without values, so that the registry can check their names."""
        return _families((), {})

    def collect(self) -> Iterable[Family]:
        """Return the metrics as of now."""
        return _families(self._streams.statuses(), self._streams.totals())


def _families(statuses: Sequence[StreamStatus], totals: Mapping[Key, Totals]) -> Iterator[Family]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for figure in COUNTERS:
        counter = CounterMetricFamily(figure.name, figure.help, labels=LABELS)
        for key, sums in totals.items():
            counter.add_metric(key, figure.value(sums))
        yield counter
    # If several sources of a query read one table, the one that is furthest behind is exported.
    behind = sorted(statuses, key=lambda status: status.position, reverse=True)
    streams = {key_of(status): status for status in behind}
    for level in GAUGES:
        gauge = GaugeMetricFamily(level.name, level.help, labels=LABELS)
        for key, status in streams.items():
            if (value := level.value(status)) is not None:
                gauge.add_metric(key, value)
        yield gauge

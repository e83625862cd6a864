"""Metrics and metric recorders."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError
from cdc_reader.metrics import LAG, METRICS, ROWS, MemoryMetrics, PrometheusMetrics
from pyspark_scylla_cdc.monitoring.exporter import COUNTERS, GAUGES

TABLE = TableName("ks", "t")


def test_prometheus_metrics_are_labelled_by_table() -> None:
    """Metrics are registered in the given registry, and the names of counters end in `_total`."""
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry)
    metrics.add(ROWS, TABLE, 3)
    metrics.add(ROWS, TABLE)
    metrics.set(LAG, TABLE, 1.5)
    text = generate_latest(registry).decode()
    assert 'scylla_cdc_rows_total{keyspace="ks",table="t"} 4.0' in text
    assert 'scylla_cdc_lag_seconds{keyspace="ks",table="t"} 1.5' in text


def test_every_metric_has_a_name_and_a_sentence() -> None:
    """Each metric has a unique name that is valid in Prometheus, and a help text."""
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.islower() for name in names)
    assert all(metric.help.endswith(".") for metric in METRICS)


def test_without_the_client_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the Prometheus client, creating a recorder raises an error that names the extra."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError, match=r"scylla-cdc\[metrics\]"):
        PrometheusMetrics()


def test_memory_metrics_keep_values() -> None:
    """Recorded metrics keep their values, and a metric that was never recorded is zero."""
    metrics = MemoryMetrics()
    metrics.add(ROWS, TABLE, 2)
    metrics.add(ROWS, TABLE, 3)
    metrics.set(LAG, TABLE, 7)
    assert (metrics[ROWS, TABLE], metrics[LAG, TABLE]) == (5, 7)
    assert metrics[ROWS, TableName("ks", "u")] == 0


def test_the_reference_lists_every_metric() -> None:
    """The reference page lists the metrics with their help texts, in the order of the code."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
    rows = re.findall(
        r"^\| `scylla_cdc_(\w+)` \| (\w+) \| (.+) \|$", page.read_text(), re.MULTILINE
    )
    kinds = {True: "gauge", False: "counter"}
    spark = [(f.name.removeprefix("scylla_cdc_"), "counter", f.help) for f in COUNTERS]
    spark += [(f.name.removeprefix("scylla_cdc_"), "gauge", f.help) for f in GAUGES]
    assert rows == [
        *((metric.name, kinds[metric.is_gauge], metric.help) for metric in METRICS),
        *spark,
    ]

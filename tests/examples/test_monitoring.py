"""The dashboard and the alert rules use only exported metrics, and Prometheus accepts them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from cdc_reader import CdcConsumer, Change, MemoryCheckpoints, ReadConfig
from cdc_reader.metrics import METRICS, PrometheusMetrics
from pyspark_scylla_cdc import ScyllaCdcListener
from pyspark_scylla_cdc.local_session import local_session
from pyspark_scylla_cdc.monitoring.exporter import COUNTERS, GAUGES

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "monitoring"
NAME = re.compile(r"\bscylla_cdc_[a-z_]+")
UNUSED = {f"scylla_cdc_{name}_total" for name in ("late_rows", "read_retries", "handler_retries")}
UNUSED |= {f"scylla_cdc_snapshot_{name}" for name in ("rows_total", "share", "seconds_left")}
UNUSED |= {f"scylla_cdc_spark_snapshot_{name}" for name in ("share", "seconds_left")}
UNUSED |= {f"scylla_cdc_spark_copy_{name}" for name in ("rows", "bytes", "files", "buckets_due")}
"""Metrics of events that did not occur in the run, of snapshots, and of copies."""
VARIABLES = {"$__rate_interval": "5m", "$keyspace": ".*", "$table": ".*", "$query": ".*"}


def exported() -> set[str]:
    """Return the names of all samples that a consumer and a listener export."""
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    ScyllaCdcListener(registry)
    found = text_string_to_metric_families(generate_latest(registry).decode())
    kinds = {family.name: family.type for family in found if family.name.startswith("scylla_cdc_")}
    return {f"{name}_total" if kind == "counter" else name for name, kind in kinds.items()}


def board() -> dict[str, Any]:
    """Return the dashboard."""
    parsed: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return parsed


def shown() -> Iterator[str]:
    """Yield the expressions of the dashboard, with values for its variables."""
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            yield filled(target["expr"])


def filled(expression: str) -> str:
    """Return the expression with values for Grafana's variables."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def promtool() -> Path:
    """The program promtool of Prometheus, from PATH or from `make prometheus`."""
    found = subprocess.run(
        [ROOT / "scripts" / "prometheus"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return Path(found.stdout.strip()) / "promtool"


def run(promtool: Path, *arguments: str | Path) -> str:
    """Run promtool, which must succeed. Return its output."""
    ran = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_dashboard_shows_each_metric() -> None:
    """The dashboard shows exactly the exported metrics."""
    assert {name for expression in shown() for name in NAME.findall(expression)} == exported()


def test_the_exported_names() -> None:
    """Each metric in the code is exported under one name."""
    assert len(exported()) == len(METRICS) + len(COUNTERS) + len(GAUGES)


def test_alerts_use_exported_metrics_only() -> None:
    """Alerts for consumers and for Spark use only metrics that exist."""
    named = {name for rule in rules() for name in NAME.findall(rule["expr"])}
    assert named <= exported()
    assert any("_spark_" in name for name in named)


def test_each_alert_is_tested() -> None:
    """Each alert has a case in which it fires."""
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    fired = {case["alertname"] for case in cases if case.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in rules()}


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    """Each panel has a description and a separate area of the grid, which is 24 cells wide."""
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith(".")


@pytest.mark.slow
def test_promtool_runs_the_tests_of_the_alerts(promtool: Path, tmp_path: Path) -> None:
    """Each alert fires when it should, and not earlier. With a wrong rule, promtool fails."""
    run(promtool, "check", "rules", FOLDER / "alerts.yml")
    run(promtool, "test", "rules", FOLDER / "alerts_test.yml")
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    changed = (FOLDER / "alerts.yml").read_text().replace("lag_seconds > 300", "lag_seconds > 3000")
    (tmp_path / "alerts.yml").write_text(changed)
    with pytest.raises(AssertionError, match="CdcConsumerBehind"):
        run(promtool, "test", "rules", tmp_path / "alerts_test.yml")


def test_promtool_parses_the_queries_of_the_dashboard(promtool: Path, tmp_path: Path) -> None:
    """Promtool can parse each expression of the dashboard, written as a separate rule."""
    found = [{"record": f"panel:{at}", "expr": text} for at, text in enumerate(shown())]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": found}]}))
    assert f"SUCCESS: {len(found)} rules found" in run(promtool, "check", "rules", file)


@pytest.fixture
def registry(scylla: Scylla, keyspace: str, tmp_path: Path) -> Iterator[CollectorRegistry]:
    """The metrics of a consumer and a Spark query that read a table. The query still runs."""
    table = f"{keyspace}.orders"
    scylla.session.execute(
        f"CREATE TABLE {table} (id int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    )
    for number in range(10):
        scylla.session.execute(f"INSERT INTO {table} (id) VALUES ({number})")
    registry = CollectorRegistry()
    changes: list[Change] = []
    read = ReadConfig(confidence_window=timedelta(0))
    metrics = PrometheusMetrics(registry)
    consumer = CdcConsumer(
        scylla.contact_point,
        table,
        changes.append,
        application="copy",
        checkpoints=MemoryCheckpoints(),
        end=datetime.now(UTC),
        read=read,
        metrics=metrics,
    )
    consumer.run()
    spark = local_session("monitoring", tmp_path / "spark.log")
    listener = ScyllaCdcListener(registry)
    spark.streams.addListener(listener)
    source = spark.readStream.format("scylla_cdc")
    source = source.options(hosts=scylla.contact_point, path=table, confidenceWindow="0s")
    writer = source.load().writeStream.format("noop").queryName("copy")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    yield registry
    query.stop()
    spark.streams.removeListener(listener)


class Prometheus:
    """A Prometheus server that scrapes one exporter, accessed by its HTTP API."""

    def __init__(self, program: Path, folder: Path, exporter: int) -> None:
        shutil.copy(FOLDER / "alerts.yml", folder)
        scrape = [{"job_name": "cdc", "static_configs": [{"targets": [f"127.0.0.1:{exporter}"]}]}]
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": scrape,
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self._url = f"http://{address}/api/v1"
        flags = {
            "config.file": str(folder / "prometheus.yml"),
            "storage.tsdb.path": str(folder / "data"),
            "web.listen-address": address,
        }
        with (folder / "prometheus.log").open("wb") as log:
            command = [str(program), *(f"--{name}={value}" for name, value in flags.items())]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of a response, or None if the server is not ready yet."""
        try:
            with urlopen(f"{self._url}/{path}?{urlencode(parameters)}") as answer:
                found = json.load(answer)
        except HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # the server is starting
                return None
            pytest.fail(error.read().decode())
        except URLError:
            return None
        assert found["status"] == "success", found
        return found["data"]

    def wait_for(self, find: Callable[[], Any]) -> Any:
        """Call `find` until it returns something, and fail if the server ends first."""
        while not (found := find()):
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"ended with {self.process.wait(0.1)}")
        return found


@pytest.mark.slow
@pytest.mark.spark
def test_prometheus_scrapes_the_exported_metrics(
    promtool: Path, registry: CollectorRegistry, tmp_path: Path
) -> None:
    """Prometheus scrapes the metrics, and evaluates the dashboard's expressions and the rules."""
    http, thread = start_http_server(0, "127.0.0.1", registry)
    server = Prometheus(promtool.with_name("prometheus"), tmp_path, http.server_port)

    def result(expression: str) -> Any:
        return (server.ask("query", query=expression) or {}).get("result")

    def answered() -> bool:
        empty = [expression for expression in shown() if not result(expression)]
        return {name for expression in empty for name in NAME.findall(expression)} <= UNUSED

    def evaluated() -> Any:
        groups = (server.ask("rules") or {}).get("groups", ())
        found = [rule for group in groups for rule in group["rules"]]
        return found if {rule["health"] for rule in found} == {"ok"} else None

    try:
        server.wait_for(answered)
        assert {rule["name"] for rule in server.wait_for(evaluated)} == {
            rule["alert"] for rule in rules()
        }
    finally:
        server.process.terminate()
        server.process.wait()
        http.shutdown()
        http.server_close()
        thread.join()

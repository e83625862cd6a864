"""`scylla-cdc status --html`: the report in a browser, and the lags stored in it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.command import main
from cdc_reader.cli.status.reader import SECOND, trend
from cdc_reader.cli.status.report import _DATA
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.testing import EmbeddedScylla
from tests.browser import browser

TABLE = TableName("ks", "t")
MINUTE = 60 * SECOND
ODD = "_</script><b>&amp; $x^$"
"""An application name that is markup in HTML and in plots if it is not escaped."""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server with a table that has a log."""
    with EmbeddedScylla(vnodes=4, shards=1) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute(
            "CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 7200}"
        )
        yield server


@pytest.fixture
def positions(tmp_path: Path) -> Path:
    """A file with the positions of two applications, one of which has an unusual name."""
    now, store = time.time_ns() // 1_000, SqliteCheckpoints(tmp_path / "positions.db")
    for number, name in enumerate([ODD, "app"]):
        store.save(CheckpointName(name, TABLE), Checkpoint(now - number * MINUTE))
    store.close()
    return tmp_path / "positions.db"


def invoke(server: EmbeddedScylla, *arguments: str | Path) -> Result:
    """Run the command, and return its result when it ends."""
    line = ["status", "ks.t", "--hosts", server.contact_point, *map(str, arguments)]
    return CliRunner().invoke(main, line)


def lags_in(file: Path) -> Any:
    """Return the lags stored in a report."""
    [data] = file.read_text().split(_DATA)[1:]
    return json.loads(data.partition("</script>")[0])


def test_the_next_run_continues_the_plot(
    server: EmbeddedScylla, positions: Path, tmp_path: Path
) -> None:
    """Each run adds a point for each reader. The last one thins out a long history."""
    file = tmp_path / "report.html"
    for runs in (1, 2):
        outcome = invoke(server, "--checkpoint", positions, "--html", file)
        assert outcome.exit_code == 0, outcome.output
        assert "APPLICATION" in outcome.stdout
        assert [len(points) for points in lags_in(file).values()] == [runs, runs]
    begin, _, end = file.read_text().partition(_DATA)
    many = {"ks.t app (1/1)": [[at, 5] for at in range(2000)]}
    file.write_text(f"{begin}{_DATA}{json.dumps(many)}{end[end.index('</script>') :]}")
    assert invoke(server, "--checkpoint", positions, "--html", file).exit_code == 0
    times = [at for at, _ in lags_in(file)["ks.t app (1/1)"]]
    assert times[:-1] == [*range(0, 1000, 2), *range(1000, 2000)]


@pytest.mark.parametrize("content", ["my notes", "", f"{_DATA.replace('-1', '-2')}{{}}</script>"])
def test_another_file_is_not_overwritten(
    server: EmbeddedScylla, tmp_path: Path, content: str
) -> None:
    """An existing file is overwritten only if it is a report of this version."""
    file = tmp_path / "notes.html"
    file.write_text(content)
    outcome = invoke(server, "--html", file)
    assert outcome.exit_code == 2
    [line] = outcome.stderr.splitlines()
    assert f"--html is '{file}': it exists, and is not a report of this version" in line
    assert file.read_text() == content


def test_a_report_that_cannot_be_written_is_reported(
    server: EmbeddedScylla, tmp_path: Path
) -> None:
    """If the report cannot be written, the exit status is 1 and a one-line error says why."""
    outcome = invoke(server, "--html", tmp_path / "missing" / "report.html")
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    assert line.startswith("Error: cannot write the report ")
    assert line.endswith("No such file or directory")


def test_a_missing_extra_is_named(
    server: EmbeddedScylla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without matplotlib, a one-line error names the extra."""
    monkeypatch.delitem(sys.modules, "cdc_reader.cli.status.report")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    outcome = invoke(server, "--html", tmp_path / "report.html")
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    assert line.endswith("is not installed: run pip install 'scylla-cdc[cli,report]'")


@pytest.mark.nightly
def test_a_browser_shows_the_report(
    server: EmbeddedScylla, positions: Path, tmp_path: Path
) -> None:
    """The page shows its plot and names, and fits a phone's width.

    It writes nothing to the console and requests no other file.
    """
    file = tmp_path / "report.html"
    assert invoke(server, "--checkpoint", positions, "--html", file).exit_code == 0
    messages: list[str] = []
    requests: list[str] = []
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 390, "height": 900})
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("document.images[0].naturalWidth") > 0
        [image] = page.get_by_role("img").all()
        assert f"ks.t {ODD} (1/1)" in (image.get_attribute("alt") or "")
        assert page.get_by_role("cell", name=ODD).count() == 1
        assert page.locator("html").get_attribute("lang") == "en"
    assert messages == []
    assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]


@pytest.mark.parametrize(
    ("lags", "told"),
    [
        ([], ""),
        ([30], ""),
        ([30, 35, 30, 34, 31], "steady"),
        ([30, 40, 50, 60, 70], "not advancing"),
        ([30, 34, 40, 44, 48], "falling behind"),
        ([600, 580, 560, 540, 520], "catching up, 4 min 20 s left"),
    ],
)
def test_the_trend_of_a_lag(lags: list[int], told: str) -> None:
    """The trend of a reader's lag is computed from lags sampled every ten seconds."""
    points = [(number * 10 * SECOND, lag * SECOND) for number, lag in enumerate(lags)]
    assert trend(points) == told

"""`scylla-cdc status --html`: the report in a browser, and the history stored in it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, ViewportSize

from cdc_reader.checkpoints import SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.command import main
from cdc_reader.cli.status import history as module
from cdc_reader.cli.status.history import Counted, Counts, History, Point, connected, trend
from cdc_reader.cli.status.plot import DURATION, NUMBER, Unit
from cdc_reader.cli.status.readers import SECOND
from cdc_reader.cli.status.report import Report, page
from cdc_reader.cli.status.style import STYLE
from cdc_reader.cli.status.watch import Sample
from cdc_reader.cql.names import TableName
from cdc_reader.reading.progress import Checkpoint
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.browser import browser

TABLE = TableName("ks", "t")
MINUTE = 60 * SECOND
ODD = "</script><b>&amp;"
"""An application name that would be markup if it were not escaped."""

SCREENS: list[tuple[int, Literal["light", "dark"]]] = [
    (1280, "light"),
    (1280, "dark"),
    (390, "light"),
    (390, "dark"),
]
"""The widths, in pixels, and color schemes in which the report is opened."""

spans = st.lists(
    st.tuples(st.integers(1, 100), st.integers(0, 50), st.integers(0, 5), st.booleans()),
    max_size=200,
)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server with a table that has seven rows in its log, written ten minutes ago."""
    clock = ManualClock(time.time_ns() // 1_000 - 20 * MINUTE)
    with EmbeddedScylla(vnodes=4, shards=1, clock=clock) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute(
            "CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 7200}"
        )
        clock.advance(10 * MINUTE)
        for number in range(7):
            server.execute(f"INSERT INTO ks.t (p) VALUES ({number})")
        clock.advance(10 * MINUTE)
        yield server


@pytest.fixture
def positions(tmp_path: Path) -> Path:
    """A file with the positions of ten applications, one of which has an unusual name."""
    now, store = time.time_ns() // 1_000, SqliteCheckpoints(tmp_path / "positions.db")
    for number, name in enumerate([ODD, *(f"app{number}" for number in range(9))]):
        store.save(CheckpointName(name, TABLE), Checkpoint(now - number * MINUTE))
    store.close()
    return tmp_path / "positions.db"


def invoke(server: EmbeddedScylla, *arguments: str | Path) -> Result:
    """Run the command, and return its result when it ends."""
    line = ["status", "ks.t", "--hosts", server.contact_point, *map(str, arguments)]
    return CliRunner().invoke(main, line)


def rows_in(report: Report) -> int:
    """Return the number of rows in a report."""
    return sum(span.rows for span in report.history.counts[TABLE].spans)


def test_the_next_run_continues_the_plots(
    server: EmbeddedScylla, positions: Path, tmp_path: Path
) -> None:
    """Each run adds a point for each reader, and counts the rows written since the previous run."""
    file = tmp_path / "report.html"
    arguments = ("--checkpoint", positions, "--html", file, "--rows-since")
    first = invoke(server, *arguments, "-1h")
    assert first.exit_code == 0, first.output
    assert "APPLICATION" in first.stdout
    before = Report(file)
    assert len(before.history.readers) == 10
    assert {len(points) for points in before.history.readers.values()} == {1}
    outcome = invoke(server, *arguments, "-2h")
    assert outcome.exit_code == 0, outcome.output
    after = Report(file)
    assert {len(points) for points in after.history.readers.values()} == {2}
    spans = after.history.counts[TABLE].spans
    assert all(a.end == b.start for a, b in pairwise(spans))
    assert rows_in(after) == rows_in(before) == 7
    assert [name for name in tmp_path.iterdir() if name.suffix not in (".db", ".html")] == []


def test_a_watch_keeps_its_report_current(
    server: EmbeddedScylla, positions: Path, tmp_path: Path
) -> None:
    """`status --watch` writes the report at its first sample and again when it ends."""
    file = tmp_path / "report.html"
    arguments = ("--checkpoint", positions, "--html", file, "--watch", "--for", "1ms")
    outcome = invoke(server, *arguments)
    assert outcome.exit_code == 0, outcome.output
    assert sum("app0" in line for line in outcome.stdout.splitlines()) == 1
    assert len(Report(file).history.readers[TABLE, "app0 (1/1)"]) == 1


@pytest.mark.parametrize("content", ["my notes", "", None])
def test_another_file_is_not_overwritten(
    server: EmbeddedScylla, tmp_path: Path, content: str | None
) -> None:
    """An existing file is overwritten only if it is a report of this version.

    If `content` is None, the file is a later version's report.
    """
    file = tmp_path / "notes.html"
    later = '<script type="application/json" id="scylla-cdc-history">{"version":99}</script>'
    file.write_text(later if content is None else content)
    outcome = invoke(server, "--html", file)
    assert outcome.exit_code == 2
    [line] = outcome.stderr.splitlines()
    assert f"--html is '{file}': it exists, and is not a report of this version" in line
    assert file.read_text() == (later if content is None else content)


def test_a_report_that_cannot_be_written_is_reported(
    server: EmbeddedScylla, tmp_path: Path
) -> None:
    """If the report cannot be written, the exit status is 1 and a one-line error says why."""
    outcome = invoke(server, "--html", tmp_path / "missing" / "report.html")
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    assert line.startswith("Error: cannot write the report ")
    assert line.endswith("No such file or directory")


def long_history(end: int) -> History:
    """Return a history of twenty minutes with a gap, late rows, and a reader that falls behind."""
    history = History()
    times = [end - 20 * MINUTE + number * 10 * SECOND for number in range(120)]
    for number in range(10):
        name = f"app{number} (1/1)" if number else f"{ODD} (1/1)"
        history.readers[TABLE, name] = [
            Point(at, (30 + 20 * number + step * number) * SECOND, 3600 * SECOND - step)
            for step, at in enumerate(times)
            if not 50 < step < 70
        ]
    counted = [
        Counted(at, at + 10 * SECOND, 100 + 5 * (step % 30), 4 if step % 40 == 7 else 0)
        for step, at in enumerate(times[:-3])
    ]
    history.counts[TABLE] = Counts(counted, end)
    return history


@pytest.fixture
def report(server: EmbeddedScylla, positions: Path, tmp_path: Path) -> Path:
    """A report of a real status, with a longer history than a test could record."""
    file = tmp_path / "report.html"
    outcome = invoke(server, "--checkpoint", positions, "--html", file, "--rows-since", "-1h")
    assert outcome.exit_code == 0, outcome.output
    history = long_history(time.time_ns() // 1_000)
    text = file.read_text().split('id="scylla-cdc-history">')[0]
    data = history.to_json().replace("<", "\\u003c")
    file.write_text(f'{text}id="scylla-cdc-history">{data}</script></body></html>')
    outcome = invoke(server, "--checkpoint", positions, "--html", file, "--rows-since", "-1h")
    assert outcome.exit_code == 0, outcome.output
    return file


@pytest.mark.nightly
def test_a_browser_shows_the_report(report: Path) -> None:
    """The page shows its plots and names, and fits a phone's width.

    It writes nothing to the console and requests no other file.
    """
    url = report.as_uri()
    backgrounds = set()
    with browser() as chromium:
        for width, scheme in SCREENS:
            size: ViewportSize = {"width": width, "height": 900}
            seen = chromium.new_page(viewport=size, color_scheme=scheme)
            messages, requests = watched(seen)
            seen.goto(url)
            assert seen.evaluate("document.documentElement.scrollWidth") <= width
            backgrounds.add(seen.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert messages == []
            assert requests == [url]
        assert len(backgrounds) == 2
        page = chromium.new_page()
        page.goto(url)
        assert page.title() == "CDC of ks.t"
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.locator("figure > .plot > svg").count() == 3
        assert page.locator("path:not([d]), path[d='']").count() == 0
        assert page.get_by_role("img").count() == 3
        assert page.get_by_role("img", name="Lag: the age of the oldest row").count() == 1
        assert ODD in page.locator("tbody th").first.inner_text()
        starts = page.locator("figure .x time:first-child").all()
        assert len({start.get_attribute("datetime") for start in starts}) == 1
        assert page.locator("script").count() == 1


def watched(page: Page) -> tuple[list[str], list[str]]:
    """Return two lists that grow while the page runs: its messages and errors, and its requests."""
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    return messages, requests


def test_colours_have_enough_contrast() -> None:
    """In both color schemes, the contrast ratio is at least 4.5 for text and 3 for lines."""
    schemes = re.findall(r":root\{([^}]*)\}", STYLE)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+):(#[0-9a-f]+)", scheme))
        page = luminance(colours.pop("page"))
        del colours["line"]  # the grid is only decoration
        assert len(colours) == 10
        for name, colour in colours.items():
            least = 3.0 if name.startswith("s") and name != "soft" else 4.5
            assert contrast(luminance(colour), page) >= least, (name, colour)


def luminance(colour: str) -> float:
    """Return the relative luminance of a color, as defined by WCAG."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    """Return the contrast ratio of two luminances, as defined by WCAG."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def test_names_are_text_not_html() -> None:
    """Names are escaped in the page's text and in its data, so that they cannot end an element."""
    history = long_history(time.time_ns() // 1_000)
    text = page(Sample(history.counts[TABLE].spans[-1].end, [], history))
    assert text.count("</script>") == 1
    assert "<b>" not in text


@given(spans)
def test_a_history_is_bounded_and_loses_no_row(
    lengths: list[tuple[int, int, int, bool]],
) -> None:
    """A long history is shortened by merging spans. All rows are still counted, and gaps remain."""
    most, module._MOST = module._MOST, 20
    try:
        counts, at, gaps = Counts(), 0, set()
        for length, rows, late, is_apart in lengths:
            if is_apart:
                gaps.add((at, at + 7))
                at += 7
            counts.add([Counted(at, at + length, rows, late)])
            at += length
    finally:
        module._MOST = most
    kept = counts.spans
    assert sum(span.rows for span in kept) == sum(rows for _, rows, _, _ in lengths)
    assert counts.late == sum(late for _, _, late, _ in lengths)
    assert {(a.end, b.start) for a, b in pairwise(kept) if a.end != b.start} <= gaps
    assert len(kept) <= 21 + len(gaps)
    assert counts.end == (at if lengths else None)


@given(
    st.lists(st.tuples(st.integers(0, 1 << 60), st.none() | st.integers(0, 1 << 60))),
    st.text(st.characters(blacklist_categories=["Cs"])),
)
def test_a_history_can_be_read_again(points: list[tuple[int, int | None]], name: str) -> None:
    """A history can be read from its JSON or from the page that contains it."""
    history = History()
    history.readers[TABLE, name] = [Point(at, lag, None) for at, lag in points]
    history.counts[TABLE] = Counts([Counted(1, 2, 3, 4)], 5)
    assert History.of_json(history.to_json()) == history


@pytest.mark.parametrize(
    ("lags", "told"),
    [
        ([], ""),
        ([30], ""),
        ([30, 35, 30, 34, 31], "steady"),
        ([30, 40, 50, 60, 70], "not advancing"),
        ([30, 34, 40, 44, 48], "falling behind"),
        ([600, 580, 560, 540, 520], "catching up, 4 min 20 s left"),
        ([None, None], ""),
    ],
)
def test_the_trend_of_a_lag(lags: list[int | None], told: str) -> None:
    """The trend of a reader's lag is computed from lags sampled every ten seconds."""
    points = [
        Point(number * 10 * SECOND, None if lag is None else lag * SECOND, None)
        for number, lag in enumerate(lags)
    ]
    assert trend(points) == told


def test_a_line_is_interrupted_where_nobody_watched() -> None:
    """A plot's line is interrupted where no sample was taken or the reader's lag was unknown."""
    times = [0, 1, 2, 3, 60, 61, 62, 63, 64]
    points = [Point(at, None if at == 62 else 5, None) for at in times]
    assert [[point.at for point in part] for part in connected(points)] == [
        [0, 1, 2, 3],
        [60, 61],
        [63, 64],
    ]


@given(st.integers(0, 10**15))
def test_an_axis_reaches_its_highest_value(value: int) -> None:
    """The axis of a plot is never empty, and ends only slightly above the highest value."""
    for unit, step in ((DURATION, 5 * SECOND), (NUMBER, 1)):
        top = unit.top(value)
        assert top >= value
        assert 0 < top <= 4 * max(value, step)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (DURATION, 1800 * SECOND, "30 min"),
        (DURATION, 5400 * SECOND, "1 h 30 min"),
        (DURATION, 86_400 * SECOND, "1 d"),
        (DURATION, 0, "0 s"),
        (NUMBER, 2.5, "2.5"),
        (NUMBER, 1_000_000, "1,000,000"),
    ],
)
def test_labels_of_an_axis_are_short(unit: Unit, value: float, text: str) -> None:
    """The label of an axis omits units whose value is zero, such as seconds in 30 min."""
    assert unit.text(value) == text

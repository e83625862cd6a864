"""The example that shows a table in web pages, in headless Chromium."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen
from uuid import UUID

import pytest
from cassandra.util import uuid_from_time
from playwright.sync_api import Page

from cdc_reader import CdcReader, Change
from tests.browser import browser

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "examples" / "live_table" / "service.py"
TABLE = (
    "CREATE TABLE {t} (customer int, number bigint, status text, PRIMARY KEY (customer, number)) "
    "WITH CLUSTERING ORDER BY (number DESC) AND cdc = {{'enabled': true, 'postimage': true}}"
)
INSERT = "INSERT INTO {t} (customer, number, status) VALUES ({c}, {n}, '{s}')"
BIG = 2**60 + 1
"""A number that JavaScript rounds."""
WRITES = (
    "UPDATE {t} SET status = 'shipped' WHERE customer = 1 AND number = 2",
    "DELETE FROM {t} WHERE customer = 2 AND number = 2",
    "DELETE FROM {t} WHERE customer = 3 AND number > 2",
    "DELETE FROM {t} WHERE customer = 4",
)
SHOWN = """() => JSON.stringify([...document.querySelectorAll("tbody tr")].map(
    (row) => [...row.cells].map((cell) => cell.textContent)).sort())"""
"""The texts of the page's rows, in order."""
STATUS = "() => document.querySelector('[role=status]').textContent"


class Orders:
    """A table, and the texts that a page shows for its rows."""

    def __init__(self, scylla: Scylla, name: str) -> None:
        self.name, self._session = name, scylla.session
        self.execute(TABLE)
        for customer in range(5):
            for number in (1, 2, 3, BIG):
                self.execute(INSERT, c=customer, n=number, s="placed <b>")

    def execute(self, statement: str, **values: Any) -> None:
        """Execute a statement, in which ``{t}`` stands for the table."""
        self._session.execute(statement.format(t=self.name, **values))

    def shown(self) -> str:
        """Return the result of `SHOWN` on a page that shows the rows."""
        rows = [[*map(str, row)] for row in self._session.execute(f"SELECT * FROM {self.name}")]
        return json.dumps(sorted(rows), separators=(",", ":"))


@pytest.fixture
def orders(scylla: Scylla, keyspace: str) -> Orders:
    """A table with rows."""
    return Orders(scylla, f"{keyspace}.orders")


class Service:
    """The service in a separate process, which can be killed and restarted."""

    def __init__(self, hosts: str, table: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command = [sys.executable, str(SERVICE), hosts, table, str(self.port)]
        self.process = subprocess.Popen(self._command)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def wait(self) -> None:
        """Wait until the service responds, and fail if it ends first."""
        while True:
            with suppress(URLError), urlopen(f"{self.url}health"):
                return
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"ended with {self.process.wait(0.1)}")

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """Restart the service on the same port."""
        self.process = subprocess.Popen(self._command)


@pytest.fixture
def service(scylla: Scylla, orders: Orders) -> Iterator[Service]:
    """The running service."""
    service = Service(scylla.contact_point, orders.name)
    yield service
    service.process.terminate()
    assert service.process.wait(30) in (0, -15)


def wait_for(page: Page, orders: Orders) -> None:
    """Wait until the page shows the table."""
    shows = f"(wanted) => ({SHOWN})() === wanted"
    page.wait_for_function(shows, arg=orders.shown(), timeout=60_000)


@pytest.mark.nightly
def test_the_page_follows_the_table(service: Service, orders: Orders) -> None:
    """The page shows rows and changes. After a crash, it also shows the changes made meanwhile."""
    errors: list[str] = []
    with browser() as chromium:
        page = chromium.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        service.wait()
        page.goto(service.url)
        wait_for(page, orders)
        for statement in WRITES:
            orders.execute(statement)
            wait_for(page, orders)
        assert page.evaluate(STATUS) == "connected"
        for number in range(3):
            service.kill()
            page.wait_for_function(f"() => ({STATUS})() === 'connecting'")
            orders.execute(INSERT, c=10 + number, n=number, s="placed")
            orders.execute("DELETE FROM {t} WHERE customer = 1 AND number = {n}", n=number)
            service.start()
            wait_for(page, orders)
        orders.execute(INSERT, c=20, n=1, s="placed")
        wait_for(page, orders)
    assert not errors


@pytest.fixture
def example() -> ModuleType:
    """The module of the service."""
    spec = spec_from_file_location("service", SERVICE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SENSORS = (
    "CREATE TABLE {t} (sensor int, at timeuuid, a int, b int, PRIMARY KEY (sensor, at)) "
    "WITH cdc = {{'enabled': true, 'postimage': true}}"
)
VALUES = "INSERT INTO {{t}} (sensor, at, {columns}) VALUES ({sensor}, {at}, {values}) {using}"
AT = [uuid_from_time(1_700_000_000 + 300 * number, 1, 1) for number in range(4)]
"""Four times, whose texts are in another order."""


class Sensors:
    """A table with time UUIDs, and the rows of a page that follows it."""

    def __init__(self, scylla: Scylla, name: str, example: ModuleType) -> None:
        self.name, self._session, self._hosts = name, scylla.session, scylla.contact_point
        self._table, self._text = example.LiveTable(), example.text
        self._shown: dict[str, dict[str, str | None]] = {}
        self.execute(SENSORS)
        self.now = time.time_ns() // 1000

    def execute(self, statement: str) -> None:
        """Execute a statement, in which ``{t}`` stands for the table."""
        self._session.execute(statement.format(t=self.name))

    def insert(self, sensor: int, at: UUID, ago: int = 0, **values: int) -> None:
        """Insert a row with a timestamp this many ms before `now`."""
        columns, given = ", ".join(values), ", ".join(map(str, values.values()))
        using = f"USING TIMESTAMP {self.now - ago * 1000}"
        fields = {"columns": columns, "values": given, "sensor": sensor, "at": at, "using": using}
        self.execute(VALUES.format(**fields))

    def delete(self, where: str, ago: int = 0) -> None:
        """Delete rows with a timestamp this many ms before `now`."""
        self.execute(f"DELETE FROM {{t}} USING TIMESTAMP {self.now - ago * 1000} WHERE {where}")

    def follow(self, *steps: Callable[[], None]) -> None:
        """Apply the changes of each step before the next one, and check what a page shows."""
        asyncio.run(self._follow([*steps, lambda: self.insert(0, AT[0], a=0)]))
        rows = [row._asdict() for row in self._session.execute(f"SELECT * FROM {self.name}")]
        texts = [{name: self._text(value) for name, value in row.items()} for row in rows]
        assert sorted(map(str, self._shown.values())) == sorted(map(str, texts))

    async def _follow(self, steps: Sequence[Callable[[], None]]) -> None:
        events, applied = aiter(self._table.events()), set[Change]()
        await anext(events)  # the first event, which connects the page
        with CdcReader(self._hosts, self.name) as reader:
            for step in steps:
                step()
                for change in (each for each in reader.changes() if each not in applied):
                    self._table.apply(change)
                    applied.add(change)
        while not any(cells["sensor"] == "0" for cells in self._shown.values()):
            self._take(await anext(events))

    def _take(self, event: Any) -> None:
        match event.event:
            case "row":
                self._shown[event.data["key"]] = event.data["cells"]
            case "delete":
                del self._shown[event.data["key"]]


@pytest.fixture
def sensors(scylla: Scylla, keyspace: str, example: ModuleType) -> Sensors:
    """An empty table."""
    return Sensors(scylla, f"{keyspace}.sensors", example)


def test_a_range_of_time_uuids(sensors: Sensors) -> None:
    """A range delete removes the rows that the server removes."""

    def insert() -> None:
        for number, at in enumerate(AT):
            sensors.insert(1, at, 100, a=number, b=number)

    sensors.follow(insert, lambda: sensors.delete(f"sensor = 1 AND at < {AT[2]}"))


def test_a_late_write(sensors: Sensors) -> None:
    """A write that arrives after a newer one sets only the columns that the newer one did not."""

    def late() -> None:
        sensors.insert(1, AT[0], 200, a=1, b=1)
        sensors.insert(2, AT[0], 200, a=1, b=1)

    def new() -> None:
        sensors.insert(1, AT[0], a=2)
        sensors.insert(2, AT[0], a=2, b=2)

    sensors.follow(new, late)


def test_a_late_delete(sensors: Sensors) -> None:
    """A delete that arrives after a newer write removes only older values."""

    def write() -> None:
        sensors.insert(1, AT[0], 200, a=1, b=1)
        sensors.insert(1, AT[0], a=2)
        sensors.insert(1, AT[1], 200, a=1, b=1)

    sensors.follow(write, lambda: sensors.delete("sensor = 1", 100))


def test_a_write_that_arrives_after_its_delete(sensors: Sensors) -> None:
    """A delete also removes rows that were written earlier and arrive later."""

    def late() -> None:
        for sensor in (1, 2, 3):
            sensors.insert(sensor, AT[0], 100, a=1)
        sensors.insert(3, AT[1], 0, a=1)

    def delete() -> None:
        sensors.delete("sensor = 1", 50)
        sensors.delete(f"sensor = 2 AND at < {AT[1]}", 50)
        sensors.delete(f"sensor = 3 AND at = {AT[0]}", 50)

    sensors.follow(delete, late)


def test_a_slow_page_is_disconnected(
    example: ModuleType, scylla: Scylla, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow page gets no more events, while another page still gets them."""
    monkeypatch.setattr(example, "WAITING", 10)
    table = example.LiveTable()

    async def follow() -> tuple[int, int]:
        slow, quick = aiter(table.events()), aiter(table.events())
        await anext(slow)  # the first event, which connects the page
        read = [await anext(quick)]
        following = asyncio.create_task(example.follow(table, scylla.contact_point, orders.name))
        while len(read) <= 20:
            read.append(await anext(quick))
        following.cancel()
        await asyncio.wait([following])
        return len([event async for event in slow]), len(read)

    assert asyncio.run(follow()) == (0, 21)

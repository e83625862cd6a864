"""`ClusterClock`: when it measures, and whether it follows the machine's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from cdc_reader._time import Clock, SystemClock
from cdc_reader.cluster import ClusterClock, Connection
from cdc_reader.cluster.clock import TOLERANCE
from cdc_reader.cluster.queries import Query, Request
from cdc_reader.config import ReadConfig
from cdc_reader.errors import CdcError
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.support.wrong_clock import WrongClock

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
EPOCH = 1_700_000_000 * SECOND
Make = Callable[[Clock], ClusterClock]


@pytest.fixture
def clock() -> ManualClock:
    """The clock of the server."""
    return ManualClock(EPOCH)


@pytest.fixture
def server(clock: ManualClock) -> Iterator[EmbeddedScylla]:
    """A server with one node."""
    with EmbeddedScylla(clock=clock, ring_delay_ms=0) as server:
        yield server


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """A function that calls another, and returns how often it queried the cluster's time."""
    sent = []
    request = Connection.request

    def counted(connection: Connection, query: Query) -> Request:
        sent.append(query)
        return request(connection, query)

    monkeypatch.setattr(Connection, "request", counted)

    def queries(action: Callable[[], object]) -> int:
        sent.clear()
        action()
        return len(sent)

    return queries


@pytest.fixture
def make(server: EmbeddedScylla) -> Iterator[Make]:
    """A function that returns a new `ClusterClock` for the server's cluster."""
    opened: list[Connection] = []

    def make(own: Clock) -> ClusterClock:
        read = ReadConfig(retry_deadline=timedelta(0))
        opened.append(Connection(server.contact_point, read))
        session = opened[-1].session()
        while len(session.get_pools()) < len(server.nodes):
            threading.Event().wait(0.01)
        return ClusterClock(opened[-1], own)

    yield make
    for connection in opened:
        connection.close()


@pytest.mark.parametrize("ahead", [0, TOLERANCE, -TOLERANCE])
def test_a_clock_that_agrees(
    clock: ManualClock,
    make: Make,
    queries: Callable[[Callable[[], object]], int],
    caplog: pytest.LogCaptureFixture,
    ahead: int,
) -> None:
    """If machine and cluster agree on the time, the machine's clock is next checked after 5 min."""
    cluster = make(WrongClock(clock, ahead))
    assert queries(cluster.now) == 1
    assert cluster.now() == clock.now() + ahead
    assert cluster.correction() == 0
    clock.advance(4 * MINUTE)
    assert queries(cluster.now) == 0
    clock.advance(MINUTE)
    assert queries(cluster.now) == 1
    assert "clock_" not in caplog.text


@pytest.mark.parametrize(
    ("ahead", "event"),
    [(TOLERANCE + 1, "clock_ahead"), (DAY, "clock_ahead"), (-2 * DAY, "clock_behind")],
)
def test_a_clock_that_differs(
    clock: ManualClock, make: Make, caplog: pytest.LogCaptureFixture, ahead: int, event: str
) -> None:
    """If the machine's clock is wrong, the cluster's time is used and one warning is logged."""
    cluster = make(WrongClock(clock, ahead))
    assert cluster.now() == clock.now()
    clock.advance(10 * MINUTE)
    assert cluster.now() == cluster.estimate() == clock.now()
    assert cluster.correction() == -ahead
    assert caplog.text.count("clock_") == caplog.text.count(event) == 1
    assert f"seconds={round(abs(ahead) / SECOND, 1)}" in caplog.text
    assert "set this machine's clock" in caplog.text


class MachineClock(SystemClock):
    """The machine's clock, set ahead by `ahead` µs."""

    ahead = -DAY

    def now(self) -> int:
        return super().now() + self.ahead


def test_a_clock_that_is_set() -> None:
    """A change of the machine's clock is noticed before the next query.

    The change may correct the clock or make it wrong.
    """
    own = MachineClock()
    with EmbeddedScylla(ring_delay_ms=0) as server:
        connection = Connection(server.contact_point, ReadConfig())
        cluster = ClusterClock(connection, own)
        assert abs(cluster.now() - SystemClock().now()) < MINUTE
        connection.close()
    for ahead in (0, DAY):
        own.ahead = ahead
        assert abs(cluster.now() - SystemClock().now()) < MINUTE
        assert (cluster.correction() == 0) == (ahead == 0)


def test_one_wrong_node(
    server: EmbeddedScylla, clock: ManualClock, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """One node with a wrong clock does not affect the result, whatever the order of the queries."""
    for _ in range(2):
        server.join(vnodes=2)
    for node in server.nodes:
        server.skew_clock(node, MINUTE)
        for _ in server.nodes:
            assert make(WrongClock(clock, 0)).now() == clock.now()
        server.skew_clock(node, 0)
    assert "clock_" not in caplog.text


class Leaping(WrongClock):
    """A wrong clock that advances `clock` by `leap` µs at some of its reads.

    `reads` contains the numbers of these reads, counted from 1.
    """

    def __init__(self, clock: ManualClock, ahead: int, leap: int, reads: set[int]) -> None:
        super().__init__(clock, ahead)
        self._leap, self._reads, self._count = leap, reads, 0

    def now(self) -> int:
        self._count += 1
        if self._count in self._reads:
            self._clock.advance(self._leap)
        return super().now()


def test_a_slow_response(
    clock: ManualClock, make: Make, queries: Callable[[Callable[[], object]], int]
) -> None:
    """A slow response gives an inaccurate measurement, so the cluster is queried again."""
    cluster = make(Leaping(clock, 10 * SECOND, 40 * SECOND, {2}))
    assert queries(cluster.now) == 3
    assert cluster.now() == clock.now()


def test_slow_responses_only(clock: ManualClock, make: Make) -> None:
    """If all responses are slow, the quickest one is used and a new measurement follows soon."""
    cluster = make(Leaping(clock, DAY, 20 * SECOND, {2, 5, 8}))
    assert abs(cluster.now() - clock.now()) <= 10 * SECOND
    clock.advance(10 * SECOND)
    assert cluster.now() == clock.now()


def test_an_outage(server: EmbeddedScylla, clock: ManualClock, make: Make) -> None:
    """An error of the first measurement is raised. After later errors, the last result is used."""
    own = WrongClock(clock, DAY)
    cluster = make(own)
    cluster.now()
    node = server.cluster.nodes[0]
    server.take_down(node)
    with pytest.raises(CdcError):
        make(own).now()
    clock.advance(10 * MINUTE)
    assert cluster.now() == clock.now()
    server.bring_up(node)

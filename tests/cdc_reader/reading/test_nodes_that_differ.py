"""Readers of a cluster in which one of three nodes has not heard of the newest changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve

from cdc_reader.config import ReadConfig
from cdc_reader.reading.delivery import WindowComplete
from cdc_reader.testing.embedded.topology.ring import Node
from cdc_reader.testing.in_process import RecordedQuery
from tests.cdc_reader.support.followed import SECOND, Followed, cells, next_window, read_to

pytestmark = pytest.mark.needs("faults", "topology")

MINUTE = 60 * SECOND
CONFIG = ReadConfig(window=timedelta(seconds=10), retry_deadline=timedelta(seconds=1))


def cluster(*, tablets: bool = True, config: ReadConfig = CONFIG) -> Followed:
    """Return three nodes, of which the first answers, with a row that was written a minute ago."""
    followed = Followed(config=config, tablets=tablets, nodes=3)
    followed.insert(1, 1)
    followed.clock.advance(MINUTE)
    return followed


def frozen(followed: Followed) -> Node:
    """Freeze the last node, and return it."""
    last = followed.server.nodes[-1]
    followed.server.freeze(last)
    return last


def always(node: Node | None) -> Callable[[RecordedQuery], Node | None]:
    """Return the choice of one node for every page; None is the first node."""
    return lambda _: node


def test_passes_answered_by_a_lagging_node_lose_no_rows() -> None:
    """A reader goes on in the streams that it knows when a node answers that lacks them."""
    followed = cluster()
    start, behind = followed.clock.now() - MINUTE, frozen(followed)
    followed.server.split_tablets("ks", "t")
    followed.clock.advance(MINUTE)
    deliveries = followed.follower(start).follow()
    written, read = [1], []
    for number in range(60):
        for p in range(6):
            written.append(1_000 + 6 * number + p)
            followed.insert(p, written[-1])
        followed.node = always(behind if 20 <= number < 24 else None)
        read += next_window(deliveries)[0]
    read += read_to(followed.clock.now(), deliveries)
    assert sorted(c for (c,) in cells(read, "c")) == written


def test_a_restart_answered_by_a_lagging_node_repeats_no_rows() -> None:
    """A reader that restarts at a node that lags delivers no row that was delivered before."""
    followed = cluster()
    start, behind = followed.clock.now() - MINUTE, frozen(followed)
    followed.server.split_tablets("ks", "t")
    followed.clock.advance(2 * MINUTE)
    for p in range(20):
        followed.insert(p, 100 + p)
    followed.clock.advance(MINUTE)
    before = followed.follow(start, followed.clock.now() - 30 * SECOND)
    followed.clock.advance(MINUTE)
    followed.node = lambda asked: behind if "cdc_timestamps" in asked.query.cql else None
    last = before[-1]
    assert isinstance(last, WindowComplete)
    deliveries = followed.follower(last.checkpoint).follow()
    again = next_window(deliveries)[0]
    followed.node = always(None)
    for _ in range(10):
        again += next_window(deliveries)[0]
    assert len(cells(before, "c")) == 21
    assert cells(again, "c") == []


def test_columns_of_a_lagging_node_are_not_kept() -> None:
    """A reader finds a new column although a node without the column described the table."""
    followed = cluster(tablets=False)
    start, behind = followed.clock.now() - MINUTE, frozen(followed)
    deliveries = followed.follower(start).follow()
    next_window(deliveries)
    followed.execute("ALTER TABLE ks.t ADD w int")
    followed.node = lambda asked: behind if "system_schema" in asked.query.cql else None
    next_window(deliveries)
    followed.node = always(None)
    followed.server.release(behind)
    for number in (10, 11, 12):
        followed.clock.advance(20 * MINUTE)
        followed.execute(f"INSERT INTO ks.t (p, c, w) VALUES (1, {number}, {number})")
        read = read_to(followed.clock.now() + 1, deliveries)
        assert cells(read, "c", "w") == [(number, number)]


def test_all_pages_of_a_set_of_streams_come_from_one_node() -> None:
    """A node that does not know the set of streams answers none of its pages."""
    followed = cluster(config=evolve(CONFIG, fetch_size=3))
    start, behind = followed.clock.now() - MINUTE, frozen(followed)
    followed.server.split_tablets("ks", "t")
    followed.clock.advance(2 * MINUTE)
    for p in range(40):
        followed.insert(p, 100 + p)
    end = followed.clock.now()
    followed.clock.advance(MINUTE)
    followed.node = lambda asked: None if asked.paging_state is None else behind
    read = followed.follow(start, end + 1)
    pages = [asked for asked in followed.asked if "cdc_streams" in asked.query.cql]
    assert any(asked.paging_state is not None for asked in pages)
    assert sorted(c for (c,) in cells(read, "c")) == [1, *range(100, 140)]

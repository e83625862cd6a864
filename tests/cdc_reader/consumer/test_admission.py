"""Limits on changes in flight."""

from __future__ import annotations

import threading

from cdc_reader.consumer.admission import InFlightLimit, TablesInOrder
from cdc_reader.cql.names import TableName


def entering(limit: InFlightLimit, changes: int, size: int) -> tuple[threading.Thread, list[bool]]:
    """Start a thread that enters the limit. Return the thread and a list for its result."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(limit.enter(changes, size)))
    thread.start()
    return thread, found


def test_there_is_room_until_the_limit_is_reached() -> None:
    """If nothing is in flight, a page above the limit is admitted. Other pages wait for room."""
    limit = InFlightLimit(10, 100)
    assert limit.enter(50, 10)
    thread, found = entering(limit, 1, 1)
    for _ in range(4):
        limit.leave(10, 0)
        assert not found
    limit.leave(1, 0)
    thread.join()
    assert found == [True]


def test_a_page_keeps_its_bytes_until_its_last_change_is_gone() -> None:
    """A page's bytes count toward the limit until all its changes are done."""
    limit = InFlightLimit(10, 100)
    assert limit.enter(2, 100)
    thread, found = entering(limit, 1, 1)
    limit.leave(1, 0)
    assert not found
    limit.leave(1, 100)
    thread.join()
    assert found == [True]


def test_a_closed_limit_admits_nothing() -> None:
    """After `close`, `enter` returns False, even in threads that are already waiting."""
    limit = InFlightLimit(1, 1)
    assert limit.enter(1, 1)
    thread, found = entering(limit, 1, 1)
    limit.close()
    thread.join()
    assert found == [False]
    assert not limit.enter(1, 1)


def test_a_pattern_holds_tables_back_for_those_that_it_may_find() -> None:
    """Changes wait until the pattern has looked, and then for the table that it found."""
    pattern, first, found = (TableName("ks", name) for name in ("*", "a", "b"))
    turns = TablesInOrder([pattern, first])
    parts = turns.parts(first, [10, 20, 30])
    turns.reach(pattern, 15)
    assert next(parts) == range(1)
    turns.add(found)
    turns.reach(pattern, 40)
    turns.reach(found, 25)
    assert next(parts) == range(1, 2)
    turns.reach(found, 30)
    assert next(parts) == range(2, 3)  # of the same time, and first

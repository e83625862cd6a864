from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta

import pytest
from tenacity import wait_fixed

from cdc_reader.decoding import Entries, Entry
from cdc_reader.errors import (
    QueryRefusedError,
    RetriesExhaustedError,
    StoppedError,
    TransientError,
)
from cdc_reader.reading.retry import NEVER, Interruption, Stop, each_until, retry, retrying


def _failing(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def action() -> str:
        if left:
            raise left.pop(0)
        return "page"

    return action


def _no_pause(seconds: float) -> None:
    raise AssertionError(seconds)


def test_a_transient_error_is_retried_until_it_passes() -> None:
    """Transient errors are retried after random pauses, whose upper limit doubles each time."""
    pauses: list[float] = []
    action = _failing(*[TransientError("overloaded")] * 4)
    assert retry(action, timedelta(minutes=1), NEVER, pauses.append) == "page"
    assert all(0 <= pause <= 0.1 * 2**attempt for attempt, pause in enumerate(pauses))
    assert len(pauses) == 4


def test_a_persistent_error_is_raised_at_the_deadline() -> None:
    """At the deadline, an error is raised with the last transient error as its cause."""
    with pytest.raises(RetriesExhaustedError, match="after 1 attempts: overloaded") as caught:
        retry(_failing(TransientError("overloaded")), timedelta(0), NEVER, lambda _: None)
    assert isinstance(caught.value.__cause__, TransientError)


def test_a_failed_attempt_keeps_nothing_alive() -> None:
    """The objects of a failed attempt, such as a page, are freed without garbage collection."""

    class Held:
        pass

    held: list[weakref.ref[Held]] = []

    def action() -> str:
        page = Held()
        held.append(weakref.ref(page))
        if len(held) < 3:
            raise TransientError("overloaded")
        return "page"

    gc.disable()
    try:
        assert retry(action, timedelta(minutes=1), NEVER, lambda _: None) == "page"
        assert [it() for it in held] == [None] * 3
    finally:
        gc.enable()


def test_other_errors_are_raised_at_once() -> None:
    """Errors that are not transient are raised at once, because a retry would fail too."""
    with pytest.raises(QueryRefusedError):
        retry(_failing(QueryRefusedError("no such column")), timedelta(minutes=1), NEVER, _no_pause)


def test_retries_call_the_callback() -> None:
    """`on_retry` is called before each retry, but not before the first attempt."""
    seen, pauses = list[None](), list[float]()
    told = Interruption(Stop(), on_retry=lambda: seen.append(None))
    errors = [TransientError("overloaded")] * 2
    assert retry(_failing(*errors), timedelta(minutes=1), told, pauses.append) == "page"
    assert len(seen) == 2


def test_a_stop_ends_the_attempts() -> None:
    """After a stop during an attempt, there is no retry. The error shows the last failure."""
    stop, made = Stop(), list[None]()

    def action() -> None:
        made.append(None)
        if len(made) == 3:
            stop.set()
        raise TransientError("overloaded")

    with pytest.raises(StoppedError, match="after 3 attempts: overloaded"):
        retry(action, timedelta(minutes=1), Interruption(stop), lambda _: None)
    assert len(made) == 3


@pytest.mark.parametrize("counts", [[1], [2], [1, 1], [0, 1, 0]])
def test_a_stop_ends_iteration_in_the_middle_of_a_part(counts: list[int]) -> None:
    """A stop within a page raises an error, so that the iteration does not look complete."""
    stop = Stop()
    items = each_until(stop, (Entries(Entry, None, count) for count in counts))
    assert isinstance(next(items), Entry)
    stop.set()
    with pytest.raises(StoppedError):
        next(items)


def test_all_parts_are_yielded_until_a_stop() -> None:
    """The entries of all pages are yielded unless a stop is requested, which raises an error."""
    stop, parts = Stop(), [Entries(Entry, None, count) for count in (2, 0, 1)]
    assert len(list(each_until(stop, parts))) == 3
    stop.set()
    with pytest.raises(StoppedError):
        next(each_until(stop, [Entries(Entry, None, 1)]))


def test_a_stop_ends_a_pause() -> None:
    """A stop ends a pause of an hour at once, and one last attempt is made."""
    stop, made, pauses = Stop(), list[None](), threading.Event()

    def action() -> None:
        made.append(None)
        raise TransientError("overloaded")

    def run() -> None:
        hour = 3600.0
        settings = {"wait": wait_fixed(hour), "before_sleep": lambda _: pauses.set()}
        with pytest.raises(TransientError):
            retrying(lambda _: False, hour, hour, stop, reraise=True, **settings)(action)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    assert pauses.wait(120)
    stop.set()
    running.join(120)
    assert not running.is_alive()
    assert len(made) == 2

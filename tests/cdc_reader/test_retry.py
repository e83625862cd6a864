from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from datetime import timedelta

import pytest

from cdc_reader.errors import QueryRefusedError, RetriesExhaustedError, TransientError
from cdc_reader.retry import observed, retry


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
    """After pauses of at most a ceiling that doubles."""
    pauses: list[float] = []
    action = _failing(*[TransientError("overloaded")] * 4)
    assert retry(action, timedelta(minutes=1), pauses.append) == "page"
    assert all(0 <= pause <= 0.1 * 2**attempt for attempt, pause in enumerate(pauses))
    assert len(pauses) == 4


def test_an_error_that_lasts_is_given_up_at_the_deadline() -> None:
    """With the last error as its cause."""
    with pytest.raises(RetriesExhaustedError, match="after 1 attempts: overloaded") as caught:
        retry(_failing(TransientError("overloaded")), timedelta(0), lambda _: None)
    assert isinstance(caught.value.__cause__, TransientError)


def test_what_a_failed_attempt_held_is_let_go() -> None:
    """At once, without a collection of garbage: it may be a page."""

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
        assert retry(action, timedelta(minutes=1), lambda _: None) == "page"
        assert [it() for it in held] == [None] * 3
    finally:
        gc.enable()


def test_other_errors_are_raised_at_once() -> None:
    """A refused query is refused again."""
    with pytest.raises(QueryRefusedError):
        retry(_failing(QueryRefusedError("no such column")), timedelta(minutes=1), _no_pause)


def test_further_attempts_can_be_observed() -> None:
    """Within the context, not after it."""
    seen: list[None] = []
    minute, pauses = timedelta(minutes=1), list[float]()
    with observed(lambda: seen.append(None)):
        retry(_failing(*[TransientError("overloaded")] * 2), minute, pauses.append)
    retry(_failing(TransientError("overloaded")), minute, pauses.append)
    assert len(seen) == 2


def test_an_observer_may_end_the_attempts() -> None:
    """With an error of its own."""

    def observer() -> None:
        raise KeyError("enough")

    with observed(observer), pytest.raises(KeyError):
        retry(_failing(TransientError("overloaded")), timedelta(minutes=1), _no_pause)

"""Asking again after a failure that may pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import NoReturn, TypeVar

import tenacity

from cdc_reader.errors import RetriesExhaustedError, TransientError
from cdc_reader.logs import get_logger

log = get_logger(__name__)
T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
"""Seconds. Each pause is drawn from zero to a ceiling that doubles, so clients spread out."""


_observer: ContextVar[Callable[[], object] | None] = ContextVar("observer", default=None)


@contextmanager
def observed(observer: Callable[[], object]) -> Iterator[None]:
    """Call `observer` before each further attempt that is made in this context, or thread.

    What it raises is raised instead of attempting further.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def retry(
    action: Callable[[], T], deadline: timedelta, sleep: Callable[[float], None] = time.sleep
) -> T:
    """What `action` returns, called again while it raises TransientError.

    `deadline` bounds the time from the first call to the start of the last. Raises
    RetriesExhaustedError, with the last TransientError as its cause; other errors at once.
    """
    began = time.monotonic()
    try:
        return action()  # nearly always that is all: tenacity's bookkeeping takes 15 µs a call
    except TransientError as error:
        again = _failed_once(action, error)
    left = deadline - timedelta(seconds=time.monotonic() - began)
    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TransientError),
        stop=_before(left),
        wait=tenacity.wait_random_exponential(_FIRST_PAUSE, _LONGEST_PAUSE),
        before_sleep=_log,
        retry_error_callback=_give_up,
        sleep=sleep,
    )
    return attempts(again)


def _failed_once(action: Callable[[], T], error: TransientError) -> Callable[[], T]:
    """The action, whose first call was made already and raised `error`."""
    known = [error]

    def attempt() -> T:
        if known:
            raise known.pop()
        return action()

    return attempt


def _before(deadline: timedelta) -> Callable[[tenacity.RetryCallState], bool]:
    """Whether the next attempt would start past the deadline.

    By the clock, or by the pauses alone: a `sleep` that moves a test's clock takes no time.
    """
    limit = deadline.total_seconds()

    def stop(state: tenacity.RetryCallState) -> bool:
        passed = max(state.seconds_since_start or 0.0, state.idle_for)
        return passed + state.upcoming_sleep >= limit

    return stop


def _log(state: tenacity.RetryCallState) -> None:
    log.warning("retry", attempt=state.attempt_number, error=str(_error(state)))
    if observer := _observer.get():
        observer()


def _give_up(state: tenacity.RetryCallState) -> NoReturn:
    raise RetriesExhaustedError(
        f"gave up after {state.attempt_number} attempts: {_error(state)}"
    ) from _error(state)


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None

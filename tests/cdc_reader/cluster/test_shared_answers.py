"""Answers that the tables of a connection share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from cdc_reader.cluster.queries import SharedAnswers
from cdc_reader.errors import StoppedError
from cdc_reader.reading.retry import NEVER, Interruption, Stop

_AGE = 100


@pytest.fixture
def asked() -> Callable[[], int]:
    """A question whose answer is the number of times that it was asked."""
    numbers = count(1)
    return lambda: next(numbers)


def test_passes_that_begin_within_the_age_share_a_moment() -> None:
    """A pass that begins later, or whose clock was set back, has a moment of its own."""
    answers = SharedAnswers()
    begun = 1_000, 1_000 + _AGE, 1_001 + _AGE, 900, 950
    assert [answers.moment(now, _AGE) for now in begun] == [1_000, 1_000, 1_101, 900, 900]


def test_an_answer_is_shared_since_its_moment(asked: Callable[[], int]) -> None:
    """It is not shared by a pass with a later moment, nor by a question that must be asked now."""
    answers = SharedAnswers()
    first = answers.moment(1_000, _AGE)
    assert [answers.answer("version", first, asked, NEVER) for _ in range(2)] == [1, 1]
    assert answers.answer("version", None, asked, NEVER) == 2
    assert answers.answer("version", first + 1, asked, NEVER) == 3
    later = answers.moment(2_000, _AGE)
    assert [answers.answer("version", since, asked, NEVER) for since in (later, first)] == [4, 4]


def test_no_answer_is_shared_after_the_clock_was_set_back(asked: Callable[[], int]) -> None:
    """Otherwise an answer would be used until the clock reaches its time again."""
    answers = SharedAnswers()
    assert answers.answer("version", answers.moment(9_000, _AGE), asked, NEVER) == 1
    assert answers.answer("version", answers.moment(1_000, _AGE), asked, NEVER) == 2


@pytest.mark.parametrize("fails", [False, True])
def test_threads_wait_for_the_first_that_asks(asked: Callable[[], int], fails: bool) -> None:
    """If the first fails, it alone raises the error, and each of the others asks by itself."""
    answers, asking, goes_on = SharedAnswers(), threading.Event(), threading.Event()
    moment = answers.moment(1_000, _AGE)

    def slow() -> int:
        asking.set()
        assert goes_on.wait(60)
        if fails:
            raise ValueError("no answer")
        return asked()

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(answers.answer, "version", moment, slow, NEVER)
        assert asking.wait(60)
        others = [threads.submit(answers.answer, "version", moment, asked, NEVER) for _ in range(2)]
        goes_on.set()
        assert isinstance(first.exception(), ValueError) == fails
        assert sorted(other.result() for other in others) == ([1, 2] if fails else [1, 1])


def test_a_stop_ends_the_wait_for_another_thread(asked: Callable[[], int]) -> None:
    """The thread that asks is not stopped: its answer is used by others."""
    answers, asking, goes_on, stop = SharedAnswers(), threading.Event(), threading.Event(), Stop()
    moment = answers.moment(1_000, _AGE)

    def slow() -> int:
        asking.set()
        assert goes_on.wait(60)
        return asked()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(answers.answer, "version", moment, slow, NEVER)
        assert asking.wait(60)
        other = threads.submit(answers.answer, "version", moment, asked, Interruption(stop))
        stop.set()
        assert isinstance(other.exception(60), StoppedError)
        goes_on.set()
        assert first.result() == answers.answer("version", moment, asked, NEVER) == 1

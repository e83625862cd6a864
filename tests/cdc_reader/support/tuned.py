"""Replaces what readers decide themselves, to reach their limits with little data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cdc_reader.reading import tuning
from cdc_reader.streams.strategy import Strategy, StrategyChoice


@contextmanager
def tuned(*, strategy: str = "auto", in_flight: int | None = None, **values: int) -> Iterator[None]:
    """Replace values of `tuning`, named in lower case, within this context.

    `in_flight` is the constant number of queries in flight. `strategy` is ``streams``, ``ranges``
    or ``auto``.
    """
    if in_flight is not None:
        values |= {"first_in_flight": in_flight, "most_in_flight": in_flight}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(tuning, name.upper(), value)
        if strategy != "auto":
            patch.setattr(StrategyChoice, "next", lambda _: Strategy[strategy.upper()])
        yield


def tuning_of_module(*, strategy: str = "auto", **values: int) -> Callable[[], Iterator[None]]:
    """Return a fixture that replaces values of `tuning` for all tests of a module."""

    @pytest.fixture(autouse=True)
    def replaced() -> Iterator[None]:
        with tuned(strategy=strategy, **values):
            yield

    return replaced

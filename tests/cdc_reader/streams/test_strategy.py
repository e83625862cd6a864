"""The choice of a strategy from measurements."""

from __future__ import annotations

import pytest

from cdc_reader.streams.strategy import Strategy, StrategyChoice


def read(
    choice: StrategyChoice, windows: int, cost: dict[Strategy, int], share: float
) -> list[Strategy]:
    """Return the strategies chosen for `windows` windows, each of which costs `cost[strategy]`."""
    used = []
    for _ in range(windows):
        used.append(way := choice.next())
        choice.record(way, cost[way], 100, share)
    return used


@pytest.mark.parametrize("wanted", [Strategy.STREAMS, Strategy.RANGES])
def test_a_fixed_strategy_is_kept(wanted: Strategy) -> None:
    """A fixed strategy is kept even if the other strategy would be faster."""
    cost = {wanted: 1_000, _other(wanted): 1}
    assert set(read(StrategyChoice(wanted), 100, cost, 0.0)) == {wanted}


def test_auto_switches_to_whatever_is_faster() -> None:
    """On a log where few streams have rows, `auto` switches to the faster strategy."""
    choice = StrategyChoice(Strategy.AUTO)
    quick = {Strategy.STREAMS: 500, Strategy.RANGES: 30}
    used = read(choice, 100, quick, 0.0)
    assert used[:20] == [Strategy.STREAMS] * 20
    assert used[30:40] == [Strategy.RANGES] * 10
    slow = {Strategy.STREAMS: 70, Strategy.RANGES: 700}
    assert read(choice, 200, slow, 0.0)[-10:].count(Strategy.STREAMS) >= 9


def test_auto_switches_only_to_a_measured_strategy() -> None:
    """Before `auto` switches to another strategy, it measures that strategy in one window."""
    choice = StrategyChoice(Strategy.AUTO)
    for cost in range(1_000, 980, -1):
        assert choice.next() is Strategy.STREAMS
        choice.record(Strategy.STREAMS, cost, 100, 0.0)
    assert choice.next() is Strategy.RANGES
    choice.record(Strategy.RANGES, 2_000, 100, 0.0)
    assert choice.next() is Strategy.STREAMS


def test_only_auto_is_open() -> None:
    """A fixed strategy needs no measurements."""
    assert [way for way in Strategy if StrategyChoice(way).is_open] == [Strategy.AUTO]


def test_auto_does_not_try_ranges_while_many_streams_have_rows() -> None:
    """While many streams have rows, `auto` does not try ranges, because they would be costly."""
    cost = {Strategy.STREAMS: 500, Strategy.RANGES: 1}
    assert set(read(StrategyChoice(Strategy.AUTO), 100, cost, 0.5)) == {Strategy.STREAMS}


def test_auto_leaves_ranges_once_many_streams_have_rows() -> None:
    """`auto` stops using ranges once many streams have rows.

    Windows of both strategies report the fraction of streams that have rows.
    """
    choice = StrategyChoice(Strategy.AUTO)
    cost = {Strategy.STREAMS: 500, Strategy.RANGES: 30}
    assert read(choice, 60, cost, 0.0)[-1] is Strategy.RANGES
    assert read(choice, 2, cost, 0.9)[-1] is Strategy.STREAMS


def _other(strategy: Strategy) -> Strategy:
    return Strategy.STREAMS if strategy is Strategy.RANGES else Strategy.RANGES

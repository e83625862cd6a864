"""The choice of a strategy from measurements."""

from __future__ import annotations

from cdc_reader.streams.strategy import Strategy, StrategyChoice


def read(
    choice: StrategyChoice, windows: int, cost: dict[Strategy, int], *, is_sparse: bool = True
) -> list[Strategy]:
    """Return the strategies chosen for `windows` windows, each of which costs `cost[strategy]`."""
    used = []
    for _ in range(windows):
        used.append(way := choice.next())
        choice.record(way, cost[way], 100, is_sparse=is_sparse)
    return used


def test_reads_switches_to_whatever_is_faster() -> None:
    """On a log where few streams have rows, reads switch to the faster strategy."""
    choice = StrategyChoice()
    quick = {Strategy.STREAMS: 500, Strategy.RANGES: 30}
    used = read(choice, 100, quick)
    assert used[:20] == [Strategy.STREAMS] * 20
    assert used[30:40] == [Strategy.RANGES] * 10
    slow = {Strategy.STREAMS: 70, Strategy.RANGES: 700}
    assert read(choice, 200, slow)[-10:].count(Strategy.STREAMS) >= 9


def test_reads_switches_only_to_a_measured_strategy() -> None:
    """Before reads switch to another strategy, they measure that strategy in one window."""
    choice = StrategyChoice()
    for cost in range(1_000, 980, -1):
        assert choice.next() is Strategy.STREAMS
        choice.record(Strategy.STREAMS, cost, 100, is_sparse=True)
    assert choice.next() is Strategy.RANGES
    choice.record(Strategy.RANGES, 2_000, 100, is_sparse=True)
    assert choice.next() is Strategy.STREAMS


def test_reads_does_not_try_ranges_while_many_streams_have_rows() -> None:
    """While many streams have rows, ranges are not tried, because they would be costly."""
    cost = {Strategy.STREAMS: 500, Strategy.RANGES: 1}
    assert set(read(StrategyChoice(), 100, cost, is_sparse=False)) == {Strategy.STREAMS}


def test_reads_leaves_ranges_once_many_streams_have_rows() -> None:
    """Reads stop using ranges once many streams have rows.

    Windows of both strategies report the fraction of streams that have rows.
    """
    choice = StrategyChoice()
    cost = {Strategy.STREAMS: 500, Strategy.RANGES: 30}
    assert read(choice, 60, cost)[-1] is Strategy.RANGES
    assert read(choice, 2, cost, is_sparse=False)[-1] is Strategy.STREAMS

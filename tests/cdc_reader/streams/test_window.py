from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import FOREVER
from cdc_reader.streams.window import Window, WindowSize

MICROS = st.integers(-1_000, 1_000)


@given(MICROS, MICROS, MICROS, MICROS, MICROS)
def test_an_intersection_holds_what_both_hold(a: int, b: int, c: int, d: int, at: int) -> None:
    """An intersection contains the microseconds that are in both windows."""
    first, second = Window(a, b), Window(c, d)
    assert (at in first.intersect(second)) == (at in first and at in second)


def test_a_window_is_half_open() -> None:
    """A window includes its start but not its end."""
    window = Window(0, 10)
    assert (0 in window, 9 in window, 10 in window) == (True, True, False)
    assert (window.length, Window(3, 2).length, Window(3, 3).is_empty) == (10, 0, True)
    assert str(Window(0, FOREVER)) == f"[1970-01-01T00:00:00Z, {FOREVER} µs)"


def test_windows_double_while_empty_up_to_their_limit_and_go_back_on_data() -> None:
    """The window size doubles after empty windows, up to a limit. A window with rows resets it."""
    size, lengths = WindowSize(base=10, limit=70), []
    for empty in (True, True, True, True, False, True):
        lengths.append(size.current)
        size = size.after(empty=empty)
    assert lengths == [10, 20, 40, 70, 70, 10]


def test_a_limit_below_the_base_does_not_shrink_windows() -> None:
    """A limit below the base size does not shrink windows below the base size."""
    assert WindowSize(base=10, limit=5).after(empty=True).current == 10


def test_a_size_below_the_base_grows_back_unless_windows_are_crowded() -> None:
    """Below its base value, the window size doubles after each window that is not crowded.

    From the base value on, the size grows only after empty windows.
    """
    size = WindowSize(base=16, limit=64, doublings=2).below(10)
    assert size.current == 8
    assert size.below(2).current == 1
    assert size.after(empty=False, crowded=True).current == 8
    grown = size.after(empty=False).after(empty=False).after(empty=False)
    assert grown.current == 16
    assert size.after(empty=True).after(empty=True).current == 32

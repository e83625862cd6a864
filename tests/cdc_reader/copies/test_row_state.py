"""The state of a row is a text: what it says, how two of them join, and how they sort."""

from __future__ import annotations

from typing import TypeAlias

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._time import Micros
from cdc_reader.changes import lifetimes
from cdc_reader.changes.frames import columns as names
from cdc_reader.copies import row_state

Told: TypeAlias = tuple[bool, tuple[Micros, Micros, bool] | None]
"""Whether a row was inserted, and when its first and last values expire and whether all do."""

SECOND = 1_000_000
TIMES = st.integers(1, 4_000_000_000).map(lambda seconds: seconds * SECOND)
EXPIRIES = st.tuples(TIMES, TIMES, st.booleans()).map(lambda it: (min(it[:2]), max(it[:2]), it[2]))
FIELDS = [field.name for field in lifetimes.TYPE]
NUMBERS = pa.struct([pa.field("first", pa.int64()), ("last", pa.int64()), ("whole", pa.bool_())])
ROWS = st.tuples(st.booleans(), st.none() | EXPIRIES)


def states(*rows: Told) -> pa.Array:
    """Return the states of rows."""
    expires = [None if it is None else dict(zip(FIELDS, it, strict=True)) for _, it in rows]
    return row_state.states_of(
        pa.table(
            {
                names.INSERTED: [inserted for inserted, _ in rows],
                names.EXPIRES: pa.array(expires, lifetimes.TYPE),
            }
        )
    )


@given(st.lists(ROWS))
def test_a_state_says_what_it_was_made_of(rows: list[Told]) -> None:
    """What goes into a state comes out of it."""
    kept = pa.table({"key": pa.array(range(len(rows))), "state": states(*rows)})
    found = row_state.with_states(kept, "state")
    expires = found.column(names.EXPIRES).combine_chunks().cast(NUMBERS).to_pylist()
    told = [None if it is None else tuple(it.values()) for it in expires]
    assert [*zip(found.column(names.INSERTED).to_pylist(), told, strict=True)] == rows


def test_a_row_that_was_inserted_and_does_not_expire_has_no_state() -> None:
    """Most rows have none, which costs no space."""
    assert states((True, None), (False, None)).to_pylist() == [None, "9999999999 0000000000 --"]


@given(EXPIRIES, st.integers(0, 5_000_000_000 * SECOND))
def test_states_sort_by_their_first_expiry(
    expiry: tuple[Micros, Micros, bool], time: Micros
) -> None:
    """So the least state of a file tells its first expiry."""
    [state] = states((False, expiry)).to_pylist()
    assert (state < row_state.before(time)) == (expiry[0] < time)
    assert row_state.expiry_in(state) == expiry[0]


@given(ROWS, ROWS)
def test_the_state_of_two_parts(one: Told, other: Told) -> None:
    """SQL joins two states as it says."""
    parts = pa.table({"s": states(one), "t": states(other)})
    sql = f"SELECT {row_state.joined('s', 't')}, {row_state.first('s')}, {row_state.last('s')} "
    with duckdb.connect() as database:
        database.register("parts", parts)
        found, first, last = database.execute(f"{sql} FROM parts").fetchone() or ()
    assert found == states(both(one, other))[0].as_py()
    assert (first, last) == ((None, None) if one[1] is None else one[1][:2])


def both(one: Told, other: Told) -> Told:
    """Return what is true of a row with both parts."""
    expiries = [it for _, it in (one, other) if it is not None]
    if not expiries:
        return one[0] or other[0], None
    firsts, lasts, whole = zip(*expiries, strict=True)
    return one[0] or other[0], (min(firsts), max(lasts), len(expiries) == 2 and all(whole))


@pytest.mark.parametrize("time", [-SECOND, 0, 1, 10**16])
def test_the_bound_of_unusual_times(time: Micros) -> None:
    """A bound has ten digits, whatever the time."""
    assert "0000000000" <= row_state.before(time) <= row_state.NEVER

"""What a copy keeps of each row beside its values: the column `state`.

It is a struct of these fields:

- `inserted`: whether an INSERT created the row, or it was in a snapshot. Such rows remain when they
  lose their last value.
- `first` and `last`: when the first and the last of the row's values that expire do, in µs since
  1970; null if none does. They may be earlier than that, but not later.
- `whole`: whether all values of the row expire, and it with them.

The struct is null for rows that were inserted and do not expire.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import booleans, to_arrow, valid
from cdc_reader._time import Micros
from cdc_reader.changes import lifetimes
from cdc_reader.changes.folding.keys import flat
from cdc_reader.changes.frames import columns as names

INSERTED, FIRST, LAST, WHOLE = "inserted", "first", "last", "whole"
TYPE = pa.struct(
    [(INSERTED, pa.bool_()), (FIRST, pa.int64()), (LAST, pa.int64()), (WHOLE, pa.bool_())]
)


def states_of(rows: pa.Table) -> pa.StructArray:
    """Return the states of rows with the columns `_inserted` and, if they tell it, `_expires`."""
    inserted = booleans(flat(rows.column(names.INSERTED)))
    nothing = pa.nulls(rows.num_rows, lifetimes.TYPE)
    expires = flat(rows.column(names.EXPIRES)) if names.EXPIRES in rows.schema.names else nothing
    firsts, lasts, whole = expires.flatten()
    cells = [to_arrow(inserted), firsts.cast(pa.int64()), lasts.cast(pa.int64()), whole]
    is_plain = to_arrow(inserted & ~valid(expires))
    return pa.StructArray.from_arrays(cells, fields=list(TYPE), mask=is_plain)


def with_states(rows: pa.Table, state: str) -> pa.Table:
    """Return rows of a copy with the columns `_inserted` and `_expires` instead of the state."""
    states = flat(rows.column(state))
    inserted, *expiries, whole = states.cast(TYPE).flatten()
    found = rows.drop_columns([state])
    found = found.append_column(names.INSERTED, pc.fill_null(inserted, True))
    times = [each.cast(lifetimes.TYPE.field(0).type) for each in expiries]
    expires = pa.StructArray.from_arrays(
        [*times, whole], fields=list(lifetimes.TYPE), mask=states.is_null()
    )
    return found.append_column(names.EXPIRES, expires)


def first_expiry(states: pa.ChunkedArray | pa.Array) -> Micros | None:
    """Return when the first value of these rows expires, or None if none does."""
    if not len(states):
        return None
    first: Micros | None = pc.min(pc.struct_field(states, FIRST)).as_py()
    return first

"""What a copy keeps of each row beside its values: the column `state`.

It is a text of three words, such as ``1764482555 1764489999 i-``:

- when the first of the row's values that expire does, and when the last does, in seconds since
  1970. If none expires, they are ``9999999999`` and ``0000000000``. A value may expire earlier than
  these say, but not later.
- two flags: ``i`` if an INSERT created the row, or it was in a snapshot, because such rows remain
  when they lose their last value; and ``w`` if the whole row expires, with all of its values. A
  flag that is not set is ``-``.

The state is null for rows that were inserted and do not expire. It is not a struct, because Iceberg
decodes files with structs row by row. The first expiry comes first, so that the statistics of a
file, which have its least text, tell whether any of its values has expired.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_reader._arrow import Mask, booleans, cells, to_arrow, valid
from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.changes.arrays import NONE, Indices, pick
from cdc_reader.changes.folding.keys import flat
from cdc_reader.changes.frames import columns as names
from cdc_reader.changes.lifetimes import TYPE as LIFETIMES
from cdc_reader.changes.lifetimes import Lifetimes

TYPE = pa.string()
NEVER = "9999999999"
"""The first word of states of rows of which no value expires: it follows all others."""
_NONE = "0000000000"
PLAIN = f"{NEVER} {_NONE} i-"
"""What a null means."""

_SECOND = 1_000_000
_FIRST, _LAST, _INSERTED, _WHOLE = (1, 10), (12, 10), (23, 1), (24, 1)
"""Where each part begins, from 1 as in SQL, and its length."""


def states_of(rows: pa.Table) -> pa.Array:
    """Return the states of rows with the columns `_inserted` and, if they tell it, `_expires`."""
    inserted = booleans(flat(rows.column(names.INSERTED)))
    nothing = pa.nulls(rows.num_rows, LIFETIMES)
    expires = flat(rows.column(names.EXPIRES)) if names.EXPIRES in rows.schema.names else nothing
    told = np.flatnonzero(~inserted | valid(expires))
    lifetimes = Lifetimes.of_column(expires).at(told)
    flags = _flag(inserted[told], "i"), _flag(lifetimes.whole, "w")
    words = [
        _words(lifetimes.first, FOREVER, NEVER),
        _words(lifetimes.last, BEGINNING, _NONE),
        pc.binary_join_element_wise(*flags, ""),
    ]
    places = np.full(rows.num_rows, NONE)
    places[told] = np.arange(len(told))
    return pick(pc.binary_join_element_wise(*words, " "), places)


def with_states(rows: pa.Table, state: str) -> pa.Table:
    """Return rows of a copy with the columns `_inserted` and `_expires` instead of the state."""
    states = pc.fill_null(flat(rows.column(state)).cast(TYPE), PLAIN)
    lifetimes = Lifetimes(
        _times(_part(states, _FIRST), NEVER, FOREVER),
        _times(_part(states, _LAST), _NONE, BEGINNING),
        booleans(pc.equal(_part(states, _WHOLE), "w")),
    )
    found = rows.drop_columns([state])
    found = found.append_column(names.INSERTED, pc.equal(_part(states, _INSERTED), "i"))
    return found.append_column(names.EXPIRES, lifetimes.column())


def first_expiry(states: pa.ChunkedArray | pa.Array) -> Micros | None:
    """Return when the first value of these rows expires, or None if none does."""
    return expiry_in(pc.min(states.cast(TYPE)).as_py())


def expiry_in(state: str | None) -> Micros | None:
    """Return when the first value of a row in this state expires, or None if none does."""
    found = NEVER if state is None else state[: len(NEVER)]
    return None if found == NEVER else int(found) * _SECOND


def before(time: Micros) -> str:
    """Return a text that follows exactly the states in which a value expires before the time."""
    return f"{min(max(-(-time // _SECOND), 0), int(NEVER)):010d}"


def is_inserted(state: str) -> str:
    """Return in SQL whether a row was inserted, from its state in SQL."""
    return f"COALESCE({_text(state, _INSERTED)} = 'i', true)"


def is_whole(state: str) -> str:
    """Return in SQL whether a row expires as a whole, from its state in SQL."""
    return f"COALESCE({_text(state, _WHOLE)} = 'w', false)"


def first(state: str) -> str:
    """Return in SQL when the first value of a row expires, in µs; null if none does."""
    return _micros(state, _FIRST, NEVER)


def last(state: str) -> str:
    """Return in SQL when the last value of a row that expires does, in µs; null if none does."""
    return _micros(state, _LAST, _NONE)


def joined(one: str, other: str) -> str:
    """Return in SQL the state of a row that consists of two parts, from the states of both."""
    ours, theirs = (f"COALESCE({it}, '{PLAIN}')" for it in (one, other))
    first_word, last_word, inserted, whole = (
        f"{choice}({_text(ours, part)}, {_text(theirs, part)})"
        for choice, part in (
            ("least", _FIRST),
            ("greatest", _LAST),
            ("greatest", _INSERTED),  # a flag that is set follows '-'
            ("least", _WHOLE),
        )
    )
    found = f"concat({first_word}, ' ', {last_word}, ' ', {inserted}, {whole})"
    return f"CASE WHEN {one} IS NOT NULL OR {other} IS NOT NULL THEN NULLIF({found}, '{PLAIN}') END"


def _flag(mask: Mask, letter: str) -> pa.Array:
    return pc.if_else(to_arrow(mask), letter, "-")


def _words(times: Indices, none: Micros, word: str) -> pa.Array:
    """Return times, in µs, as words of ten digits; `word` for those that stand for none."""
    seconds = np.clip(-(-times // _SECOND), 1, int(NEVER) - 1)  # 0 stands for none
    padded = pc.utf8_lpad(to_arrow(seconds).cast(TYPE), 10, "0")
    return pc.if_else(to_arrow(times == none), word, padded)


def _times(words: pa.Array, word: str, none: Micros) -> Indices:
    """Return the times, in µs, that words of ten digits say; `none` for this word."""
    is_none = booleans(pc.equal(words, word))
    return np.where(is_none, none, cells(words.cast(pa.int64())) * _SECOND)


def _part(states: pa.Array, place: tuple[int, int]) -> pa.Array:
    begin, length = place
    return pc.utf8_slice_codeunits(states, begin - 1, begin - 1 + length)


def _text(state: str, place: tuple[int, int]) -> str:
    begin, length = place
    return f"substr({state}, {begin}, {length})"


def _micros(state: str, place: tuple[int, int], none: str) -> str:
    return f"CAST(NULLIF({_text(state, place)}, '{none}') AS BIGINT) * {_SECOND}"

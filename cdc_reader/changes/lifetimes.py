"""When what was written expires: of a change, of a row, or of several of them together."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from attrs import frozen

from cdc_reader._arrow import Mask, booleans, filled, to_arrow
from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.changes.arrays import Indices

_TIME = pa.timestamp("us", tz="UTC")
TYPE = pa.struct([("first", _TIME), ("last", _TIME), ("whole", pa.bool_())])
"""The type of the column `_expires`; its fields are those of `Lifetimes`.

It is null if nothing expires."""


def expiry_of(times: Indices, ttls: Indices | int) -> Indices:
    """Return when values expire, in µs, from their write times in µs, and their TTLs in seconds.

    The server counts in whole seconds of its clock.
    """
    return (times // 1_000_000 + ttls) * 1_000_000


@frozen(eq=False)
class Lifetimes:
    """For each of several things, when its parts expire, in µs.

    A part is a cell, an element of a collection, or a row marker.
    """

    first: Indices
    """When the first part expires; `FOREVER` if none does."""
    last: Indices
    """When the last of the parts that expire does; `BEGINNING` if there are none."""
    whole: Mask
    """Whether all parts expire; true if nothing was written."""

    @classmethod
    def endless(cls, count: int) -> Lifetimes:
        """Return the lifetimes of things that do not expire."""
        firsts, lasts = np.full(count, FOREVER, np.int64), np.full(count, BEGINNING, np.int64)
        return cls(firsts, lasts, np.zeros(count, bool))

    @classmethod
    def of_parts(cls, expiries: Iterable[Indices], lives: Iterable[Mask], count: int) -> Lifetimes:
        """Return the lifetimes of things from the expiry of each part, and whether it is there.

        A part that does not expire has the expiry `FOREVER`.
        """
        firsts, lasts = np.full(count, FOREVER, np.int64), np.full(count, BEGINNING, np.int64)
        whole = np.ones(count, bool)
        for expiry, is_there in zip(expiries, lives, strict=True):
            ends = is_there & (expiry != FOREVER)
            firsts = np.where(ends, np.minimum(firsts, expiry), firsts)
            lasts = np.where(ends, np.maximum(lasts, expiry), lasts)
            whole &= ends | ~is_there
        return cls(firsts, lasts, whole)

    @classmethod
    def of_column(cls, column: pa.StructArray) -> Lifetimes:
        """Return what a column of type `TYPE` contains."""
        firsts, lasts, whole = column.flatten()  # with the nulls of the whole struct
        return cls(
            filled(firsts.cast(pa.int64()), FOREVER),
            filled(lasts.cast(pa.int64()), BEGINNING),
            booleans(whole),
        )

    def column(self) -> pa.StructArray:
        """Return a column of type `TYPE`."""
        firsts = to_arrow(self.first, nulls=self.first == FOREVER).cast(_TIME)
        lasts = to_arrow(self.last, nulls=self.last == BEGINNING).cast(_TIME)
        is_endless = to_arrow((self.first == FOREVER) & ~self.whole)
        return pa.StructArray.from_arrays(
            [firsts, lasts, to_arrow(self.whole)], fields=list(TYPE), mask=is_endless
        )

    def at(self, rows: Indices) -> Lifetimes:
        """Return the lifetimes of some of the things."""
        return Lifetimes(self.first[rows], self.last[rows], self.whole[rows])

    def since(self, place: int) -> Lifetimes:
        """Return the lifetimes of the things from a place on."""
        return Lifetimes(self.first[place:], self.last[place:], self.whole[place:])

    def then(self, later: Lifetimes) -> Lifetimes:
        """Return these lifetimes and then the later ones."""
        return Lifetimes(
            np.concatenate([self.first, later.first]),
            np.concatenate([self.last, later.last]),
            np.concatenate([self.whole, later.whole]),
        )

    def of_each(self, groups: Indices, wanted: Mask, count: int) -> Lifetimes:
        """Return the lifetimes of `count` groups of these things, of which only some are wanted."""
        rows = np.flatnonzero(wanted)
        firsts, lasts = np.full(count, FOREVER, np.int64), np.full(count, BEGINNING, np.int64)
        whole = np.ones(count, bool)
        np.minimum.at(firsts, groups[rows], self.first[rows])
        np.maximum.at(lasts, groups[rows], self.last[rows])
        whole[groups[rows[~self.whole[rows]]]] = False
        return Lifetimes(firsts, lasts, whole)

    def with_parts(self, others: Lifetimes) -> Lifetimes:
        """Return the lifetimes of things that consist of these and the other parts."""
        return Lifetimes(
            np.minimum(self.first, others.first),
            np.maximum(self.last, others.last),
            self.whole & others.whole,
        )

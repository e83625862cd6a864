"""How updates of rows are merged into a copy by their keys: as Arrow columns, and in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from cdc_reader.changes.folding.fold import DELETE, REPLACE, UPSERT
from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.columns import CopyColumns, quoted
from cdc_reader.copies.row_state import is_inserted, joined, states_of


def mergeable(columns: CopyColumns, updates: pa.Table) -> pa.Table:
    """Return what `row_updates` has found with the columns that `Merge` expects.

    These are one column for each value, and one flag for each column outside the key.
    """
    sets = updates.column(names.MODIFIED)
    found = {name: updates.column(name) for name in updates.schema.names}
    found[columns.state] = states_of(updates)
    found[columns.kind] = found.pop(names.CHANGE_TYPE)
    for name, flag in columns.flags.items():
        found[flag] = _contains(sets, name)
    return pa.table(found).select([*columns.row, columns.kind, *columns.flags.values()])


def _contains(lists: pa.ChunkedArray, name: str) -> pa.Array:
    """Return for each list of names whether it contains the name; false for null."""
    found = lists.combine_chunks()
    rows = pc.filter(pc.list_parent_indices(found), pc.equal(pc.list_flatten(found), name))
    return pc.is_in(pa.array(range(len(found)), pa.int64()), rows.cast(pa.int64()))


def always_set(columns: CopyColumns, updates: pa.Table) -> list[str]:
    """Return the columns that all of these updates set, except those that delete a row."""
    sets = updates.filter(pc.not_equal(updates.column(columns.kind), DELETE))
    return [name for name, flag in columns.flags.items() if pc.all(sets.column(flag)).as_py()]


def _same(name: str) -> str:
    return f"(t.{quoted(name)} IS NOT DISTINCT FROM s.{quoted(name)})"


def among(columns: CopyColumns, buckets: Iterable[int]) -> str:
    """Return the condition, in SQL, that a row is in one of the buckets."""
    assert columns.bucket is not None  # noqa: S101 - the copy has buckets
    return f"{quoted(columns.bucket)} IN ({', '.join(map(str, sorted(buckets)))})"


@frozen
class Merge:
    """The parts of a merge of updates (`s`) into the rows of a copy (`t`), in SQL.

    They are the same for Spark and for deltalake. The updates are of rows in these `buckets`.
    """

    columns: CopyColumns
    buckets: Collection[int] = ()
    always_set: Collection[str] = ()
    """Columns that all updates set: their values in the copy need not be read."""

    @property
    def condition(self) -> str:
        """The condition that `s` and `t` are the same row; nulls count as equal.

        The clustering columns of static rows are null. The numbers of the buckets tell the engine
        which files it need not open: it derives this from no join.
        """
        equal = [f"t.{name} = s.{name}" for name in map(quoted, self.columns.partition)]
        return " AND ".join([*self._places, *equal, *map(_same, self.columns.clustering)])

    @property
    def condition_without_equals(self) -> str:
        """The same condition, from which deltalake derives no bounds of the keys.

        It would compare them with the statistics of the files, which leave out NaN.
        """
        return " AND ".join([*self._places, *map(_same, self.columns.key)])

    @property
    def is_gone(self) -> str:
        """The condition that a row of the copy is no row of the table after its update."""
        lost = [f"NOT {is_inserted(self._state(side))}" for side in "st"]
        lost += [f"{self._after(name)} IS NULL" for name in self._regulars]
        is_upsert = self._is(UPSERT)
        return f"{self._is(DELETE)} OR ({is_upsert} AND {' AND '.join(lost)})"

    @property
    def is_new(self) -> str:
        """The condition that an update without a row in the copy makes one."""
        values = [f"s.{quoted(name)} IS NOT NULL" for name in self._regulars]
        found = " OR ".join([is_inserted(self._state("s")), *values])
        return f"{self._is(REPLACE)} OR ({self._is(UPSERT)} AND ({found}))"

    @property
    def updates(self) -> dict[str, str]:
        """The new value of each column of a row of the copy, without the key."""
        ours, theirs = map(self._state, "st")
        state = f"CASE WHEN {self._is(UPSERT)} THEN {joined(ours, theirs)} ELSE {ours} END"
        values = {name: self._after(name) for name in self.columns.values}
        return {**values, self.columns.state: state}

    @property
    def inserts(self) -> dict[str, str]:
        """The value of each column of a new row."""
        return {name: f"s.{quoted(name)}" for name in self.columns.stored}

    @property
    def _places(self) -> list[str]:
        return [] if self.columns.bucket is None else [f"t.{among(self.columns, self.buckets)}"]

    @property
    def _regulars(self) -> list[str]:
        return [name for name in self.columns.values if name not in self.columns.statics]

    def _state(self, side: str) -> str:
        return f"{side}.{quoted(self.columns.state)}"

    def _after(self, name: str) -> str:
        if name in self.always_set:
            return f"s.{quoted(name)}"
        flag = quoted(self.columns.flags[name])
        return f"CASE WHEN s.{flag} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"

    def _is(self, kind: str) -> str:
        return f"s.{quoted(self.columns.kind)} = '{kind}'"

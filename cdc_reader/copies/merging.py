"""How updates of rows are merged into a copy by their keys, in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from attrs import frozen

from cdc_reader.changes.folding.fold import DELETE, REPLACE, UPSERT
from cdc_reader.copies.columns import CopyColumns, quoted


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

    @property
    def condition(self) -> str:
        """The condition that `s` and `t` are the same row; nulls count as equal.

        The clustering columns of static rows are null. The numbers of the buckets tell the engine
        which files it need not open: it derives this from no join.
        """
        partition, clustering = (
            map(quoted, part) for part in (self.columns.partition, self.columns.clustering)
        )
        equal = [f"t.{name} = s.{name}" for name in partition]
        nullable = (f"(t.{it} IS NOT DISTINCT FROM s.{it})" for it in clustering)
        return " AND ".join([*self._places, *equal, *nullable])

    @property
    def is_gone(self) -> str:
        """The condition that a row of the copy is no row of the table after its update."""
        marker = quoted(self.columns.marker)
        lost = [f"NOT s.{marker}", f"NOT COALESCE(t.{marker}, true)"]
        lost += [f"{self._after(name)} IS NULL" for name in self._regulars]
        is_upsert = self._is(UPSERT)
        return f"{self._is(DELETE)} OR ({is_upsert} AND {' AND '.join(lost)})"

    @property
    def is_new(self) -> str:
        """The condition that an update without a row in the copy makes one."""
        values = [f"s.{quoted(name)} IS NOT NULL" for name in self._regulars]
        found = " OR ".join([f"s.{quoted(self.columns.marker)}", *values])
        return f"{self._is(REPLACE)} OR ({self._is(UPSERT)} AND ({found}))"

    @property
    def updates(self) -> dict[str, str]:
        """The new value of each column of a row of the copy, without the key."""
        marker = quoted(self.columns.marker)
        kept = f"s.{marker} OR ({self._is(UPSERT)} AND COALESCE(t.{marker}, true))"
        return {
            **{name: self._after(name) for name in self.columns.values},
            self.columns.marker: kept,
        }

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

    def _after(self, name: str) -> str:
        flag = quoted(self.columns.flags[name])
        return f"CASE WHEN s.{flag} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"

    def _is(self, kind: str) -> str:
        return f"s.{quoted(self.columns.kind)} = '{kind}'"

"""What a micro-batch does to a copy: updates of rows, merged by their keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import reduce
from operator import and_

from attrs import frozen
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cdc_reader.changes.folding.fold import DELETE, REPLACE, UPSERT
from pyspark_scylla_cdc.tables.layout import Layout
from pyspark_scylla_cdc.tables.own_names import OwnNames
from pyspark_scylla_cdc.tables.ranges import column, quoted

NEEDED = "needed"
"""The kind of an update that only names a partition whose present rows the fold needs."""


class RowsNeeded(Exception):
    """Updates cannot be merged, because the fold needs the present rows of some `partitions`.

    `partitions` have the columns of the partition key. They lie in these `buckets`, or in any
    bucket if the copy has none.
    """

    def __init__(self, partitions: DataFrame, buckets: Collection[int] | None) -> None:
        super().__init__()
        self.partitions = partitions
        self.buckets = buckets


def replaced(layout: Layout, before: DataFrame, after: DataFrame) -> DataFrame:
    """Return the updates that replace the rows `before` with the rows `after`."""
    own, kind = OwnNames.beside(layout.row.names), layout.kind
    there = before.select(*(column(name).alias(own.other(name)) for name in layout.key))
    old = [column(own.other(name)) for name in layout.key]
    same = [column(key).eqNullSafe(it) for key, it in zip(layout.key, old, strict=True)]
    # A full join evaluates `after`, the result of a fold, only once.
    rows = after.withColumn(kind, sf.lit(REPLACE)).join(there, reduce(and_, same), "full")
    is_gone = column(kind).isNull()
    keys = {
        name: sf.when(is_gone, of_before).otherwise(column(name))
        for name, of_before in zip(layout.key, old, strict=True)
    }
    flags = dict.fromkeys(layout.flag_names.values(), sf.lit(True))
    kinds = {kind: sf.coalesce(column(kind), sf.lit(DELETE))}
    return rows.withColumns({**keys, **flags, **kinds}).drop(*map(own.other, layout.key))


def among(layout: Layout, buckets: Iterable[int]) -> str:
    """Return the condition, in SQL, that a row is in one of the buckets."""
    assert layout.bucket is not None  # noqa: S101 - the copy has buckets
    return f"{quoted(layout.bucket)} IN ({', '.join(map(str, sorted(buckets)))})"


@frozen
class Merge:
    """The parts of a merge of updates (`s`) into the rows of a copy (`t`), in SQL.

    They are the same for Spark and for deltalake. The updates are of rows in these `buckets`. If
    `hashes` are given, they are those of all partitions, by Spark's function ``xxhash64``.
    """

    layout: Layout
    buckets: Collection[int]
    hashes: Collection[int] = ()

    @property
    def condition(self) -> str:
        """The condition that `s` and `t` are the same row; nulls count as equal.

        The clustering columns of static rows are null. The numbers of the buckets tell the engine
        which files it need not open: it derives this from no join. The hashes are compared before
        the join, so that few rows of the copy are shuffled.
        """
        partition, clustering = (
            map(quoted, part) for part in (self.layout.partition, self.layout.clustering)
        )
        equal = [f"t.{name} = s.{name}" for name in partition]
        nullable = (f"(t.{it} IS NOT DISTINCT FROM s.{it})" for it in clustering)
        return " AND ".join([*self._places, *self._partitions, *equal, *nullable])

    @property
    def is_gone(self) -> str:
        """The condition that a row of the copy is no row of the table after its update."""
        marker = quoted(self.layout.marker)
        lost = [f"NOT s.{marker}", f"NOT COALESCE(t.{marker}, true)"]
        lost += [f"{self._after(name)} IS NULL" for name in self._regulars]
        is_upsert = self._is(UPSERT)
        return f"{self._is(DELETE)} OR ({is_upsert} AND {' AND '.join(lost)})"

    @property
    def is_new(self) -> str:
        """The condition that an update without a row in the copy makes one."""
        values = [f"s.{quoted(name)} IS NOT NULL" for name in self._regulars]
        found = " OR ".join([f"s.{quoted(self.layout.marker)}", *values])
        return f"{self._is(REPLACE)} OR ({self._is(UPSERT)} AND ({found}))"

    @property
    def updates(self) -> dict[str, str]:
        """The new value of each column of a row of the copy, without the key."""
        marker = quoted(self.layout.marker)
        kept = f"s.{marker} OR ({self._is(UPSERT)} AND COALESCE(t.{marker}, true))"
        return {
            **{name: self._after(name) for name in self.layout.values},
            self.layout.marker: kept,
        }

    @property
    def inserts(self) -> dict[str, str]:
        """The value of each column of a new row."""
        return {name: f"s.{quoted(name)}" for name in self.layout.stored.names}

    @property
    def _places(self) -> list[str]:
        return [] if self.layout.bucket is None else [f"t.{among(self.layout, self.buckets)}"]

    @property
    def _partitions(self) -> list[str]:
        key = ", ".join(f"t.{quoted(name)}" for name in self.layout.partition)
        hashes = ", ".join(f"{each}L" for each in self.hashes)
        return [f"xxhash64({key}) IN ({hashes})"] if hashes else []

    @property
    def _regulars(self) -> list[str]:
        return [name for name in self.layout.values if name not in self.layout.statics]

    def _after(self, name: str) -> str:
        flag = quoted(self.layout.flag_names[name])
        return f"CASE WHEN s.{flag} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"

    def _is(self, kind: str) -> str:
        return f"s.{quoted(self.layout.kind)} = '{kind}'"

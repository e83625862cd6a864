"""What a micro-batch does to a copy: updates of rows, which `cdc_reader.copies.merging` merges."""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cdc_reader.changes.folding.fold import DELETE, REPLACE
from cdc_reader.copies.own_names import OwnNames
from pyspark_scylla_cdc.tables.layout import Layout
from pyspark_scylla_cdc.tables.ranges import column

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

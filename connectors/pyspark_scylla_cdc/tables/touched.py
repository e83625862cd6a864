"""What updates touch in a copy, so that Spark reads little of it to merge them."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cdc_reader._time import Micros
from cdc_reader.copies.columns import quoted
from cdc_reader.copies.row_state import expiry_in
from pyspark_scylla_cdc.tables.layout import Layout, column
from pyspark_scylla_cdc.tables.row_updates import NEEDED

_MOST_PARTITIONS = 10_000
"""The number of partitions of a micro-batch up to which the condition of a merge lists them."""


@frozen
class Touched:
    """What the updates of a micro-batch touch."""

    buckets: Collection[int]
    """Empty if there are no updates."""
    needed: Collection[int]
    """The buckets of the partitions whose present rows the fold needs."""
    partitions: str | None
    """The condition, in SQL, that a row is in one of the partitions; None for too many of these.

    Spark evaluates it before it joins, and so shuffles few rows of a copy.
    """
    expiry: Micros | None
    """When the first of the values expires that the updates write."""


def touched_by(updates: DataFrame, layout: Layout, *, are_few: bool) -> Touched:
    """Return what the updates touch.

    One query finds all of it: on a small micro-batch, a query takes longer to plan than to run.
    If the updates `are_few`, and in this process, the query needs no tasks.
    """
    bucket = sf.lit(None) if layout.bucket is None else column(layout.bucket)
    parts = updates.select(
        column(layout.kind).alias("kind"),
        bucket.alias("bucket"),
        sf.xxhash64(*map(column, layout.partition)).alias("key"),
        column(layout.state).alias("state"),
    )
    least = sf.min("state").alias("state")
    if not are_few:
        parts = parts.groupBy("kind", "bucket", "key").agg(least)
    found = parts.limit(_MOST_PARTITIONS + 1).collect()
    hashes = {row.key for row in found}
    if len(found) > _MOST_PARTITIONS:
        found, hashes = parts.groupBy("kind", "bucket").agg(least).collect(), set()
    states = (row.state for row in found if row.state is not None)
    return Touched(
        {row.bucket for row in found},
        {row.bucket for row in found if row.kind == NEEDED},
        _in_partitions(layout, hashes),
        expiry_in(min(states, default=None)),
    )


def _in_partitions(layout: Layout, hashes: Collection[int]) -> str | None:
    key = ", ".join(f"t.{quoted(name)}" for name in layout.partition)
    found = ", ".join(f"{value}L" for value in sorted(hashes))
    return f"xxhash64({key}) IN ({found})" if found else None

"""Finds what has expired in a copy, and makes changes of it.

The log has no rows for what expires. The copy knows of each row when its first and last values
expire (`cdc_reader.copies.row_state`). A row that has expired as a whole is deleted. If other
values of a row remain, or may remain, its partition is read again from the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from attrs import define, field
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType

from cdc_reader._time import FOREVER, Micros
from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.columns import quoted
from cdc_reader.copies.rereading import can_be_read_again
from cdc_reader.copies.row_state import NEVER, before, expiry_in, is_whole, last
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, VALID_FROM, Layout, column
from pyspark_scylla_cdc.tables.row_updates import table_of
from pyspark_scylla_cdc.tables.sink import MicroBatch, Sink, present_rows

Reread: TypeAlias = Callable[[DataFrame, DataFrame], DataFrame]
"""Reads partitions again: takes their keys and their horizons, and changes, and returns changes
with the same columns. See `cdc_reader.copies.rereading`."""

_SHARE = 5
"""The inverse of the share of time that the search for expired rows may take."""


@define
class Expiry:
    """Adds what has expired in a copy to the changes of its micro-batches."""

    _reread: Reread
    _next: Micros | None = field(default=None, init=False)
    """No value of the copy expires before this time (µs); None while this is not known."""
    _later: Micros | None = field(default=None, init=False)
    """What `_next` will be once the micro-batch is committed, without the values that it writes."""
    _may_look: float = field(default=0.0, init=False)
    """The time, by the monotonic clock, before which the copy is not searched again."""

    def with_expired(
        self, sink: Sink, layout: Layout, changes: DataFrame, batch: MicroBatch
    ) -> DataFrame:
        """Return the changes, and others for what has expired before the first of them."""
        since, started, expected = batch.since, time.monotonic(), self._next
        self._later = FOREVER if since is None else expected  # the copy is empty at first
        self._next = None  # until the commit
        if since is None or batch.snapshot is not None or names.EXPIRES not in changes.columns:
            return changes
        if started < self._may_look or (expected is not None and since <= expected):
            return changes
        if not _has_exact_keys(changes):
            return changes
        rows, state = _expiring(sink, layout, changes), quoted(layout.state)
        first, bound = column(layout.state), before(since)
        # A change at the time `since` itself is among `changes`, and may write what expires then.
        due = rows.where(first < bound).localCheckpoint()
        later = rows.where(first >= bound).agg(sf.min(first)).head()
        expiry = None if later is None else expiry_in(later[0])
        self._later = FOREVER if expiry is None else expiry
        found = changes
        if not due.isEmpty():
            is_gone = sf.expr(f"{is_whole(state)} AND {last(state)} < {since}")
            gone = deletes(changes, due.where(is_gone), "delete", sf.expr(last(state)))
            rest = self._read_again(layout, due.where(~is_gone), rows, changes, since)
            expired = gone.unionByName(rest).localCheckpoint()
            found = like(changes, changes.unionByName(expired))
        self._may_look = time.monotonic() + (_SHARE - 1) * (time.monotonic() - started)
        return found

    def committed(self, first: Micros | None) -> None:
        """Take note of a commit, and when the first of the values that it has written expires."""
        if self._later is not None:
            self._next = self._later if first is None else min(self._later, first)

    def _read_again(
        self, layout: Layout, due: DataFrame, rows: DataFrame, changes: DataFrame, since: Micros
    ) -> DataFrame:
        """Read the partitions of `due` rows again, and tell when other `rows` of them expire."""
        key, expiry = [*map(column, layout.partition)], sf.expr(last(quoted(layout.state)))
        partitions = due.select(*key).distinct()
        horizon = sf.max(sf.when(expiry > since, expiry))
        keys = rows.join(partitions, [*layout.partition], "left_semi").groupBy(*key).agg(horizon)
        return self._reread(keys, changes)


def _has_exact_keys(changes: DataFrame) -> bool:
    """Return whether partitions can be read again by the keys that the copy has of them.

    A decimal with a fixed scale may have had another one in the table, where 1.0 and 1.00 are keys
    of different partitions.
    """
    kept = {field.name: field.dataType for field in changes.schema}
    return all(
        can_be_read_again(column, is_text=kept[column.name] == StringType())
        for column in table_of(changes.schema).partition_key
    )


def _expiring(sink: Sink, layout: Layout, changes: DataFrame) -> DataFrame:
    """Return the keys of the table's rows of which values expire, and when they do."""
    rows = present_rows(sink, layout, changes.sparkSession)
    if layout.history:
        rows = rows.where(column(IS_CURRENT))
    key = [name for name in layout.key if name != VALID_FROM or not layout.history]
    state = column(layout.state)
    return rows.where(state < NEVER).select(*map(column, key), state)


def deletes(changes: DataFrame, keys: DataFrame, kind: str, time: Column) -> DataFrame:
    """Return deletes of this kind, at this time (µs), with the columns of `changes`."""
    told: dict[str, Column] = {
        names.CHANGE_TYPE: sf.lit(kind),
        names.COMMIT_TIMESTAMP: sf.timestamp_micros(time),
        names.COMMIT_VERSION: sf.lit(""),
        names.SEQUENCE: sf.lit(0),
    }
    key = {name: column(name) for name in changes.columns if name in keys.columns}
    cells = {**key, **told}
    columns = ((it, cells.get(it.name, sf.lit(None))) for it in changes.schema)
    return keys.select(*(value.cast(it.dataType).alias(it.name) for it, value in columns))


def like(changes: DataFrame, more: DataFrame) -> DataFrame:
    """Return rows with the metadata that the columns of `changes` have."""
    fields = changes.schema
    return more.select(*(column(it.name).alias(it.name, metadata=it.metadata) for it in fields))

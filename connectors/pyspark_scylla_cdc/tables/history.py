"""Determines all versions of the rows that changes affect: slowly changing dimensions, type 2.

Each change that affects a row begins a new version of the row. A row's state at a time is what
`fold` would return for the changes up to that time. Spark's window functions compute the states at
all times in one pass.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from cdc_reader.changes.frames import columns as names
from pyspark_scylla_cdc.tables.fold import UPSERTS, Fold, any_set, order_of_changes
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, VALID_FROM, VALID_TO, VERSION
from pyspark_scylla_cdc.tables.ranges import column, within
from pyspark_scylla_cdc.tables.states import joined, least_of

_OF_PARTITION = ("delete_partition", names.SNAPSHOT_BEGIN)
"""Change types that delete whole partitions, including their static columns."""


def versions(changes: DataFrame, current: DataFrame, state: str | None = None) -> DataFrame:
    """Return the versions that result from applying `changes` to the `current` versions.

    `changes` must be read with ``includeDelta``. The result contains the versions in `current`,
    each with an end if a change ended it, and all later versions. A version of a row ends when the
    next change affects the row: a change of the row itself or of its static columns, or a delete.
    If several changes of one row have the same time, only the last of them begins a version. Times
    never decrease: a change that is older than the current version replaces that version. For the
    `state`, see `Fold`.
    """
    return _History(changes, state=state).versions(current)


class _History(Fold):
    def __init__(self, changes: DataFrame, state: str | None) -> None:
        super().__init__(changes, state=state)
        self._at, self._rows, self._told = map(self._own.own, ("at", "rows", "told"))

    def versions(self, current: DataFrame) -> DataFrame:
        before = self._as_changes(current.drop(*VERSION))
        changes = self._changes.unionByName(before, allowMissingColumns=True)
        states = self._states(
            self._events(changes.withColumn(self._order, order_of_changes())), current
        )
        if not (self._statics and self._clustering):
            rows = self._there(states)
        else:
            is_static = column(self._clustering[0]).isNull()
            rows = self._there(states.where(~is_static))
            alone = self._alone(states.where(is_static), rows)
            rows = rows.unionByName(alone, allowMissingColumns=True)
        return rows.select(
            *self._table, VALID_FROM, VALID_TO, sf.isnull(VALID_TO).alias(IS_CURRENT)
        )

    def _events(self, changes: DataFrame) -> DataFrame:
        """Return each row's changes; a change to several rows appears once for each of them."""
        kind = column(names.CHANGE_TYPE)
        first = column(self._clustering[0]) if self._clustering else sf.lit("no clustering")
        is_static = kind.isin(*UPSERTS) & first.isNull()
        own = changes.where((kind.isin(*UPSERTS) & ~is_static) | (kind == "delete"))
        keys = changes.where(kind.isin(*UPSERTS)).select(*map(column, self._key)).distinct()
        wide = changes.where(is_static | kind.isin("delete_range", *_OF_PARTITION))
        wide = wide.drop(*self._clustering).withColumn(names.INSERTED, sf.lit(False))
        wide = wide.withColumnsRenamed({name: self._own.other(name) for name in self._partition})
        same = [column(name) == column(self._own.other(name)) for name in self._partition]
        if names.RANGE in changes.columns and self._clustering:
            fields = [field for field in self._fields if field.name in self._clustering]
            covers = first.isNotNull() & within(column(names.RANGE), fields)
            same.append((kind != "delete_range") | covers)
        affecting = keys.join(wide, reduce(and_, same))
        if self._has_marks:
            begins = wide.where(kind == names.SNAPSHOT_BEGIN)
            affecting = affecting.unionByName(keys.crossJoin(begins))
        affecting = affecting.drop(*(self._own.other(name) for name in self._partition))
        return own.unionByName(affecting)

    def _states(self, events: DataFrame, current: DataFrame) -> DataFrame:
        """Return each row's state from one event to the next; deleted rows have no values."""
        kind = column(names.CHANGE_TYPE)
        events = self._beside(events, self._begun(current))
        at = sf.greatest(column(names.COMMIT_TIMESTAMP), column(self._since))
        states = self._up_to_each(
            events.withColumn(self._at, at), ~kind.isin(*UPSERTS), self._regulars
        )
        if self._statics and self._clustering:
            states = self._up_to_each(states, kind.isin(*_OF_PARTITION), self._statics)
        return self._until_next(states, self._key)

    def _begun(self, current: DataFrame) -> DataFrame:
        """Return the time at which the current version of each row began.

        For static columns, this is the latest such time in the partition.
        """
        key, partition = (
            [column(name).alias(self._own.other(name)) for name in part]
            for part in (self._key, self._partition)
        )
        begun = current.select(*key, column(VALID_FROM).alias(self._since))
        if not (self._statics and self._clustering):
            return begun
        rows = begun.where(column(self._own.other(self._clustering[0])).isNotNull())
        statics = current.groupBy(*partition).agg(sf.max(VALID_FROM).alias(self._since))
        return rows.unionByName(statics, allowMissingColumns=True)

    def _up_to_each(self, events: DataFrame, is_delete: Column, values: list[str]) -> DataFrame:
        """Set the columns `values` of each event to the result of all changes up to its time."""
        key = list(map(column, self._key))
        order, deleted = column(self._order), column(self._deleted)
        last_delete = sf.max(sf.when(is_delete, order)).over(
            Window.partitionBy(*key).orderBy(self._at)
        )
        is_alive = column(names.CHANGE_TYPE).isin(*UPSERTS) & (deleted.isNull() | (order > deleted))
        since_delete = Window.partitionBy(*key, deleted).orderBy(self._at)
        last = self._last_set(values, sf.when(is_alive, order))
        if values is self._regulars:
            last[self._inserted] = sf.bool_or(self._is_insert() & is_alive)
        states = {name: value.over(since_delete) for name, value in last.items()}
        if self._state is not None:
            # The expiries of static columns are joined to those of the row's own.
            living = sf.when(is_alive, column(names.EXPIRES))
            found = least_of(living, is_alive, since_delete)
            is_own = values is self._regulars
            known = found if is_own else joined(column(self._expires), found)
            states[self._expires] = known
        return events.withColumn(self._deleted, last_delete).withColumns(states)

    def _alone(self, statics: DataFrame, rows: DataFrame) -> DataFrame:
        """Return the versions of `statics` for times when `rows` has no row of their partition."""
        partition = list(map(column, self._partition))
        told = [*self._statics, *([self._expires] if self._state is not None else ())]
        values = sf.struct(*map(column, told)).alias(self._told)
        static_times = statics.select(
            *partition, column(VALID_FROM).alias(self._at), sf.lit(0).alias(self._rows), values
        )
        begins = rows.select(
            *partition, column(VALID_FROM).alias(self._at), sf.lit(1).alias(self._rows)
        )
        ends = rows.select(
            *partition, column(VALID_TO).alias(self._at), sf.lit(-1).alias(self._rows)
        )
        ends = ends.where(column(self._at).isNotNull())
        times = static_times.unionByName(begins.unionByName(ends), allowMissingColumns=True)
        until = Window.partitionBy(*partition).orderBy(self._at)
        last = sf.max_by(
            self._told, sf.when(column(self._told).isNotNull(), column(self._at))
        ).over(until)
        times = times.withColumns({self._rows: sf.sum(self._rows).over(until), self._told: last})
        found = self._until_next(times, self._partition).where(column(self._rows) == 0)
        found = found.withColumns({name: column(self._told)[name] for name in told})
        return found.where(any_set(self._statics)).drop(self._rows, self._told)

    def _until_next(self, states: DataFrame, key: list[str]) -> DataFrame:
        """Return the states, each valid from its own time until the next state of its key."""
        following = sf.lead(self._at).over(Window.partitionBy(*map(column, key)).orderBy(self._at))
        begun = states.withColumn(VALID_TO, following).withColumnRenamed(self._at, VALID_FROM)
        is_last = column(VALID_TO).isNull() | (column(VALID_TO) > column(VALID_FROM))
        return begun.where(is_last)  # states with the same time are equal

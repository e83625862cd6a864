"""Folds changes into the table rows that result from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Self

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.columns import OwnNames
from cdc_reader.errors import SchemaError
from pyspark_scylla_cdc.tables.keys import check_whole, refuse_equal_names, refuse_keys
from pyspark_scylla_cdc.tables.ranges import column, within

UPSERTS = ("insert", "update_postimage")
_BEFORE_ALL = "0001-01-01 00:00:00"
_NO_VERSION = ""
"""The commit version of rows that were in `onto`."""


def fold(
    changes: DataFrame, keys: Sequence[str] | None = None, *, onto: DataFrame | None = None
) -> DataFrame:
    """Return the rows that remain after all of `changes` are applied.

    `changes` are of format ``changes``, read with ``includeDelta``. The result has the base table's
    columns that they contain. Each column has the value with the newest write timestamp, regardless
    of the table's images and of the order in which writes arrived. The exceptions are two values of
    one cell with the same timestamp, collections whose elements are written concurrently or with
    explicit timestamps, and expired cells.

    A row is absent if the last change to it is a delete of the row, of its partition, or of a range
    that contains it (``rangeDeletes=emit``). Of two changes in the same microsecond, a delete
    counts as the last, as on the server. A static column appears in each row of its partition, or
    in a separate row if the partition has no other rows.

    In CQL, a row whose columns are all null exists only if an INSERT created it. A row left without
    values is therefore kept only if one of `changes` inserted it. Rows of `onto` and of a snapshot
    count as inserted, because a SELECT does not show how they were created. With option
    ``columns``, a row that was not inserted and has values only in columns that are not read is
    dropped.

    A `snapshot_begin` (``onDataLoss=resnapshot``) drops all earlier rows and changes, including the
    rows of `onto`. The rows of the snapshot follow, possibly in several micro-batches.

    Changes with a `_bad_record` are left out, so a row keeps its last values that could be
    converted. However, a delete is applied if its key could be converted.

    `onto` contains the table's rows before these changes, such as an earlier result in
    ``foreachBatch``. Its rows count as older than all of `changes`. A late row
    (``lateRows=deliver``) may be older than they are, and would overwrite newer values: use
    ``lateRows=reread``.

    The changes are read once, and kept by Spark while the result is in use, if the table has static
    columns, or if the changes may include range deletes or new snapshots.

    `keys` are the columns of the primary key; by default they come from the schema's metadata,
    which ``load()`` sets. Raises SchemaError if columns are missing, if names differ only in case,
    if the key contains a map, or if a clustering column contains decimals as text. The query ends
    with an error if it meets a range delete whose bounds Spark orders differently from the server,
    or a change that was made before a key column was renamed.
    """
    return Fold(changes, keys).at_one_moment().result(onto)


class Fold:
    """Folds `changes` into the rows that remain, according to the role of each column."""

    def __init__(self, changes: DataFrame, keys: Sequence[str] | None = None) -> None:
        self._changes = changes
        self._require([names.CHANGE_TYPE, names.COMMIT_TIMESTAMP, names.COMMIT_VERSION])
        self._require([names.SEQUENCE, *(keys or ())])
        self._require([names.MODIFIED, names.INSERTED])
        self._fields = [field for field in changes.schema if field.name not in names.ALL]
        refuse_equal_names(self._fields, changes.sparkSession)
        self._own = OwnNames.beside(changes.columns)
        self._order, self._deleted, self._since, self._inserted = map(
            self._own.own, ("order", "deleted", "since", "inserted")
        )
        self._partition = self._of_kind("partition_key")
        self._clustering = self._of_kind("clustering")
        if not self._partition:
            self._partition = list(keys or ())
        if not self._partition:
            raise SchemaError(
                "the DataFrame does not say which columns are the key: pass keys=[...] to fold()"
            )
        self._key = [*self._partition, *self._clustering]
        self._statics = self._of_kind("static")
        self._regulars = [
            field.name
            for field in self._fields
            if field.name not in self._key and field.name not in self._statics
        ]
        refuse_keys(field for field in self._fields if field.name in self._key)
        if names.BAD_RECORD in changes.columns:
            self._changes = changes.where(self._is_usable()).drop(names.BAD_RECORD)
        if self._of_kind("partition_key"):  # without metadata, any column may be of the clustering
            self._changes = self._changes.where(self._has_whole_key())
        if self._clustering and not self._statics:  # changes of static columns that are not read
            is_of_row = column(self._clustering[0]).isNotNull()
            is_upsert = column(names.CHANGE_TYPE).isin(*UPSERTS)
            self._changes = self._changes.where(is_of_row | ~is_upsert)
        kind = changes.schema[names.CHANGE_TYPE]
        self._has_marks = kind.metadata.get("cql.marks") == "true"

    def at_one_moment(self) -> Self:
        """Read the changes only once.

        A read without an end would otherwise end at another moment in each of its scans, and the
        result could contain a change without an earlier one.
        """
        has_ranges = names.RANGE in self._changes.columns
        has_several_scans = self._has_marks or (self._clustering and (has_ranges or self._statics))
        if has_several_scans and not self._changes.isStreaming:
            self._changes = self._changes.localCheckpoint(eager=False)
        return self

    def result(self, onto: DataFrame | None) -> DataFrame:
        changes = self._changes
        if onto is not None:
            before = self._as_changes(onto)
            changes = changes.unionByName(before, allowMissingColumns=True)
        alive = self._alive(changes.withColumn(self._order, order_of_changes()))
        if not (self._statics and self._clustering):
            return self._there(self._last(alive, self._regulars)).select(self._table)
        is_static = column(self._clustering[0]).isNull()
        rows = self._there(self._last(alive.where(~is_static), self._regulars))
        statics = self._last(alive.where(is_static), self._statics)
        statics = statics.drop(*self._clustering, self._inserted)
        is_told = ~is_static | any_set(self._statics)
        return rows.join(statics, self._partition, "full").where(is_told).select(self._table)

    @property
    def _table(self) -> list[Column]:
        """The base table's columns, in the table's order."""
        return [column(field.name) for field in self._fields]

    def _alive(self, changes: DataFrame) -> DataFrame:
        """Return inserts and updates that no later delete of a row, partition or range covers."""
        kind = column(names.CHANGE_TYPE)
        if self._has_marks:
            changes = self._since_snapshot(changes)
        relevant = changes.where(kind.isin(*UPSERTS, "delete", "delete_partition"))
        deletes = [
            self._last_of("delete", self._key),
            self._last_of("delete_partition", self._partition),
        ]
        if names.RANGE in changes.columns and self._clustering:
            relevant = self._with_ranges(relevant, changes.where(kind == "delete_range"))
            deletes.append(column(self._since))
        relevant = relevant.withColumn(self._deleted, sf.greatest(*deletes))
        is_later = column(self._deleted).isNull() | (column(self._order) > column(self._deleted))
        return relevant.where(kind.isin(*UPSERTS) & is_later)

    def _since_snapshot(self, changes: DataFrame) -> DataFrame:
        """Return the changes after the start of the last snapshot, or all if there is none."""
        is_begin = column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN
        begin = changes.agg(sf.max(sf.when(is_begin, column(self._order))).alias(self._since))
        is_since = column(self._since).isNull() | (column(self._order) > column(self._since))
        return changes.crossJoin(sf.broadcast(begin)).where(is_since).drop(self._since)

    def _last_of(self, kind: str, key: list[str]) -> Column:
        """Return a column with the order of the last change of this kind for each `key`."""
        order = sf.when(column(names.CHANGE_TYPE) == kind, column(self._order))
        return sf.max(order).over(Window.partitionBy(*map(column, key)))

    def _with_ranges(self, rows: DataFrame, ranges: DataFrame) -> DataFrame:
        """Return the rows, each with the order of the last range delete that covers it."""
        fields = [field for field in self._fields if field.name in self._clustering]
        ranges = ranges.select(
            *(column(name).alias(self._own.other(name)) for name in self._partition),
            column(names.RANGE),
            column(self._order).alias(self._since),
        )
        same = [column(name) == column(self._own.other(name)) for name in self._partition]
        lies_in = within(column(names.RANGE), fields)
        keys = rows.where(column(self._clustering[0]).isNotNull()).select(*map(column, self._key))
        covered = (
            keys.distinct()
            .join(ranges, reduce(and_, [*same, lies_in]))
            .groupBy(*map(column, self._key))
            .agg(sf.max(self._since).alias(self._since))
            .select(
                *(column(name).alias(self._own.other(name)) for name in self._key),
                column(self._since),
            )
        )
        return self._beside(rows, covered)

    def _beside(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """Add the columns of `others` to the rows with the same key.

        In `others`, the key's columns have their other names.
        """
        match = [column(name).eqNullSafe(column(self._own.other(name))) for name in self._key]
        joined = rows.join(others, reduce(and_, match), "left")
        return joined.drop(*(self._own.other(name) for name in self._key))

    def _last(self, changes: DataFrame, values: list[str]) -> DataFrame:
        """Return each row's last values, and whether an INSERT created it."""
        order = column(self._order)
        key = list(map(column, self._key))
        inserted = sf.bool_or(self._is_insert()).alias(self._inserted)
        columns = [last.alias(name) for name, last in self._last_set(values, order).items()]
        return changes.groupBy(*key).agg(*columns, inserted)

    def _last_set(self, values: list[str], order: Column) -> dict[str, Column]:
        """Return an aggregate for each column: the value set last, according to `order`."""
        modified = column(names.MODIFIED)
        return {
            name: sf.max_by(column(name), sf.when(sf.array_contains(modified, name), order))
            for name in values
        }

    def _is_insert(self) -> Column:
        """Return a column that is true if a change is an INSERT."""
        return sf.coalesce(column(names.INSERTED), sf.lit(False))

    def _there(self, rows: DataFrame) -> DataFrame:
        """Drop rows that lost their last value and that no INSERT created."""
        return rows.where(any_set(self._regulars) | column(self._inserted))

    def _as_changes(self, table: DataFrame) -> DataFrame:
        """Return the rows of a table as inserts that come before all other changes."""
        known = [each.name for each in self._fields if each.name in table.columns]
        table = table.select(*map(column, known))
        if not (self._statics and self._clustering):
            return self._inserts(table, self._regulars)
        is_row = column(self._clustering[0]).isNotNull()
        statics = self._statics_of(table)
        rows = self._inserts(table.where(is_row).drop(*self._statics), self._regulars)
        return rows.unionByName(self._inserts(statics, self._statics), allowMissingColumns=True)

    def _statics_of(self, table: DataFrame) -> DataFrame:
        """Return one row for each partition, with its static columns, which may contain maps."""
        whole = sf.first(sf.struct(*map(column, self._statics))).alias(self._since)
        found = table.groupBy(*map(column, self._partition)).agg(whole)
        columns = (column(self._since)[name].alias(name) for name in self._statics)
        return found.select(*map(column, self._partition), *columns)

    def _inserts(self, rows: DataFrame, values: list[str]) -> DataFrame:
        touched = sf.array(*map(sf.lit, values)).cast("array<string>")
        added = {
            names.CHANGE_TYPE: sf.lit(UPSERTS[0]),
            names.COMMIT_TIMESTAMP: sf.lit(_BEFORE_ALL).cast("timestamp"),
            names.COMMIT_VERSION: sf.lit(_NO_VERSION),
            names.SEQUENCE: sf.lit(0),
            names.MODIFIED: touched,
            names.INSERTED: sf.lit(True),
        }
        return rows.select(
            *map(column, rows.columns),
            *(value.alias(name) for name, value in added.items()),
        )

    def _is_usable(self) -> Column:
        """Return a column that is true for converted rows and for deletes with a valid key."""
        bad = column(names.BAD_RECORD)
        key = sf.array(*map(sf.lit, self._key))
        is_delete = column(names.CHANGE_TYPE).startswith("delete")
        return bad.isNull() | (is_delete & ~sf.arrays_overlap(bad["columns"], key))

    def _has_whole_key(self) -> Column:
        """Return a column that is true for changes with a whole key, and raises otherwise."""
        kind = column(names.CHANGE_TYPE)
        is_of_row = (kind == "delete") | (kind.isin(*UPSERTS) & any_set(self._regulars))
        schema = self._changes.schema
        ranges = schema[names.RANGE] if names.RANGE in schema.names else None
        return check_whole(self._partition, self._clustering, is_of_row=is_of_row, ranges=ranges)

    def _of_kind(self, kind: str) -> list[str]:
        """Return the columns of a kind, from the schema's metadata."""
        return [field.name for field in self._fields if field.metadata.get("cql.kind") == kind]

    def _require(self, wanted: Sequence[str]) -> None:
        for name in wanted:
            if name not in self._changes.columns:
                raise SchemaError(
                    f"the DataFrame has no column {name}: expected one of format 'changes', read "
                    "with includeDelta 'true', with its own columns and the whole key"
                )


def order_of_changes() -> Column:
    """Return the sort key of a row's changes: within one µs, deletes come after other writes."""
    is_delete = ~column(names.CHANGE_TYPE).isin(*UPSERTS, names.SNAPSHOT_BEGIN)
    place = [column(names.COMMIT_VERSION), column(names.SEQUENCE)]
    return sf.struct(column(names.COMMIT_TIMESTAMP), is_delete.alias("is_delete"), *place)


def any_set(columns: list[str]) -> Column:
    """Return a column that is true if any of these columns is not null."""
    return reduce(or_, (column(name).isNotNull() for name in columns), sf.lit(False))

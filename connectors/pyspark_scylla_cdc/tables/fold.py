"""Folds changes into the table rows that result from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from cdc_reader.changes.frames import columns as names
from cdc_reader.errors import SchemaError
from pyspark_scylla_cdc.tables.keys import check_whole, refuse_keys
from pyspark_scylla_cdc.tables.ranges import column, within

UPSERTS = ("insert", "update_postimage")
_ORDER = "__order"
_DELETED = "__deleted"
_SINCE = "__since"
INSERTED = "__inserted"
_BEFORE_ALL = "0001-01-01 00:00:00"
_NO_VERSION = ""
"""The commit version of rows that were in `onto`."""
_UNKNOWN = (
    "fold: all columns of a row became null, and these changes do not show whether the row was "
    "inserted and so still exists: read with includeDelta 'true'"
)


def fold(
    changes: DataFrame, keys: Sequence[str] | None = None, *, onto: DataFrame | None = None
) -> DataFrame:
    """Return the rows that remain after all of `changes` (format ``changes``) are applied.

    The result has the base table's columns that `changes` contains. The last change to a row
    determines its values; the row is absent if that change is a delete of the row, of its
    partition, or of a range that contains it (``rangeDeletes=emit``). Of two changes in the same
    microsecond, a delete counts as the last, as on the server. A static column appears in each row
    of its partition, or in a separate row if the partition has no other rows.

    With ``includeDelta``, each column has the value with the newest write timestamp, regardless of
    the table's images and of the order in which writes arrived. The exceptions are two values of
    one cell with the same timestamp, collections whose elements are written concurrently or with
    explicit timestamps, and expired cells. Without ``includeDelta``, a row equals its last
    postimage.

    In CQL, a row whose columns are all null exists only if an INSERT created it. A row left without
    values is therefore kept only if one of `changes` inserted it. Without ``includeDelta``, the
    changes of a table with preimages do not show which of them are INSERTs. A row left without
    values then ends the query with an error. Rows of `onto` and of a snapshot count as inserted,
    because a SELECT does not show how they were created. With option ``columns``, a row that was
    not inserted and has values only in columns that are not read is dropped.

    A `snapshot_begin` (``onDataLoss=resnapshot``) drops all earlier rows and changes, including the
    rows of `onto`. The rows of the snapshot follow, possibly in several micro-batches.

    Changes with a `_bad_record` are left out, so a row keeps its last values that could be
    converted. However, a delete is applied if its key could be converted.

    `onto` contains the table's rows before these changes, such as an earlier result in
    ``foreachBatch``. Its rows count as older than all of `changes`. A late row
    (``lateRows=deliver``) may be older than they are, and would overwrite newer values.

    `keys` are the columns of the primary key; by default they come from the schema's metadata,
    which ``load()`` sets. Raises SchemaError if columns are missing, if the key contains a map, or
    if a clustering column contains decimals as text. The query ends with an error if it meets a
    range delete whose bounds Spark orders differently from the server, or a change that was made
    before a key column was renamed.
    """
    return Fold(changes, keys).result(onto)


class Fold:
    """Folds `changes` into the rows that remain, according to the role of each column."""

    def __init__(self, changes: DataFrame, keys: Sequence[str] | None) -> None:
        self._changes = changes
        self._require([names.CHANGE_TYPE, names.COMMIT_TIMESTAMP, names.COMMIT_VERSION])
        self._require([names.SEQUENCE, *(keys or ())])
        self._fields = [field for field in changes.schema if field.name not in names.ALL]
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
        self._has_delta = names.MODIFIED in changes.columns
        kind = changes.schema[names.CHANGE_TYPE]
        self._tells_inserts = self._has_delta or kind.metadata.get("cql.insert") == "statement"
        self._has_marks = kind.metadata.get("cql.marks") == "true"

    def result(self, onto: DataFrame | None) -> DataFrame:
        changes = self._changes
        if onto is not None:
            changes = changes.unionByName(self._as_changes(onto), allowMissingColumns=True)
        alive = self._alive(changes.withColumn(_ORDER, order_of_changes()))
        if not (self._statics and self._clustering):
            return self._there(self._last(alive, self._regulars)).select(self._table)
        is_static = column(self._clustering[0]).isNull()
        rows = self._there(self._last(alive.where(~is_static), self._regulars))
        statics = self._last(alive.where(is_static), self._statics)
        statics = statics.drop(*self._clustering, INSERTED)
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
            deletes.append(column(_SINCE))
        relevant = relevant.withColumn(_DELETED, sf.greatest(*deletes))
        is_later = column(_DELETED).isNull() | (column(_ORDER) > column(_DELETED))
        return relevant.where(kind.isin(*UPSERTS) & is_later)

    def _since_snapshot(self, changes: DataFrame) -> DataFrame:
        """Return the changes after the start of the last snapshot, or all if there is none."""
        is_begin = column(names.CHANGE_TYPE) == names.SNAPSHOT_BEGIN
        begin = changes.agg(sf.max(sf.when(is_begin, column(_ORDER))).alias(_SINCE))
        is_since = column(_SINCE).isNull() | (column(_ORDER) > column(_SINCE))
        return changes.crossJoin(sf.broadcast(begin)).where(is_since).drop(_SINCE)

    def _last_of(self, kind: str, key: list[str]) -> Column:
        """Return a column with the order of the last change of this kind for each `key`."""
        order = sf.when(column(names.CHANGE_TYPE) == kind, column(_ORDER))
        return sf.max(order).over(Window.partitionBy(*map(column, key)))

    def _with_ranges(self, rows: DataFrame, ranges: DataFrame) -> DataFrame:
        """Return the rows, each with the order of the last range delete that covers it."""
        fields = [field for field in self._fields if field.name in self._clustering]
        ranges = ranges.select(
            *(column(name).alias(f"__{name}") for name in self._partition),
            column(names.RANGE),
            column(_ORDER).alias(_SINCE),
        )
        same = [column(name) == column(f"__{name}") for name in self._partition]
        lies_in = within(column(names.RANGE), fields)
        keys = rows.where(column(self._clustering[0]).isNotNull()).select(*map(column, self._key))
        covered = (
            keys.distinct()
            .join(ranges, reduce(and_, [*same, lies_in]))
            .groupBy(*map(column, self._key))
            .agg(sf.max(_SINCE).alias(_SINCE))
            .select(*(column(name).alias(f"__{name}") for name in self._key), column(_SINCE))
        )
        return self._beside(rows, covered)

    def _beside(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """Add the columns of `others` to the rows with the same key.

        In `others`, the names of the key's columns begin with ``__``.
        """
        match = [column(name).eqNullSafe(column(f"__{name}")) for name in self._key]
        joined = rows.join(others, reduce(and_, match), "left")
        return joined.drop(*(f"__{name}" for name in self._key))

    def _last(self, changes: DataFrame, values: list[str]) -> DataFrame:
        """Return each row's last values, and whether an INSERT created it (null if unknown)."""
        order = column(_ORDER)
        key = list(map(column, self._key))
        inserted = sf.bool_or(self._inserted()).alias(INSERTED)
        if not self._has_delta:
            whole = sf.struct(*map(column, values or self._key))
            last = changes.groupBy(*key).agg(sf.max_by(whole, order).alias(_SINCE), inserted)
            columns = [column(_SINCE)[name].alias(name) for name in values]
            return last.select(*key, *columns, column(INSERTED))
        columns = [last.alias(name) for name, last in self._last_set(values, order).items()]
        return changes.groupBy(*key).agg(*columns, inserted)

    def _last_set(self, values: list[str], order: Column) -> dict[str, Column]:
        """Return an aggregate for each column: the value set last, according to `order`."""
        modified = column(names.MODIFIED)
        return {
            name: sf.max_by(column(name), sf.when(sf.array_contains(modified, name), order))
            for name in values
        }

    def _inserted(self) -> Column:
        """Return a column that is true if a change is an INSERT, and null if that is unknown."""
        if self._has_delta:
            return sf.coalesce(column(names.INSERTED), sf.lit(False))
        if self._tells_inserts:
            return column(names.CHANGE_TYPE) == UPSERTS[0]
        return sf.when(column(names.COMMIT_VERSION) == _NO_VERSION, sf.lit(True))

    def _there(self, rows: DataFrame) -> DataFrame:
        """Drop rows that lost their last value and that no INSERT created."""
        if not self._regulars and not self._has_delta:
            return rows.drop(INSERTED)
        unknown = sf.raise_error(sf.lit(_UNKNOWN)).cast("boolean")
        inserted = sf.coalesce(column(INSERTED), unknown)
        is_there = sf.when(any_set(self._regulars), sf.lit(True)).otherwise(inserted)
        return rows.where(is_there).drop(INSERTED)

    def _as_changes(self, table: DataFrame) -> DataFrame:
        """Return the rows of a table as inserts that come before all other changes."""
        if not (self._statics and self._clustering):
            return self._inserts(table, self._regulars)
        is_row = column(self._clustering[0]).isNotNull()
        statics = self._statics_of(table)
        rows = self._inserts(table.where(is_row).drop(*self._statics), self._regulars)
        return rows.unionByName(self._inserts(statics, self._statics), allowMissingColumns=True)

    def _statics_of(self, table: DataFrame) -> DataFrame:
        """Return one row for each partition, with its static columns, which may contain maps."""
        whole = sf.first(sf.struct(*map(column, self._statics))).alias(_SINCE)
        found = table.groupBy(*map(column, self._partition)).agg(whole)
        columns = (column(_SINCE)[name].alias(name) for name in self._statics)
        return found.select(*map(column, self._partition), *columns)

    def _inserts(self, rows: DataFrame, values: list[str]) -> DataFrame:
        inserts = (
            rows.withColumn(names.CHANGE_TYPE, sf.lit(UPSERTS[0]))
            .withColumn(names.COMMIT_TIMESTAMP, sf.lit(_BEFORE_ALL).cast("timestamp"))
            .withColumn(names.COMMIT_VERSION, sf.lit(_NO_VERSION))
            .withColumn(names.SEQUENCE, sf.lit(0))
        )
        if not self._has_delta:
            return inserts
        touched = sf.array(*map(sf.lit, values)).cast("array<string>")
        return inserts.withColumn(names.MODIFIED, touched).withColumn(names.INSERTED, sf.lit(True))

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
        has_ranges = names.RANGE in self._changes.columns
        return check_whole(
            self._partition, self._clustering, is_of_row=is_of_row, has_ranges=has_ranges
        )

    def _of_kind(self, kind: str) -> list[str]:
        """Return the columns of a kind, from the schema's metadata."""
        return [field.name for field in self._fields if field.metadata.get("cql.kind") == kind]

    def _require(self, wanted: Sequence[str]) -> None:
        for name in wanted:
            if name not in self._changes.columns:
                raise SchemaError(
                    f"the DataFrame has no column {name}: expected one of format 'changes', "
                    "with its own columns and the whole key"
                )


def order_of_changes() -> Column:
    """Return the sort key of a row's changes: within one µs, deletes come after other writes."""
    is_delete = ~column(names.CHANGE_TYPE).isin(*UPSERTS, names.SNAPSHOT_BEGIN)
    place = [column(names.COMMIT_VERSION), column(names.SEQUENCE)]
    return sf.struct(column(names.COMMIT_TIMESTAMP), is_delete.alias("is_delete"), *place)


def any_set(columns: list[str]) -> Column:
    """Return a column that is true if any of these columns is not null."""
    return reduce(or_, (column(name).isNotNull() for name in columns), sf.lit(False))

"""What a micro-batch does to a copy: updates of rows, which `cdc_reader.copies.merging` merges.

The changes are folded in Python: on the executors, or a few of them in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

import cdc_reader as cdc
from cdc_reader._arrow import cells, to_arrow
from cdc_reader._time import FOREVER, Micros
from cdc_reader.changes import lifetimes
from cdc_reader.changes.folding.events import NEEDED_COLUMNS, groups_of_both
from cdc_reader.changes.folding.keys import flat
from cdc_reader.changes.folding.rows import INCOMPLETE
from cdc_reader.changes.frames import columns as names
from cdc_reader.changes.frames.commit_time import TIMESTAMP
from cdc_reader.copies.columns import quoted
from cdc_reader.copies.merging import mergeable
from cdc_reader.copies.row_state import first, is_inserted, is_whole, last, states_of
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Column as CqlColumn
from cdc_reader.cql.schema import ColumnKind, TableSchema
from cdc_reader.cql.types import UserType, parse
from cdc_reader.cql.types import parts as all_types
from cdc_reader.errors import SchemaError, UnsupportedTableError
from pyspark_scylla_cdc.tables.differences import fitted
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, VERSION, Layout, column

_Fold: TypeAlias = Callable[[pa.Table], pa.Table]

_REMOTE_TASKS = 8
_LEFT_OUT = 8
_ROW = "row"
"""The change type of rows of the copy, among changes."""
_USED = (*NEEDED_COLUMNS, names.EXPIRES, names.RANGE, names.BAD_RECORD)


NEEDED = "needed"
"""The kind of an update that only names a partition whose present rows the fold needs."""


class RowsNeeded(Exception):
    """Updates cannot be merged, because the fold needs the present rows of some `partitions`.

    `partitions` have the columns of the partition key. They lie in these `buckets`, or in any
    bucket if the copy has none.
    """

    def __init__(self, partitions: DataFrame | pa.Table, buckets: Collection[int] | None) -> None:
        super().__init__()
        self.partitions = partitions
        self.buckets = buckets


def row_updates(changes: DataFrame, layout: Layout, rows: DataFrame | None = None) -> DataFrame:
    """Return the updates of a copy that follow from `changes`: see `cdc_reader.row_updates`.

    The result has the stored columns, and `layout.flags`. `rows` are the present rows of the copy
    in the partitions that the fold needs. Without them, the result has an update of kind `NEEDED`
    for each of these partitions; if there are any, fold again with their rows.
    """
    given = changes if rows is None else with_rows(changes, rows, layout)
    fold = _updates(changes.schema, layout, needs=rows is None)
    return by_partition(given, layout, fold, StructType([*layout.row, *layout.flags]))


@define
class FewChanges:
    """Folds micro-batches of up to `most` changes, and of `most_bytes`, in this process.

    Spark's shuffle, and the way of the changes to other Python processes, take longer than to fold
    a few. Larger micro-batches must not get into this process, and seldom come alone.
    """

    most: int
    most_bytes: int | None = None
    """None for a sink whose updates pass through this process anyway."""
    _left_out: int = field(default=0, init=False)
    """How many micro-batches are not tried, because an earlier one was too large."""

    def row_updates(self, changes: DataFrame, layout: Layout) -> pa.Table | None:
        """Return what `row_updates` finds without rows, or None for too many changes."""
        if self._left_out:
            self._left_out -= 1
            return None
        if (given := self._given(changes, layout)) is None:
            self._left_out = _LEFT_OUT
            return None
        return _few_row_updates(given, changes.schema, layout)

    def _given(self, changes: DataFrame, layout: Layout) -> pa.Table | None:
        """Return the columns that a fold needs, and the bucket, or None for too many changes."""
        named, bucket = _used(changes, layout), layout.bucket
        columns = {name: quoted(name) for name in named}
        if bucket is not None:
            [columns[bucket]] = layout.place()
        numbers, most, most_bytes = _numbered([*columns]), self.most, self.most_bytes
        told = zip(columns.values(), numbers, strict=True)
        given = changes.selectExpr(*(f"{value} AS {number}" for value, number in told))

        def of_limited_size(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            size = 0
            for batch in batches:
                size += batch.nbytes
                if most_bytes is not None and size > most_bytes:
                    nulls = [pa.nulls(most + 1, kind) for kind in batch.schema.types]
                    yield pa.RecordBatch.from_arrays(nulls, schema=batch.schema)  # too many rows
                    return
                yield batch

        some = given.limit(most + 1)
        if most_bytes is not None:
            some = some.mapInArrow(of_limited_size, given.schema)
        found = some.toArrow()
        return found.rename_columns([*columns]) if len(found) <= most else None


def _few_row_updates(given: pa.Table, changes: StructType, layout: Layout) -> pa.Table:
    """Return the updates that follow from changes in this process, with their buckets."""
    bucket, named = layout.bucket, [it for it in given.column_names if it != layout.bucket]
    fold = _updates(changes, layout, needs=True)
    found = fold(given.select(named))
    if bucket is None:
        return found
    keys, others = (each.select(layout.partition) for each in (given, found))
    groups, of_found = groups_of_both(keys, others)
    places = np.full(groups.max(initial=0) + 1, 0, np.int32)
    places[groups] = cells(flat(given.column(bucket)))
    return found.append_column(bucket, to_arrow(places[of_found]))


def first_rows(changes: DataFrame, layout: Layout, position: Micros) -> DataFrame:
    """Return the rows of a snapshot with this position, with the stored columns."""
    table = table_of(changes.schema)

    def fold(given: pa.Table) -> pa.Table:
        rows = cdc.fold(table, given)
        rows = rows.append_column(layout.state, states_of(rows))
        if layout.history:
            for name, value in zip(VERSION, (position, None, True), strict=True):
                kind = pa.bool_() if name == IS_CURRENT else TIMESTAMP
                rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), len(rows)))
        return rows

    return by_partition(changes, layout, fold, layout.row)


def with_rows(changes: DataFrame, rows: DataFrame, layout: Layout) -> DataFrame:
    """Return changes with rows of the copy among them, see `split`."""
    needed = changes.select(*map(column, _used(changes, layout)))
    return needed.unionByName(_as_changes(rows, layout), allowMissingColumns=True)


def by_partition(
    given: DataFrame,
    layout: Layout,
    fold: _Fold,
    found: StructType,
    *,
    in_partitions: bool = False,
) -> DataFrame:
    """Return the result of `fold`, which has the columns `found`, with the bucket of each row.

    `fold` gets a part of the rows, with whole partitions of the table and whole buckets of the
    copy: one part for each core or, with `in_partitions`, for each partition of Spark's shuffles.
    In a small micro-batch, most time is that of calls between Python and the JVM: SQL needs few,
    and many are needed to make the same expressions of columns.
    """
    named, columns = _used(given, layout), found.names
    numbers, given_numbers = _numbered(columns), _numbered(named)

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if parts := [batch for batch in batches if batch.num_rows]:
            rows = fold(pa.Table.from_batches(parts).rename_columns(named)).select(columns)
            yield from rows.rename_columns(numbers).combine_chunks().to_batches()

    # `mapInArrow` does not quote the names of columns, which may contain any characters.
    given = given.selectExpr(*map(_renamed, named, given_numbers))
    key = [given_numbers[named.index(name)] for name in layout.partition]
    place = map(sf.expr, layout.place(key))
    parts = given.repartition(*place) if in_partitions else given.repartition(_tasks(given), *place)
    result = [*map(_renamed, numbers, columns)]
    if layout.bucket is not None:
        key = [numbers[columns.index(name)] for name in layout.partition]
        result.append(f"{layout.place(key)[0]} AS {quoted(layout.bucket)}")
    return parts.mapInArrow(each, _with_numbers(found)).selectExpr(*result)


def _renamed(old: str, new: str) -> str:
    return f"{quoted(old)} AS {quoted(new)}"


def _used(given: DataFrame, layout: Layout) -> list[str]:
    """Return the columns that a fold needs."""
    needed = (*_USED, *(VERSION if layout.history else ()))
    return [*layout.table_columns, *(name for name in needed if name in given.columns)]


def _numbered(columns: Sequence[str]) -> list[str]:
    return [f"c{number}" for number in range(len(columns))]


def _with_numbers(schema: StructType) -> StructType:
    """Return the schema with other names of columns."""
    fields = zip(_numbered(schema.names), schema, strict=True)
    return StructType([StructField(name, field.dataType) for name, field in fields])


def table_of(changes: StructType) -> TableSchema:
    """Return the table whose changes have this schema, from the metadata of their columns."""
    kinds: dict[str, int] = {}
    columns = []
    for each in changes:
        if (kind := each.metadata.get("cql.kind")) is None:
            continue
        place = kinds[kind] = kinds.get(kind, -1) + 1
        is_descending = each.metadata.get("cql.order") == "desc"
        cql_type = parse(each.metadata["cql.type"], _user_type)
        columns.append(CqlColumn(each.name, cql_type, ColumnKind(kind), place, is_descending))
    name = changes[names.CHANGE_TYPE].metadata.get("cql.table", "?.?")
    return TableSchema(TableName.parse(name), tuple(columns))


def _user_type(name: str) -> UserType:
    """Return a stand-in for a user-defined type, whose values are compared for equality only."""
    keyspace, _, own = name.rpartition(".")
    return UserType(keyspace, own, ())


def _tasks(changes: DataFrame) -> int:
    """Return in how many tasks to fold: one for each core.

    Spark would start as many Python tasks as it has shuffle partitions, 200 by default. A Spark
    Connect session does not know the number of cores.
    """
    spark = changes.sparkSession
    if not hasattr(spark, "_jsparkSession"):
        return min(_REMOTE_TASKS, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    return int(spark.sparkContext.defaultParallelism)


def _as_changes(rows: DataFrame, layout: Layout) -> DataFrame:
    """Return rows of the copy as changes of type `_ROW`."""
    state = quoted(layout.state)
    times = [f"timestamp_micros({each(state)})" for each in (first, last)]
    parts = zip([field.name for field in lifetimes.TYPE], [*times, is_whole(state)], strict=True)
    expires = ", ".join(f"'{name}', {value}" for name, value in parts)
    lifetime = sf.expr(f"CASE WHEN {state} IS NOT NULL THEN named_struct({expires}) END")
    inserted = sf.expr(is_inserted(state)).alias(names.INSERTED)
    return as_row_changes(rows, layout.schema, inserted, lifetime.alias(names.EXPIRES))


def as_row_changes(rows: DataFrame, schema: StructType, *more: Column) -> DataFrame:
    """Return rows as changes of type `_ROW` with the columns of `schema`, and with `more`."""
    columns = (value.alias(name) for name, value in fitted(rows, schema).items())
    return rows.select(*columns, *more, sf.lit(_ROW).alias(names.CHANGE_TYPE))


def split(given: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the changes, and the rows that `as_row_changes` has put among them."""
    is_row = pc.equal(given.column(names.CHANGE_TYPE), _ROW)
    return given.filter(pc.invert(is_row)), given.filter(is_row)


def _updates(changes: StructType, layout: Layout, *, needs: bool) -> _Fold:
    """Return a function that folds one part of the changes, and of rows of the copy."""
    table, columns, named = table_of(changes), layout.columns, named_since(changes)

    def fold(given: pa.Table) -> pa.Table:
        own, rows = split(given)
        check_ranges(table, own, named)
        needed = cdc.needed_partitions(table, own) if needs else None
        if needed:
            own = own.slice(0, 0)  # the changes are folded again
        updates = mergeable(columns, cdc.row_updates(table, own, rows))
        if not needed:
            return updates
        kinds = pa.array([NEEDED] * len(needed), pa.string())
        needed = needed.append_column(columns.kind, kinds)
        return pa.concat_tables([updates, needed], promote_options="default")

    return fold


def named_since(changes: StructType) -> Micros:
    """Return since when the columns of the key certainly have their names, in µs."""
    if names.RANGE not in changes.names:
        return 0
    return int(changes[names.RANGE].metadata.get("cql.named", FOREVER))


def check_ranges(table: TableSchema, changes: pa.Table, named: Micros) -> None:
    """Raise SchemaError for ranges without bounds that are older than the names of the key.

    A range has no bounds if a key column was renamed since, or if ranges of one batch touch.
    """
    if names.RANGE not in changes.schema.names or not table.clustering:
        return
    bounds = changes.column(names.RANGE).combine_chunks()
    if bounds.null_count < len(bounds):
        for each in table.clustering:
            if any(isinstance(it, UserType) for it in all_types(each.type)):
                raise UnsupportedTableError(
                    f"{table.name}: ranges of clustering column {each.name} cannot be compared: "
                    "found a user-defined type: delete whole keys or partitions"
                )
    first = table.clustering[0].name
    start, end = (pc.struct_field(bounds, [side, first]) for side in ("start", "end"))
    is_open = pc.and_(pc.is_valid(bounds), pc.and_(pc.is_null(start), pc.is_null(end)))
    times = changes.column(names.COMMIT_TIMESTAMP).cast(pa.int64()).combine_chunks()
    if pc.any(pc.and_(is_open, pc.less(times, named))).as_py():
        raise SchemaError(f"{table.name}: {INCOMPLETE}")

"""Compares a copy with its table, in Spark: the table is read by token ranges, as in a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

from attrs import field, frozen
from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
)

from cdc_reader._time import Micros, as_datetime, format_timestamp
from cdc_reader.changes.frames import columns as names
from cdc_reader.copies.columns import OwnNames
from cdc_reader.errors import CheckpointError
from pyspark_scylla_cdc.offsets.spark_checkpoint import last_committed, planned
from pyspark_scylla_cdc.tables.differences import fitted
from pyspark_scylla_cdc.tables.fold import fold
from pyspark_scylla_cdc.tables.layout import IS_CURRENT, column, layout_of
from pyspark_scylla_cdc.tables.sink import Sink

MISSING, EXTRA, CHANGED = "missing", "extra", "changed"
_WORDS = {
    MISSING: "only in the table",
    EXTRA: "only in the copy",
    CHANGED: "with other values",
}
_OF_ROWS = ("insert", "update_postimage", "delete")
"""Changes of single rows, unless a part of their key is null."""


@frozen
class CopyComparison:
    """How a copy differs from its table; `Mirror.compare` returns it."""

    target: str
    position: Micros
    """The copy has the changes that were written before this time, in µs since 1970."""
    table_rows: int
    copy_rows: int
    differing: Mapping[str, int]
    """The number of rows that differ, by kind: ``missing`` in the copy, ``extra`` in the copy, or
    ``changed``."""
    newer: int
    """The number of rows that differ and were changed after `position`: these are no differences,
    because the copy has yet to get the changes."""
    first: Sequence[Mapping[str, Any]] = field(repr=False)
    """The first rows that differ: each has the ``kind``, the ``key``, and the names of the
    ``columns`` with other values."""

    @property
    def is_equal(self) -> bool:
        """Whether no row differs, except rows that were changed after the copy's position."""
        return not any(self.differing.values())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"table: {self.table_rows:,} rows"
        yield f"copy at {self.target}: {self.copy_rows:,} rows"
        if self.newer:
            since = format_timestamp(self.position)
            yield f"{self.newer:,} rows were changed since the copy's position, {since}"
        if self.is_equal:
            yield "no row differs"
            return
        kinds = ", ".join(f"{self.differing.get(kind, 0):,} {it}" for kind, it in _WORDS.items())
        yield f"{sum(self.differing.values()):,} rows differ: {kinds}"
        for each in self.first:
            key = ", ".join(f"{name}={value!r}" for name, value in each["key"].items())
            columns = f": {', '.join(each['columns'])}" if each["columns"] else ""
            yield f"  {_WORDS[each['kind']]}  {key}{columns}"


def compare(
    spark: SparkSession, options: Mapping[str, str], sink: Sink, checkpoint: str, limit: int
) -> CopyComparison:
    """Compare the copy in `sink` with its table; see `Mirror.compare`.

    The position is read first, then the copy and the table, and at last the log: so each change
    that only one of them has is found in the log after the position.
    """
    position = _position(spark, sink, checkpoint)
    reader = spark.read.format("scylla_cdc")
    now = reader.options(**options).load()
    layout, observed = layout_of(now), Observation()
    rows = _Rows(layout.schema, layout.key)
    both = rows.joined(fold(now), _current(sink.rows(spark))).observe(
        observed, sf.count(rows.mine).alias("table"), sf.count(rows.theirs).alias("copy")
    )
    found = rows.differing(both).localCheckpoint()
    since = {"startingTimestamp": as_datetime(position).isoformat()}
    changed = {name: value for name, value in options.items() if name.lower() != "snapshot"}
    log = spark.read.format("scylla_cdc").options(**changed, **since).load()
    newer = rows.changed_in(found, log, layout.partition, layout.clustering)
    settled = found.join(newer, [rows.number], "left_anti")
    counts = {row[0]: row[1] for row in settled.groupBy(rows.kind).count().collect()}
    first = settled.orderBy(rows.kind, *map(column, layout.key)).limit(limit)
    return CopyComparison(
        sink.target,
        position,
        observed.get["table"],
        observed.get["copy"],
        {kind: counts.get(kind, 0) for kind in _WORDS},
        newer.count(),
        [rows.shown(row) for row in first.collect()],
    )


def _position(spark: SparkSession, sink: Sink, checkpoint: str) -> Micros:
    """Return the position of the last micro-batch that is committed.

    Raises CheckpointError if the copy does not have all rows of its snapshot yet.
    """
    number = last_committed(spark, checkpoint)
    ends = () if number is None else planned(spark, checkpoint, number).ends
    if not ends or any(end.is_before_snapshot for end in ends):
        raise CheckpointError(
            f"the copy at {sink.target} does not have all rows of the table yet: compare it when "
            "its snapshot is complete"
        )
    return min(end.position for end in ends)


def _current(copy: DataFrame) -> DataFrame:
    """Return the current rows of a copy, which may have a history."""
    return copy.where(column(IS_CURRENT)) if IS_CURRENT in copy.columns else copy


class _Rows:
    """Joins the rows of the table and of the copy, and finds those that differ."""

    def __init__(self, schema: StructType, key: Sequence[str]) -> None:
        own = OwnNames.beside(schema.names)
        self._schema = schema
        self._key = key
        self._other = own.other
        self.mine, self.theirs, self.kind, self.number, self._columns, self._place = map(
            own.own, ("mine", "theirs", "kind", "number", "columns", "place")
        )

    def joined(self, table: DataFrame, copy: DataFrame) -> DataFrame:
        """Return the rows of both, side by side; a row that one lacks has nulls on its side.

        Of several rows of the copy with the same key, all but one are rows that the table lacks.
        """
        there = fitted(copy, self._schema)
        mine = table.withColumn(self.mine, sf.lit(1))
        theirs = copy.select(
            *(value.alias(self._other(name)) for name, value in there.items()),
            sf.lit(1).alias(self.theirs),
        )
        others = [column(self._other(name)) for name in self._key]
        place = sf.row_number().over(Window.partitionBy(*others).orderBy(sf.lit(1)))
        theirs = theirs.withColumn(self._place, place)
        same = [column(name).eqNullSafe(column(self._other(name))) for name in self._key]
        is_first = column(self._place) == 1
        return mine.join(theirs, reduce(and_, [*same, is_first]), "full")

    def differing(self, both: DataFrame) -> DataFrame:
        """Return the keys of rows that differ, with the kind, and the columns that differ."""
        changed = [
            sf.when(
                ~comparable(column(each.name), each.dataType).eqNullSafe(
                    comparable(column(self._other(each.name)), each.dataType)
                ),
                sf.lit(each.name),
            )
            for each in self._schema
            if each.name not in self._key
        ]
        columns = sf.array_compact(sf.array(*changed)) if changed else _none()
        is_missing, is_extra = column(self.theirs).isNull(), column(self.mine).isNull()
        kind = (
            sf.when(is_missing, MISSING).when(is_extra, EXTRA).when(sf.size(columns) > 0, CHANGED)
        )
        key = (
            sf.when(is_extra, column(self._other(name))).otherwise(column(name)).alias(name)
            for name in self._key
        )
        alone = sf.when(is_missing | is_extra, _none())
        found = both.select(
            *key,
            kind.alias(self.kind),
            alone.otherwise(columns).alias(self._columns),
            sf.monotonically_increasing_id().alias(self.number),
        )
        return found.where(column(self.kind).isNotNull())

    def changed_in(
        self,
        found: DataFrame,
        log: DataFrame,
        partition: Sequence[str],
        clustering: Sequence[str],
    ) -> DataFrame:
        """Return the numbers of those rows in `found` that changes in the log may have changed.

        A change without a whole key is one of a range, a partition or a static column, and may have
        changed all rows of its partition. A row without a clustering key has the static columns of
        a partition without other rows, so that any change of the partition may make or remove it.
        """
        is_of_row = column(names.CHANGE_TYPE).isin(*_OF_ROWS)
        for name in clustering:
            is_of_row = is_of_row & column(name).isNotNull()
        key = [*partition, *clustering]
        touched = log.select(*map(column, key), is_of_row.alias(self.mine)).distinct()
        theirs = touched.select(
            *(column(name).alias(self._other(name)) for name in key), column(self.mine)
        )
        of_partition, of_row = (
            reduce(and_, [column(name).eqNullSafe(column(self._other(name))) for name in part])
            for part in (partition, key)
        )
        has_clustering = column(clustering[0]).isNotNull() if clustering else sf.lit(True)
        is_touched = of_partition & (of_row | ~column(self.mine) | ~has_clustering)
        return found.join(theirs, is_touched, "left_semi").select(self.number)

    def shown(self, row: Any) -> dict[str, Any]:
        """Return a row that differs as Python values."""
        key = {name: row[name] for name in self._key if row[name] is not None}
        return {"kind": row[self.kind], "key": key, "columns": row[self._columns]}


def _none() -> Column:
    """Return an empty list of names."""
    return sf.array().cast("array<string>")


def comparable(value: Column, kind: DataType) -> Column:
    """Return what is equal for equal values of this type.

    Spark cannot compare maps; and for it, 0.0 equals -0.0.
    """
    match kind:
        case FloatType() | DoubleType():
            return value.cast("string")
        case ArrayType(elementType=element):
            return sf.transform(value, lambda each: comparable(each, element))
        case MapType(keyType=key, valueType=item):
            entries = sf.transform(
                sf.map_entries(value),
                lambda each: sf.struct(
                    comparable(each["key"], key).alias("key"),
                    comparable(each["value"], item).alias("value"),
                ),
            )
            return sf.array_sort(entries)
        case StructType(fields=fields):
            parts = (comparable(value[it.name], it.dataType).alias(it.name) for it in fields)
            return sf.when(value.isNotNull(), sf.struct(*parts))
        case _:
            return value

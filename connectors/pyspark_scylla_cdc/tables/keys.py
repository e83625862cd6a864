"""Checks that columns can be told apart by name, and rows by their primary keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise
from operator import and_, or_

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from cdc_reader._time import FOREVER
from cdc_reader.changes.folding.rows import INCOMPLETE
from cdc_reader.changes.frames import columns as names
from cdc_reader.cql.names import without_case
from cdc_reader.errors import SchemaError
from pyspark_scylla_cdc.tables.ranges import column

_INCOMPLETE = f"{INCOMPLETE}; a copy begins again when its target and its checkpoint are deleted"


def refuse_keys(key: Iterable[StructField]) -> None:
    """Raise SchemaError for key columns in which Spark cannot recognize equal values.

    These are maps, and decimals as text in clustering columns, where 1.0 and 1.00 are one row. In a
    partition key, they are two.
    """
    for field in key:
        if _is_text_of_decimal(field):
            raise SchemaError(
                f"clustering column {field.name} contains decimals, which are read as text, so "
                "1.0 and 1.00 would be two rows: give decimalType, such as 'decimal(38, 6)'"
            )
        if _has_map(field.dataType):
            raise SchemaError(
                f"key column {field.name} is or contains a map, which Spark cannot compare: fold "
                "and mirror cannot be used for this table; copy it with 'scylla-cdc replicate'"
            )


def refuse_equal_names(fields: Iterable[StructField], spark: SparkSession | None = None) -> None:
    """Raise SchemaError for columns, or fields inside columns, whose names differ only in case.

    They are accepted if `spark` is given and distinguishes them.
    """
    if spark is not None and str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
        return
    for first, second in _equal_names(StructType([*fields])):
        raise SchemaError(
            f"columns or fields {first} and {second} differ only in case, and Spark and table "
            "formats do not distinguish them: leave one out with the option columns, or for fold, "
            "set spark.sql.caseSensitive to 'true'"
        )


def _equal_names(kind: DataType) -> Iterator[tuple[str, str]]:
    match kind:
        case ArrayType():
            yield from _equal_names(kind.elementType)
        case MapType():
            yield from _equal_names(kind.keyType)
            yield from _equal_names(kind.valueType)
        case StructType():
            known: dict[str, str] = {}
            for field in kind:
                if (first := known.setdefault(without_case(field.name), field.name)) != field.name:
                    yield first, field.name
                yield from _equal_names(field.dataType)


def check_whole(
    partition: Sequence[str],
    clustering: Sequence[str],
    *,
    is_of_row: Column,
    ranges: StructField | None,
) -> Column:
    """Return a column that is true for changes whose whole key is known, and raises otherwise.

    After a key column is renamed, it is null in older rows of the log. A row delete then looks like
    a static or partition delete, and the bounds of a range are missing. `is_of_row` is true for
    changes that must have a clustering key, and `ranges` the column of ranges, if there is one.
    """
    lacks = _any_null(map(column, partition))
    if clustering:
        cells = [*map(column, clustering)]
        lacks |= _any_null(cells) & (is_of_row | ~_all_null(cells))
    if clustering and ranges is not None:
        named = int(ranges.metadata.get("cql.named", FOREVER))
        may_be_renamed = sf.unix_micros(column(names.COMMIT_TIMESTAMP)) < named
        lacks |= _lacks_bounds(column(names.RANGE), clustering, may_be_renamed)
    is_mark = column(names.CHANGE_TYPE).isin(names.SNAPSHOT_BEGIN, names.SNAPSHOT_COMPLETE)
    refused = sf.raise_error(sf.lit(_INCOMPLETE)).cast("boolean")
    return sf.when(is_mark | ~lacks, sf.lit(True)).otherwise(refused)


def _lacks_bounds(bounds: Column, clustering: Sequence[str], may_be_renamed: Column) -> Column:
    """Return a column that is true if a range has no bounds, or if they lack a leading column.

    An open end of a range is inclusive. A range is open at both ends only if ranges of one batch
    touch, so that they cover all rows of the partition.
    """
    start, end = ([bounds[side][name] for name in clustering] for side in ("start", "end"))
    lacks = start[0].isNull() & end[0].isNull() & may_be_renamed
    for side, cells in (("start", start), ("end", end)):
        lacks |= cells[0].isNull() & ~bounds[f"{side}_inclusive"]
        for earlier, later in pairwise(cells):
            lacks |= earlier.isNull() & later.isNotNull()
    return bounds.isNotNull() & lacks


def _any_null(cells: Iterable[Column]) -> Column:
    return reduce(or_, (cell.isNull() for cell in cells))


def _all_null(cells: Iterable[Column]) -> Column:
    return reduce(and_, (cell.isNull() for cell in cells))


def _is_text_of_decimal(field: StructField) -> bool:
    has_decimals = re.search(r"\bdecimal\b", field.metadata.get("cql.type", "")) is not None
    is_clustering = field.metadata.get("cql.kind") == "clustering"
    return is_clustering and has_decimals and "decimal(" not in field.dataType.simpleString()


def _has_map(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _has_map(kind.elementType)
        case StructType():
            return any(_has_map(field.dataType) for field in kind)
    return isinstance(kind, MapType)

"""Checks that columns can be told apart by name, and rows by their primary keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from cdc_reader.cql.names import without_case
from cdc_reader.errors import SchemaError


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

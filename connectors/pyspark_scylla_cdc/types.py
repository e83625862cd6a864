"""Arrow types to Spark types, by hand: Spark's own conversion wants a JVM, which workers lack.

Spark accepts a batch only if its Arrow schema equals what Spark itself would make of the
DataFrame's schema, so the pairs below are the ones for which the way back is the same type.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as arrow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cdc_reader.schema import Column, ColumnKind, TableSchema

_SCALARS: dict[pa.DataType, DataType] = {
    pa.binary(): BinaryType(),
    pa.bool_(): BooleanType(),
    pa.date32(): DateType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.string(): StringType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def spark_schema(schema: pa.Schema, base: TableSchema) -> StructType:
    """The Spark schema of batches with this Arrow schema.

    Columns of the base table tell in their metadata what they are there: `cql.type`,
    `cql.kind`, and for clustering columns `cql.order`, ``asc`` or ``desc``.
    """
    known = {column.name: column for column in base.columns}
    struct = _struct(schema)
    for field in struct:
        if (column := known.get(field.name)) is not None:
            field.metadata = _metadata(column)
    return struct


def _metadata(column: Column) -> dict[str, str]:
    told = {"cql.type": str(column.type), "cql.kind": column.kind.value}
    if column.kind is ColumnKind.CLUSTERING:
        told["cql.order"] = "desc" if column.descending else "asc"
    return told


def spark_type(arrow_type: pa.DataType) -> DataType:
    """The Spark type whose Arrow form is `arrow_type`; TypeError if Spark has none."""
    if (scalar := _SCALARS.get(arrow_type)) is not None:
        return scalar
    if arrow.is_decimal128(arrow_type):
        return DecimalType(arrow_type.precision, arrow_type.scale)
    if arrow.is_list(arrow_type):
        return ArrayType(spark_type(arrow_type.value_type), arrow_type.value_field.nullable)
    if arrow.is_map(arrow_type):
        return MapType(
            spark_type(arrow_type.key_type),
            spark_type(arrow_type.item_type),
            arrow_type.item_field.nullable,
        )
    if arrow.is_struct(arrow_type):
        return _struct(arrow_type)
    raise TypeError(f"Arrow type {arrow_type} has no Spark type; expected one of the kernel's")


def _struct(fields: pa.Schema | pa.StructType) -> StructType:
    return StructType(
        [StructField(field.name, spark_type(field.type), field.nullable) for field in fields]
    )

"""Maps Arrow types to Spark types, because Spark's conversion needs a JVM, which workers lack.

Spark accepts a batch only if its Arrow schema equals the one that Spark itself would derive from
the DataFrame's schema. The pairs below therefore convert back to the same type. ``python -m
pyspark_scylla_cdc.schema`` prints the table of types as Markdown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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

from cdc_reader._time import BEGINNING, FOREVER, Micros
from cdc_reader.changes.frames.columns import CHANGE_TYPE, RANGE
from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import Column, ColumnKind, ImageMode, TableSchema
from cdc_reader.cql.types import NATIVE_TYPES, CqlType, parse
from cdc_reader.reading.expiry import GRACE

_CREATION = 1_000_000
"""The longest time, in µs, from a table's id to the end of its creation."""

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


def part_of(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the columns `names` of a format's schema."""
    return pa.schema([schema.field(name) for name in names])


def spark_schema(schema: pa.Schema, base: TableSchema, *, marks: bool = False) -> StructType:
    """Return the Spark schema of batches with this Arrow schema.

    The metadata of a base table's column contains `cql.type` and `cql.kind`. For clustering
    columns, it also contains `cql.order`, which is ``asc`` or ``desc``. In the metadata of the
    change type, `cql.table` is the table's name, and `cql.insert` says what an ``insert`` means: an
    INSERT ``statement``, or a new ``row``, which an UPDATE can also create. With `marks`,
    `cql.marks` is ``true``, which means that the rows may include marks of snapshots. In the
    metadata of the ranges, `cql.named` is the time, in µs, since which the columns of the key
    certainly have their names.
    """
    known = {column.name: column for column in base.columns}
    struct = _struct(schema)
    for field in struct:
        if (column := known.get(field.name)) is not None:
            field.metadata = _metadata(column)
        elif field.name == CHANGE_TYPE:
            by_statement = base.cdc.preimage is ImageMode.OFF
            field.metadata = {
                "cql.table": str(base.name),
                "cql.insert": "statement" if by_statement else "row",
                **({"cql.marks": "true"} if marks else {}),
            }
        elif field.name == RANGE:
            field.metadata = {"cql.named": str(_named_since(base))}
    return struct


def _named_since(base: TableSchema) -> Micros:
    """Return the time (µs) since which no column of the key can have been renamed.

    Clocks and write times may differ by a minute.
    """
    created = None if base.id is None else timeuuid.created(base.id)
    if base.altered is None:
        return FOREVER
    is_new = created is not None and base.altered - created < _CREATION
    return BEGINNING if is_new else base.altered + GRACE


def _metadata(column: Column) -> dict[str, str]:
    metadata = {"cql.type": str(column.type), "cql.kind": column.kind.value}
    if column.kind is ColumnKind.CLUSTERING:
        metadata["cql.order"] = "desc" if column.descending else "asc"
    return metadata


def spark_type(arrow_type: pa.DataType) -> DataType:
    """Return the Spark type whose Arrow form is `arrow_type`; raise TypeError if there is none."""
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


_NOTES = {
    "date": "Python's `date` ends at the years 1 and 9999: beyond, collect `unix_date(column)`.",
    "decimal": "A string with all digits as written, or a number; see `decimalType`.",
    "duration": "Months, days and nanoseconds.",
    "inet": "The address in its usual text form.",
    "time": "Nanoseconds since midnight.",
    "timestamp": "Spark counts microseconds, and CQL counts milliseconds. A value outside the "
    "years -290308 to 294247 does not fit: leave its column out with `columns`, or set "
    "`onBadRecord`. Outside the years 1 to 9999, collect `unix_micros(column)`.",
    "timeuuid": "In canonical form. To sort by time, use `_commit_version`.",
    "uuid": "In canonical form.",
    "varint": "A string with all digits, or a number; see `decimalType`.",
}

_NESTED = {
    "list<int>": "In format `log`, a non-frozen list is a map whose keys are time UUIDs, as in the "
    "log table.",
    "set<int>": "Sorted as the server sorts it.",
    "map<text, int>": "",
    "tuple<text, int>": "The fields are `_1`, `_2` and so on.",
    "vector<float, 3>": "",
}

_NUMBER = pa.decimal128(38, 10)


def markdown() -> str:
    """Return the table of types in Markdown: CQL type, Spark type and notes."""
    lines = ["| CQL | Spark | |", "|---|---|---|"]
    lines += [f"| {cql} | {spark} | {note} |" for cql, spark, note in _rows()]
    return "\n".join(lines) + "\n"


def _rows() -> Iterator[tuple[str, str, str]]:
    for name in sorted(NATIVE_TYPES - {"counter"}):  # counter tables have no log
        yield name, _spark(parse(name)), _NOTES.get(name, "")
    for text, note in _NESTED.items():
        yield f"`{text}`", _spark(parse(text)), note
    yield (
        "user-defined type",
        "struct of its fields",
        "The same for frozen and non-frozen types, in every format.",
    )


def _spark(cql_type: CqlType) -> str:
    """Return the Spark type in Markdown, and the type with `decimalType` if that differs."""
    own, number = (
        spark_type(types.of(cql_type)).simpleString()
        for types in (ValueTypes(), ValueTypes(_NUMBER))
    )
    return f"`{own}`" if own == number else f"`{own}` or `decimal(p, s)`"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - the module's output is its purpose

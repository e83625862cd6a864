"""Finds the fields that a table's types have gained, and fits older values to the new types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from pyspark_scylla_cdc.tables.ranges import column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

ELEMENT, KEY, VALUE = "element", "key", "value"
"""Names in a `NewField.path` for the elements of an array, and the keys and values of a map."""


@frozen
class NewField:
    """A column, or a field inside a column, that an older type lacks."""

    path: Sequence[str]
    type: DataType
    in_map: bool
    """Whether the field is inside the keys or values of a map."""


def new_fields(
    old: DataType, new: DataType, path: Sequence[str] = (), *, in_map: bool = False
) -> Iterator[NewField]:
    """Yield the fields that `new` has, and `old` lacks, at any depth."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match old, new:
        case StructType(), StructType():
            known = {field.name.lower(): field.dataType for field in old}
            for field in new:
                there, place = known.get(field.name.lower()), [*path, field.name]
                if there is None:
                    yield NewField(place, field.dataType, in_map)
                else:
                    yield from new_fields(there, field.dataType, place, in_map=in_map)
        case ArrayType(), ArrayType():
            place = [*path, ELEMENT]
            yield from new_fields(old.elementType, new.elementType, place, in_map=in_map)
        case MapType(), MapType():
            yield from new_fields(old.keyType, new.keyType, [*path, KEY], in_map=True)
            yield from new_fields(old.valueType, new.valueType, [*path, VALUE], in_map=True)


def fitted(rows: DataFrame, schema: StructType) -> dict[str, Column]:
    """Return the columns of `schema` in its types; whatever `rows` lack is null."""
    known = {field.name: field.dataType for field in rows.schema}
    return {
        field.name: _fit(column(field.name), known.get(field.name), field.dataType)
        for field in schema
    }


def _fit(value: Column, old: DataType | None, new: DataType) -> Column:
    """Convert a value to a type with the same fields or more."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, MapType, StructType

    match old, new:
        case None, _:
            return sf.lit(None).cast(new)
        case StructType(), StructType() if old != new:
            known = {field.name: field.dataType for field in old}
            cells = (
                _fit(value[field.name], known.get(field.name), field.dataType).alias(field.name)
                for field in new
            )
            return sf.when(value.isNotNull(), sf.struct(*cells))
        case ArrayType(), ArrayType() if old != new:
            return sf.transform(value, lambda cell: _fit(cell, old.elementType, new.elementType))
        case MapType(), MapType() if old != new:
            keys = sf.transform_keys(value, lambda key, _: _fit(key, old.keyType, new.keyType))
            return sf.transform_values(
                keys, lambda _, cell: _fit(cell, old.valueType, new.valueType)
            )
    return value.cast(new)  # a target may have wider types

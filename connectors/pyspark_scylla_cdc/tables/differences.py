"""Compares the types of a copy with the types of its table, and fits older values to new types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pyspark_scylla_cdc.tables.layout import column

_Part = tuple[str, DataType | None, DataType | None]

_ELEMENT, _KEY, _VALUE = "element", "key", "value"
"""Names for the elements of an array, and for the keys and values of a map, as in SQL."""


@frozen
class Difference:
    """A place at which a new type differs from an old one: a column, or a part of a column."""

    path: Sequence[str]
    old: DataType | None
    """None for a field that only the new type has."""
    new: DataType | None
    """None for a field that only the old type has."""
    in_map: bool
    """Whether the place is inside the keys or values of a map."""

    def __str__(self) -> str:
        return ".".join(self.path)


def differences(
    old: DataType | None, new: DataType | None, path: Sequence[str] = (), *, in_map: bool = False
) -> Iterator[Difference]:
    """Yield all places, at any depth, at which the types differ."""
    match old, new:
        case StructType(), StructType():
            parts = _fields(old, new)
        case ArrayType(), ArrayType():
            parts = [(_ELEMENT, old.elementType, new.elementType)]
        case MapType(), MapType():
            parts = [(_KEY, old.keyType, new.keyType), (_VALUE, old.valueType, new.valueType)]
            in_map = True
        case _:
            parts = []
            if old != new:
                yield Difference(path, old, new, in_map)
    for name, there, wanted in parts:
        yield from differences(there, wanted, [*path, name], in_map=in_map)


def new_fields(old: StructType, new: StructType) -> list[Difference]:
    """Return the columns, and the fields inside columns, that only `new` has."""
    return [each for each in differences(old, new) if each.old is None]


def _fields(old: StructType, new: StructType) -> list[_Part]:
    """Pair the fields by name, without regard to case, as Spark does."""
    olds, news = ({field.name.lower(): field for field in each} for each in (old, new))
    return [
        (
            (news.get(name) or olds[name]).name,
            olds[name].dataType if name in olds else None,
            news[name].dataType if name in news else None,
        )
        for name in {**olds, **news}
    ]


def fitted(rows: DataFrame, schema: StructType) -> dict[str, Column]:
    """Return the columns of `schema` in its types; whatever `rows` lack is null."""
    known = {field.name: field.dataType for field in rows.schema}
    return {
        field.name: _fit(column(field.name), known.get(field.name), field.dataType)
        for field in schema
    }


def _fit(value: Column, old: DataType | None, new: DataType) -> Column:
    """Convert a value to a type with the same fields or more."""
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

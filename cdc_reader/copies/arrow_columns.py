"""The columns of a copy as Arrow types: what it lacks, and what it cannot have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.types as arrow

from cdc_reader.changes.frames.value_types import ValueTypes
from cdc_reader.copies.refusals import lacks_key, new_in_map, other_type, renamed_field
from cdc_reader.cql.names import without_case
from cdc_reader.cql.schema import TableSchema
from cdc_reader.cql.types import MapType, Native, parts
from cdc_reader.errors import UnsupportedTableError


def table_fields(table: TableSchema) -> list[pa.Field]:
    """Return the fields of the table's columns in format `changes`."""
    return ValueTypes().fields(table.columns)


def refuse_table(table: TableSchema) -> None:
    """Raise UnsupportedTableError for columns that a Delta table cannot have, or not as a key."""
    for first, second in _equal_names(table_fields(table)):
        raise UnsupportedTableError(
            f"{table.name}: columns or fields {first} and {second} differ only in case, and Delta "
            "tables do not distinguish them: keep the copy with mirror in Spark, without one of "
            "them"
        )
    for column in table.columns:
        if column.is_key and any(isinstance(part, MapType) for part in parts(column.type)):
            raise UnsupportedTableError(
                f"{table.name}: key column {column.name} is or contains a map, which a merge "
                "cannot compare: copy the table with 'scylla-cdc replicate'"
            )
    for column in table.clustering:
        if any(part == Native("decimal") for part in parts(column.type)):
            raise UnsupportedTableError(
                f"{table.name}: clustering column {column.name} contains decimals, which are kept "
                "as text, so 1.0 and 1.00 would be two rows: keep the copy with mirror in Spark, "
                "with decimalType"
            )


def lacks_columns(target: str, there: pa.Schema, table: TableSchema) -> bool:
    """Return whether the copy lacks columns of the table, or fields inside columns.

    Raises SchemaError if the copy cannot get them.
    """
    types = {field.name: field.type for field in there}
    for column in table.columns:
        if column.is_key and column.name not in types:
            raise lacks_key(target, column.name, types)
    wanted = table_fields(table)
    known = [field for field in wanted if field.name in types]
    gained = [_gains(target, [it.name], types[it.name], it.type) for it in known]
    return any(gained) or len(known) < len(wanted)


def _gains(
    target: str, path: Sequence[str], old: pa.DataType, new: pa.DataType, *, in_map: bool = False
) -> bool:
    """Return whether a type has fields, at any depth, that the old type lacks."""
    if arrow.is_struct(old) and arrow.is_struct(new):
        return _gains_fields(target, path, old, new, in_map=in_map)
    if arrow.is_list(old) and arrow.is_list(new):
        return _gains(target, [*path, "element"], old.value_type, new.value_type, in_map=in_map)
    if arrow.is_map(old) and arrow.is_map(new):
        key = _gains(target, [*path, "key"], old.key_type, new.key_type, in_map=True)
        return _gains(target, [*path, "value"], old.item_type, new.item_type, in_map=True) or key
    if old != new:
        raise other_type(target, ".".join(path), old, new)
    return False


def _gains_fields(
    target: str, path: Sequence[str], old: pa.StructType, new: pa.StructType, *, in_map: bool
) -> bool:
    olds, news = ({field.name: field.type for field in each} for each in (old, new))
    for name in olds:
        if name not in news:
            raise renamed_field(target, ".".join([*path, name]))
    added = [name for name in news if name not in olds]
    if added and in_map:
        remedy = "delete target and checkpoint to start over"
        raise new_in_map(target, ".".join([*path, added[0]]), remedy)
    inner = [_gains(target, [*path, it], olds[it], news[it], in_map=in_map) for it in olds]
    return bool(added) or any(inner)


def _equal_names(fields: Iterable[pa.Field]) -> Iterator[tuple[str, str]]:
    known: dict[str, str] = {}
    for field in fields:
        if (first := known.setdefault(without_case(field.name), field.name)) != field.name:
            yield first, field.name
        yield from _equal_names(_inner(field.type))


def _inner(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a type: of a struct, or those inside a list or a map."""
    return [kind.field(number) for number in range(kind.num_fields)]

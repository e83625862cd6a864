"""Brings the rows of a table and of its copy in files into one form, in which they can be compared.

A copy has the types of its format: text may be a dictionary, a small integer may be wider, and the
reader of the files chooses the units of timestamps. Both sides are therefore converted to a type
that both have. Decimals are converted to text at the end, because Arrow can hash text only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as arrow
from attrs import frozen

from cdc_reader.changes.frames.decimals import DoesNotFitError, decimals
from cdc_reader.cql.names import quoted, without_case
from cdc_reader.cql.schema import Column, ColumnKind, TableSchema
from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
)
from cdc_reader.decoding.arrow_type import DURATION, NATIVE, fields_of
from cdc_reader.errors import UnsupportedTableError

_UNBOUNDED = ("decimal", "varint")
_MAX_DIGITS = 38


@frozen
class _Compared:
    """A column that is compared, under `own`, a name that no other column has."""

    own: str
    column: Column
    place: str
    """The column's name in the copy."""
    type: pa.DataType
    """The type that the values of both sides have."""


class CopyColumns:
    """The columns of a table, the columns of its copy that correspond, and their common types.

    Raises UnsupportedTableError if the copy lacks columns of `base`, or has them in other types.
    Further columns of the copy are ignored. The batches that the methods return have the columns
    `key` and `values`.
    """

    def __init__(self, base: TableSchema, copy: str, schema: pa.Schema) -> None:
        found = list(_matched(base, schema))
        if misfits := [each for each in found if isinstance(each, str)]:
            raise UnsupportedTableError(
                f"{copy} cannot be compared with {base.name}: {', '.join(misfits)}"
            )
        matched = [each for each in found if isinstance(each, _Compared)]
        self._copy = copy
        self._key = [each for each in matched if each.column.is_key]
        self._values = [each for each in matched if not each.column.is_key]
        self.partition = [
            each.own for each in self._key if each.column.kind is ColumnKind.PARTITION_KEY
        ]
        self.key = {each.own: each.column for each in self._key}
        self.values = {each.own: each.column for each in self._values}

    @property
    def clustering(self) -> list[str]:
        """The columns of the clustering key."""
        return [own for own in self.key if own not in self.partition]

    @property
    def places(self) -> list[str]:
        """The names of the copy's columns that are compared."""
        return [each.place for each in (*self._key, *self._values)]

    @property
    def schema(self) -> pa.Schema:
        """The schema of rows."""
        return _schema([*self._key, *self._values])

    @property
    def key_schema(self) -> pa.Schema:
        """The schema of keys."""
        return _schema(self._key)

    def of_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows of the table, with the kernel's types."""
        return self._converted(batch, [*self._key, *self._values])

    def of_log(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert the keys of rows of the log."""
        return self._converted(batch, self._key)

    def of_copy(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows of the copy."""
        columns = [*self._key, *self._values]
        cells = [_as_text(_fit(batch.column(each.place), each.type)) for each in columns]
        return pa.RecordBatch.from_arrays(cells, schema=_schema(columns))

    def _converted(self, batch: pa.RecordBatch, columns: Sequence[_Compared]) -> pa.RecordBatch:
        cells = [self._fitted(batch.column(each.column.name), each) for each in columns]
        return pa.RecordBatch.from_arrays(cells, schema=_schema(columns))

    def _fitted(self, cells: pa.Array, compared: _Compared) -> pa.Array:
        try:
            return _as_text(_fit(cells, compared.type))
        except (DoesNotFitError, pa.ArrowInvalid):
            name = quoted(compared.column.name)
            raise UnsupportedTableError(
                f"column {name} has a value that the copy's type {compared.type} cannot hold: "
                f"{self._copy} is no copy of it, or compare the other columns (--columns)"
            ) from None


class _MisfitError(Exception):
    """Values of a CQL type cannot be in a column of this Arrow type."""


def _matched(base: TableSchema, schema: pa.Schema) -> Iterator[_Compared | str]:
    """Yield each column of the table with its place in the copy, or what is wrong with it."""
    columns = sorted(base.columns, key=lambda column: not column.is_key)
    for number, column in enumerate(columns):
        place = _place(column.name, schema.names)
        if place is None:
            kind = "key column" if column.is_key else "column"
            yield f"it lacks {kind} {quoted(column.name)} {column.type}"
            continue
        found = schema.field(place).type
        try:
            yield _Compared(str(number), column, place, _common(column.type, found))
        except _MisfitError:
            yield f"column {quoted(column.name)} is of type {found}, not {column.type}"


def _place(name: str, names: Sequence[str]) -> str | None:
    """Find a name in the copy, if necessary without regard to case, as Spark does."""
    if name in names:
        return name
    alike = [each for each in names if without_case(each) == without_case(name)]
    return alike[0] if len(alike) == 1 else None


def _schema(columns: Iterable[_Compared]) -> pa.Schema:
    return pa.schema([(each.own, _text_type(each.type)) for each in columns])


def _common(cql_type: CqlType, found: pa.DataType) -> pa.DataType:
    """Return a type that holds values of both types; raise _MisfitError if there is none."""
    match cql_type:
        case Native(name):
            return _native(name, _plain(found))
        case ListType(element) | SetType(element) | VectorType(element):
            return pa.list_(pa.field("element", _common(element, _element(found))))
        case MapType(key, value) if arrow.is_map(found):
            keys, values = _common(key, found.key_type), _common(value, found.item_type)
            return pa.map_(pa.field("key", keys, nullable=False), pa.field("value", values))
        case TupleType() | UserType() if arrow.is_struct(found):
            return _struct(found, fields_of(cql_type))
        case _:
            raise _MisfitError


def _struct(found: pa.StructType, fields: Iterable[tuple[str, CqlType]]) -> pa.DataType:
    there = {each.name: each.type for each in found}
    kinds: list[tuple[str, pa.DataType]] = []
    for name, part in fields:
        place = _place(name, list(there))
        if place is None:
            raise _MisfitError
        kinds.append((name, _common(part, there[place])))
    return pa.struct(kinds)


def _element(found: pa.DataType) -> pa.DataType:
    if arrow.is_list(found) or arrow.is_large_list(found) or arrow.is_fixed_size_list(found):
        return found.value_type
    raise _MisfitError


def _plain(found: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column, however they are stored."""
    if arrow.is_dictionary(found):
        return _plain(found.value_type)
    if arrow.is_large_string(found) or arrow.is_string_view(found):
        return pa.string()
    if arrow.is_large_binary(found) or arrow.is_binary_view(found):
        return pa.binary()
    return pa.binary() if arrow.is_fixed_size_binary(found) else found


def _native(name: str, found: pa.DataType) -> pa.DataType:
    own = NATIVE[name]
    if name == "timestamp" and arrow.is_timestamp(found):
        return pa.timestamp("ms" if found.unit == "ms" else "us", tz="UTC")
    if name in _UNBOUNDED and arrow.is_decimal(found) and found.precision <= _MAX_DIGITS:
        return pa.decimal128(found.precision, found.scale)
    for is_number in (arrow.is_signed_integer, arrow.is_floating):
        if is_number(own) and is_number(found):
            return max(own, found, key=lambda kind: kind.bit_width)
    is_duration = own == DURATION and arrow.is_struct(found)
    if is_duration and {each.name for each in found} == {each.name for each in DURATION}:
        return DURATION
    if found not in (own, pa.null()):
        raise _MisfitError
    return own


def _fit(array: pa.Array, to: pa.DataType) -> pa.Array:
    """Convert values, at any depth, to a type that holds them.

    Raises DoesNotFitError or pyarrow.ArrowInvalid for other values.
    """
    if array.type == to:
        return array
    if arrow.is_null(array.type):
        return pa.nulls(len(array), to)
    if arrow.is_list(to) or arrow.is_map(to):
        return _fit_sequence(array, to)
    if arrow.is_struct(to):
        names = [field.name for field in array.type]
        there = dict(zip(names, array.flatten(), strict=True))
        cells = [_fit(there[_place(field.name, names) or ""], field.type) for field in to]
        return pa.StructArray.from_arrays(cells, fields=list(to), mask=array.is_null())
    return _fit_cells(array, to)


def _fit_cells(array: pa.Array, to: pa.DataType) -> pa.Array:
    if arrow.is_dictionary(array.type):
        return _fit(array.dictionary_decode(), to)
    if arrow.is_decimal(to) and arrow.is_string(array.type):
        return decimals(array, to)
    if arrow.is_timestamp(to):  # a view, because other zones and none are UTC as well
        array = array.view(pa.timestamp(array.type.unit, tz="UTC"))
    return array.cast(to)


def _fit_sequence(array: pa.Array, to: pa.DataType) -> pa.Array:
    nulls = array.is_null()
    if arrow.is_map(to):
        offsets = pc.add(array.offsets, 0)  # a copy: Arrow does not accept a mask with a slice
        keys, items = _fit(array.keys, to.key_type), _fit(array.items, to.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=to, mask=nulls)
    if not arrow.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    offsets = pc.add(array.offsets, 0)
    return pa.ListArray.from_arrays(offsets, _fit(array.values, to.value_type), type=to, mask=nulls)


def _as_text(array: pa.Array) -> pa.Array:
    """Replace decimals by text; equal decimals of a type have equal texts."""
    return _fit(array, _text_type(array.type))


def _text_type(kind: pa.DataType) -> pa.DataType:
    if arrow.is_decimal(kind):
        return pa.string()
    if arrow.is_map(kind):
        key, value = _text_type(kind.key_type), _text_type(kind.item_type)
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))
    if arrow.is_list(kind):
        return pa.list_(pa.field("element", _text_type(kind.value_type)))
    if arrow.is_struct(kind):
        return pa.struct([(field.name, _text_type(field.type)) for field in kind])
    return kind

"""Arrow types of values in a DataFrame: of decimals as chosen, and of timestamps as in Spark.

The choice for decimals is a type for all columns, a type for each of some columns, or both:
``decimal(20, 4)``, ``price: decimal(18, 2), "Tax rate": decimal(9, 6)``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from cdc_reader.changes.arrays import NONE, pick
from cdc_reader.changes.frames.commit_time import TIMESTAMP
from cdc_reader.changes.frames.decimals import DoesNotFitError, decimals
from cdc_reader.changes.json import cell_to_json
from cdc_reader.cql.schema import Column, TableSchema
from cdc_reader.cql.types import CqlType, MapType, Native, TupleType, UserType, children, parts
from cdc_reader.cql.values import FrozenDict
from cdc_reader.decoding import arrow_type
from cdc_reader.decoding.arrow_type import ARROW, NATIVE
from cdc_reader.decoding.faults import Fault, failing, is_tolerant, with_faults
from cdc_reader.errors import CdcError, ColumnDecodeError, ConfigurationError

DEFAULT = "string"
"""The type of decimals unless another one is chosen."""
_UNBOUNDED, _TIMESTAMP = ("decimal", "varint"), "timestamp"
_MAX_DIGITS = 38


class _TimeDoesNotFitError(DoesNotFitError):
    """A timestamp is too far from 1970 to be counted in µs."""

    def __init__(self) -> None:
        super().__init__("a timestamp outside the years -290308 to 294247")


@frozen
class ValueTypes:
    """The types of values in a DataFrame: the kernel's types, except for the following ones."""

    decimal: pa.DataType = pa.string()
    """The type of decimal and varint."""
    timestamp: pa.DataType = TIMESTAMP
    """The type of timestamp; Spark counts µs, so it cannot hold all of CQL's 64 bits of ms."""
    decimals: Mapping[str, pa.DataType] = FrozenDict()
    """The types of decimal and varint in the columns for which another type is chosen."""

    @classmethod
    def parse(cls, decimal_type: str, base: TableSchema | None = None) -> ValueTypes:
        """Parse the types of decimals.

        Raises ConfigurationError if the text is none, or names a column that contains no number of
        these types, or that `base` lacks, if it is given.
        """
        chosen: dict[str | None, pa.DataType] = {}
        for column, kind in _entries(decimal_type):
            if column in chosen:
                raise _refused(decimal_type)
            chosen[column] = kind
        default = chosen.pop(None, pa.string())
        columns = {name: kind for name, kind in chosen.items() if name is not None}
        if base is not None:
            _check_columns(columns, base)
        return cls(default, decimals=FrozenDict(columns))

    def in_column(self, name: str) -> ValueTypes:
        """Return the types of the values in this column."""
        return evolve(self, decimal=self.decimals.get(name, self.decimal), decimals=FrozenDict())

    def of_column(self, column: Column) -> pa.DataType:
        """Return the Arrow type of the column."""
        return self.in_column(column.name).of(column.type)

    def of(self, cql_type: CqlType) -> pa.DataType:
        """Return the Arrow type of `cql_type` in a column without a type of its own."""
        return evolve(ARROW, native=self._native)(cql_type)

    def _native(self, cql_type: Native) -> pa.DataType:
        if cql_type.name == _TIMESTAMP:
            return self.timestamp
        return self.decimal if cql_type.name in _UNBOUNDED else NATIVE[cql_type.name]

    def fields(self, columns: Iterable[Column]) -> list[pa.Field]:
        """Return the fields of a batch of `columns`."""
        return [pa.field(column.name, self.of_column(column)) for column in columns]

    def converter(self, columns: Iterable[Column]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return a function that converts the kernel's batches to the chosen types.

        A batch may have some of `columns`, and others. The function raises ConfigurationError if a
        number does not fit, and ColumnDecodeError if a timestamp does not. In tolerant batches, the
        cell becomes null instead, and a fault is recorded.
        """
        others = [each for each in columns if self.of_column(each) != arrow_type(each.type)]
        return partial(self._with, others=others)

    def _with(self, batch: pa.RecordBatch, others: Iterable[Column]) -> pa.RecordBatch:
        """Return the batch with those of the given columns that it has converted."""
        for column in others:
            if (place := batch.schema.get_field_index(column.name)) >= 0:
                batch = self.in_column(column.name).converted(batch, place, column)
        return batch

    def converted(self, batch: pa.RecordBatch, place: int, column: Column) -> pa.RecordBatch:
        """Return the batch with this column, at `place`, converted; see `converter`."""
        try:
            values = self._converted(batch.column(place), column.type)
        except DoesNotFitError as error:
            if not is_tolerant(batch):
                raise self._refusal(column, error) from None
            batch = self._without_misfits(batch, place, column, error)
            values = self._converted(batch.column(place), column.type)
        return batch.set_column(place, column.name, values)

    def _without_misfits(
        self, batch: pa.RecordBatch, place: int, column: Column, error: DoesNotFitError
    ) -> pa.RecordBatch:
        """Return the batch with each value that does not fit replaced by null and a fault."""
        cells = batch.column(place)
        kept, found = np.arange(len(cells)), dict[int, list[Fault]]()
        is_time = isinstance(error, _TimeDoesNotFitError)
        held = str(error) if is_time else f"a number with more digits than {self._name}"
        reason = f"column {column.name} holds {held}"

        def convert(first: int, end: int) -> None:
            part = cells.take(pa.array(range(first, end)))  # a slice would keep all the values
            self._converted(part, column.type)

        for row in failing(len(cells), convert, DoesNotFitError):
            kept[row] = NONE
            held = cell_to_json(cells[row])
            raw = held if isinstance(held, str) else json.dumps(held, ensure_ascii=False)
            found[row] = [Fault(column.name, reason, raw)]
        field = batch.schema.field(place)
        return with_faults(batch.set_column(place, field, pick(cells, kept)), found)

    def _converted(self, array: pa.Array, cql_type: CqlType) -> pa.Array:
        """Return the converted array, or the array itself if its type is unchanged.

        Nested values are converted recursively. Raises DoesNotFitError if a value does not fit.
        """
        if (kind := self.of(cql_type)) == array.type:
            return array
        if isinstance(cql_type, Native):
            return self._number(array, cql_type)
        nulls = array.is_null()
        if isinstance(cql_type, TupleType | UserType):
            cells = [
                self._converted(cell, part)
                for cell, part in zip(array.flatten(), children(cql_type), strict=True)
            ]
            return pa.StructArray.from_arrays(cells, fields=list(kind), mask=nulls)
        offsets = pc.add(array.offsets, 0)  # a copy: Arrow does not accept a mask with a slice
        if isinstance(cql_type, MapType):
            keys = self._converted(array.keys, cql_type.key)
            items = self._converted(array.items, cql_type.value)
            return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=nulls)
        values = self._converted(array.values, cql_type.element)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=nulls)

    def _number(self, array: pa.Array, cql_type: Native) -> pa.Array:
        if cql_type.name in _UNBOUNDED:
            return decimals(array, self.decimal)
        try:
            return array.cast(self.timestamp)
        except pa.ArrowInvalid:
            raise _TimeDoesNotFitError from None

    @property
    def _name(self) -> str:
        return f"decimal({self.decimal.precision}, {self.decimal.scale})"

    def _refusal(self, column: Column, error: DoesNotFitError) -> CdcError:
        if isinstance(error, _TimeDoesNotFitError):
            return ColumnDecodeError(
                f"column {column.name} holds {error}, which does not fit 64 bits of microseconds"
            )
        remedy = f"column {column.name} holds {error}, which does not fit: "
        return ConfigurationError(
            "decimal_type",
            self._name,
            f"{remedy}give 'string' or more digits, or on_bad_record 'skip' or 'quarantine'",
        )


_ENTRY = re.compile(
    r"""\s* (?: (?: "(?P<quoted> (?: [^"] | "" )+ )" | (?P<plain> [^\s":,]+ ) ) \s* : \s* )?
    (?: (?P<text> string )
      | decimal \( \s* (?P<digits> \d{1,2} ) \s* , \s* (?P<scale> \d{1,2} ) \s* \) )
    \s* (?: , (?! \s* $ ) | $ )""",
    re.IGNORECASE | re.VERBOSE,
)


def _entries(text: str) -> Iterator[tuple[str | None, pa.DataType]]:
    """Yield each type with its column, or with None if it is the type of all other columns."""
    at = 0
    while at < len(text) or not at:
        if (found := _ENTRY.match(text, at)) is None:
            raise _refused(text)
        at = found.end()
        quoted, plain = found["quoted"], found["plain"]
        yield plain if quoted is None else quoted.replace('""', '"'), _decimal_type(found, text)


def _decimal_type(found: re.Match[str], text: str) -> pa.DataType:
    if found["text"] is not None:
        return pa.string()
    digits, scale = int(found["digits"]), int(found["scale"])
    if not 0 < digits <= _MAX_DIGITS or scale > digits:
        raise _refused(text)
    return pa.decimal128(digits, scale)


def _refused(text: str) -> ConfigurationError:
    remedy = (
        f"give 'string', or 'decimal(p, s)' with p up to {_MAX_DIGITS} and s up to p, for all "
        "columns, or for each of some columns as in 'price: decimal(18, 2), tax: decimal(9, 4)'"
    )
    return ConfigurationError("decimal_type", text, remedy)


def _check_columns(names: Iterable[str], base: TableSchema) -> None:
    """Raise ConfigurationError for a name of no column that contains decimals."""
    known = [column.name for column in decimal_columns(base)]
    for name in names:
        if name not in known:
            there = f"only in {', '.join(known)}" if known else "in none"
            remedy = (
                f"of the columns read from {base.name}, numbers of the types decimal and varint "
                f"are {there}"
            )
            raise ConfigurationError("decimal_type", name, remedy)


def decimals_as_text(base: TableSchema, decimal_type: str) -> list[str]:
    """Return the columns whose numbers become text because no type was chosen for them."""
    chosen = {column for column, _ in _entries(decimal_type)}
    if None in chosen and decimal_type != DEFAULT:
        return []
    return [column.name for column in decimal_columns(base) if column.name not in chosen]


def decimal_columns(base: TableSchema) -> list[Column]:
    """Return the columns that contain numbers of the types decimal and varint."""
    return [
        column
        for column in base.columns
        if any(isinstance(part, Native) and part.name in _UNBOUNDED for part in parts(column.type))
    ]

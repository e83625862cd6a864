"""Arrow types of values in a DataFrame: of decimals as chosen, and of timestamps as in Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from cdc_reader.changes.arrays import NONE, pick
from cdc_reader.changes.frames.commit_time import TIMESTAMP
from cdc_reader.changes.frames.decimals import DoesNotFitError, decimals
from cdc_reader.changes.json import cell_to_json
from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import CqlType, MapType, Native, TupleType, UserType, children
from cdc_reader.decoding import arrow_type
from cdc_reader.decoding.arrow_type import ARROW, NATIVE
from cdc_reader.decoding.faults import Fault, failing, is_tolerant, with_faults
from cdc_reader.errors import CdcError, ColumnDecodeError, ConfigurationError

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

    @classmethod
    def parse(cls, decimal_type: str) -> ValueTypes:
        """Parse the type of decimals: ``string`` or ``decimal(p, s)``.

        Raises ConfigurationError for any other text.
        """
        return cls(_decimal_type(decimal_type))

    def of(self, cql_type: CqlType) -> pa.DataType:
        """Return the Arrow type of a column of `cql_type`."""
        return evolve(ARROW, native=self._native)(cql_type)

    def _native(self, cql_type: Native) -> pa.DataType:
        if cql_type.name == _TIMESTAMP:
            return self.timestamp
        return self.decimal if cql_type.name in _UNBOUNDED else NATIVE[cql_type.name]

    def fields(self, columns: Iterable[Column]) -> list[pa.Field]:
        """Return the fields of a batch of `columns`."""
        return [pa.field(column.name, self.of(column.type)) for column in columns]

    def converter(self, columns: Iterable[Column]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """Return a function that converts the kernel's batches to the chosen types.

        A batch may have some of `columns`, and others. The function raises ConfigurationError if a
        number does not fit, and ColumnDecodeError if a timestamp does not. In tolerant batches, the
        cell becomes null instead, and a fault is recorded.
        """
        others = [each for each in columns if self.of(each.type) != arrow_type(each.type)]
        return partial(self._with, others=others)

    def _with(self, batch: pa.RecordBatch, others: Iterable[Column]) -> pa.RecordBatch:
        """Return the batch with those of the given columns that it has converted."""
        for column in others:
            if (place := batch.schema.get_field_index(column.name)) < 0:
                continue
            try:
                values = self._converted(batch.column(place), column.type)
            except DoesNotFitError as error:
                if not is_tolerant(batch):
                    raise self._refusal(column, error) from None
                batch = self._without_misfits(batch, place, column, error)
                values = self._converted(batch.column(place), column.type)
            batch = batch.set_column(place, column.name, values)
        return batch

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


def _decimal_type(text: str) -> pa.DataType:
    if text.lower() == "string":
        return pa.string()
    found = re.fullmatch(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", text.lower())
    if not found or not 0 < int(found[1]) <= _MAX_DIGITS or int(found[2]) > int(found[1]):
        remedy = f"give 'string', or 'decimal(p, s)' with p up to {_MAX_DIGITS} and s up to p"
        raise ConfigurationError("decimal_type", text, remedy)
    return pa.decimal128(int(found[1]), int(found[2]))

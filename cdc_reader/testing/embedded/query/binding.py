"""Bound values: as many as there are markers, each valid for its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.codec.validation import validator
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.query.options import Value
from cdc_reader.testing.embedded.query.result import ColumnSpec

Values = Sequence[Value] | Mapping[str, Value]


def bind(columns: tuple[ColumnSpec, ...], values: Values) -> tuple[Value, ...]:
    """The values in order of the markers, checked; InvalidRequest as the server words it."""
    given = _named(columns, values) if isinstance(values, Mapping) else tuple(values)
    if len(given) != len(columns):
        raise InvalidRequest(
            f"Invalid amount of bind variables: expected {len(columns)} received {len(given)}"
        )
    return tuple(_checked(column, value) for column, value in zip(columns, given, strict=True))


def _named(columns: tuple[ColumnSpec, ...], values: Mapping[str, Value]) -> tuple[Value, ...]:
    missing = [column.name for column in columns if column.name not in values]
    if missing:
        raise InvalidRequest(f"Missing value for bind variable {missing[0]}")
    return tuple(values[column.name] for column in columns)


def _checked(column: ColumnSpec, value: Value) -> Value:
    if not isinstance(value, bytes):
        return value
    try:
        return validator(column.type)(value)
    except MarshalError as error:
        raise InvalidRequest(f"Exception while binding column {column.name}: {error}") from None

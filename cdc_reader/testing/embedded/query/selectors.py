"""Compiles the result columns of SELECT."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from cdc_reader.cql.types import CqlType, Native
from cdc_reader.testing.embedded.codec.token import token_of
from cdc_reader.testing.embedded.errors import InvalidRequest, InvalidSyntax
from cdc_reader.testing.embedded.grammar.ast import Selected
from cdc_reader.testing.embedded.grammar.selectors import (
    CallSelector,
    CastSelector,
    ColumnSelector,
    ElementSelector,
    FieldSelector,
    MetadataSelector,
    Selector,
)
from cdc_reader.testing.embedded.grammar.terms import Constant, Term
from cdc_reader.testing.embedded.query.aggregates import AGGREGATES, Aggregate
from cdc_reader.testing.embedded.query.cast import cast
from cdc_reader.testing.embedded.query.elements import (
    RowView,
    element_reader,
    field_value,
    user_field,
)
from cdc_reader.testing.embedded.query.functions import Function, overloads
from cdc_reader.testing.embedded.query.json_output import json_writer, row_writer
from cdc_reader.testing.embedded.query.model import Execution, Scope
from cdc_reader.testing.embedded.query.terms import assignable, no_signature
from cdc_reader.testing.embedded.schema.table import Column, Kind
from cdc_reader.testing.embedded.storage.cell import Cell

Compute = Callable[[RowView, Execution], bytes | None]


@frozen
class Output:
    """A result column: its name, its type, and the function that computes its value from a row.

    `column` is set for a plain column of the table. With an `aggregate`, the value is the aggregate
    of `compute` over all rows.
    """

    name: str
    type: CqlType
    compute: Compute
    column: Column | None = None
    aggregate: Aggregate | None = None
    columns: tuple[Column, ...] = ()


def outputs(selected: Sequence[Selected], scope: Scope) -> tuple[Output, ...]:
    """Return the result columns of a SELECT list; all columns for ``*``."""
    if not selected:
        return tuple(_column(column) for column in scope.table.select_order)
    made = ((_output(each.selector, scope), each.alias) for each in selected)
    return tuple(evolve(output, name=alias) if alias else output for output, alias in made)


def json_output(outputs: Sequence[Output]) -> Output:
    """Return the single result column of SELECT JSON, which combines `outputs`."""
    if any(output.aggregate for output in outputs):
        raise InvalidRequest("SELECT JSON with aggregates is not supported by this server")
    write = row_writer([(output.name, output.type) for output in outputs])

    def compute(view: RowView, execution: Execution) -> bytes:
        return write([output.compute(view, execution) for output in outputs]).encode()

    columns = tuple(column for output in outputs for column in output.columns)
    return Output("[json]", Native("text"), compute, columns=columns)


def _output(selector: Selector, scope: Scope) -> Output:
    match selector:
        case ColumnSelector(name):
            return _column(_named(name, scope))
        case MetadataSelector(function, name):
            return _metadata(function, _named(name, scope), scope)
        case FieldSelector(inner, field):
            return _field(_output(inner, scope), field)
        case ElementSelector(name, key):
            return _element(_named(name, scope), key, scope)
        case CastSelector(inner, text):
            return _cast(_output(inner, scope), scope.type(text), scope)
        case CallSelector(name, arguments):
            return _call(name, arguments, scope)


def _named(name: str, scope: Scope) -> Column:
    return scope.column(name, "Undefined name {} in selection clause")


def _column(column: Column) -> Output:
    return Output(
        column.name, column.type, lambda view, _: view.value(column), column, columns=(column,)
    )


def _metadata(function: str, column: Column, scope: Scope) -> Output:
    if column.is_key and scope.catalog.profile.new_words:
        kind = "partition" if column.kind is Kind.PARTITION_KEY else "clustering"
        raise InvalidRequest(f"{function.upper()} is not legal on {kind} key component "
                             f"{column.name}")  # fmt: skip
    if column.is_key:
        written = "writeTime" if function == "writetime" else function
        raise InvalidRequest(
            f"Cannot use selection function {written} on PRIMARY KEY part "
            f"{column.name.encode().hex()}"
        )
    if column.is_multi_cell:
        raise InvalidRequest(f"Cannot use selection function {function} on collections")

    def compute(view: RowView, _: Execution) -> bytes | None:
        cell = view.live(column)
        if not isinstance(cell, Cell):
            return None
        if function == "writetime":
            return cell.timestamp.to_bytes(8, "big", signed=True)
        return (cell.expiry - view.now).to_bytes(4, "big") if cell.ttl else None

    returns = Native("bigint" if function == "writetime" else "int")
    return Output(f"{function}({column.name})", returns, compute, columns=(column,))


def _field(source: Output, field: str) -> Output:
    if source.aggregate is not None:
        raise InvalidRequest("A field of an aggregate is not supported by this server")
    index, of_type = user_field(source.type, field, source.name)

    def compute(view: RowView, execution: Execution) -> bytes | None:
        return field_value(source.compute(view, execution), index)

    return Output(f"{source.name}.{field}", of_type, compute, columns=source.columns)


def _element(column: Column, key: Term, scope: Scope) -> Output:
    if not scope.catalog.profile.vectors:
        raise InvalidSyntax("line 1:0 no viable alternative at input '['")
    read, spec = element_reader(column, key, scope)
    label = key.text if isinstance(key, Constant) else "?"
    return Output(f"{column.name}[{label}]", spec.type, read, columns=(column,))


def _cast(source: Output, target: CqlType, scope: Scope) -> Output:
    name = f"system.castas{target}({source.name})"
    if scope.catalog.profile.new_words:
        name = f"cast({source.name} as {target})"
    return _applied(name, target, cast(source.type, target), source)


def _applied(
    name: str, returns: CqlType, function: Callable[[bytes], bytes], source: Output
) -> Output:
    """Return `source` with `function` applied to its non-null values, or to its aggregate."""

    def compute(view: RowView, execution: Execution) -> bytes | None:
        value = source.compute(view, execution)
        return None if value is None else function(value)

    if source.aggregate is None:
        return Output(name, returns, compute, columns=source.columns)
    combine = source.aggregate.combine

    def combined(values: list[bytes]) -> bytes | None:
        value = combine(values)
        return None if value is None else function(value)

    aggregate = Aggregate(returns, combined)
    return Output(name, returns, source.compute, aggregate=aggregate, columns=source.columns)


def _call(name: str, arguments: tuple[Selector, ...], scope: Scope) -> Output:
    if name == "token":
        return _token(arguments, scope)
    if name in AGGREGATES:
        return _aggregate(name, arguments, scope)
    parts = [_output(argument, scope) for argument in arguments]
    if name == "tojson" and len(parts) == 1:
        write = json_writer(parts[0].type)
        return _applied(f"system.tojson({parts[0].name})", Native("text"),
                        lambda value: write(value).encode(), parts[0])  # fmt: skip
    function = _choose(name, parts)
    if len(parts) == 1:
        return _applied(
            f"system.{name}({parts[0].name})", function.returns, function.body, parts[0]
        )
    return Output(
        f"system.{name}()", function.returns, lambda _, execution: function.call(execution, [])
    )


def _choose(name: str, parts: Sequence[Output]) -> Function:
    for function in overloads(name):
        wanted = function.arguments
        if len(wanted) == len(parts) and all(
            assignable(part.type, of_type) for part, of_type in zip(parts, wanted, strict=True)
        ):
            return function
    raise no_signature(name)


def _token(arguments: tuple[Selector, ...], scope: Scope) -> Output:
    table = scope.table
    names = tuple(column.name for column in table.partition_key)
    if tuple(a.name for a in arguments if isinstance(a, ColumnSelector)) != names:
        raise InvalidRequest(
            f"The token function arguments must be in the partition key order: {', '.join(names)}"
        )

    def compute(view: RowView, _: Execution) -> bytes:
        return token_of(table.partitioner, view.key).to_bytes(8, "big", signed=True)

    name = f"system.token({', '.join(names)})"
    return Output(name, Native("bigint"), compute, columns=table.partition_key)


def _aggregate(name: str, arguments: tuple[Selector, ...], scope: Scope) -> Output:
    if len(arguments) > 1:
        raise InvalidRequest(f"Invalid call to function system.{name}: expected one argument")
    if not arguments:
        if name != "count":
            raise InvalidRequest(f"Invalid call to function system.{name}: expected a column")
        return Output(
            "count", Native("bigint"), lambda _view, _: b"", aggregate=AGGREGATES[name](None)
        )
    source = _output(arguments[0], scope)
    if source.aggregate is not None:
        raise InvalidRequest("SELECT clause contains aggeregation of an aggregation")
    aggregate = AGGREGATES[name](source.type)
    return Output(
        f"system.{name}({source.name})",
        aggregate.returns,
        source.compute,
        aggregate=aggregate,
        columns=source.columns,
    )

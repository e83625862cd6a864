"""What SELECT computes from each row: a name, a type, a function of the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from cdc_reader.cql_type import CqlType, MapType, Native, SetType, UserType, freeze
from cdc_reader.testing.embedded.codec.token import token_of
from cdc_reader.testing.embedded.codec.validation import read_fields
from cdc_reader.testing.embedded.errors import InvalidRequest
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
from cdc_reader.testing.embedded.grammar.terms import CallTerm, Constant, Term
from cdc_reader.testing.embedded.query.aggregates import AGGREGATES, Aggregate
from cdc_reader.testing.embedded.query.cast import cast
from cdc_reader.testing.embedded.query.elements import map_entries
from cdc_reader.testing.embedded.query.execution import Evaluate, Execution
from cdc_reader.testing.embedded.query.functions import Function, overloads
from cdc_reader.testing.embedded.query.row_view import RowView
from cdc_reader.testing.embedded.query.scope import Scope
from cdc_reader.testing.embedded.query.terms import assignable, compile_term
from cdc_reader.testing.embedded.query.values import given
from cdc_reader.testing.embedded.schema.table import Column
from cdc_reader.testing.embedded.storage.cell import Cell

Compute = Callable[[RowView, Execution], bytes | None]


@frozen
class Output:
    """One result column. `column` is set if it is simply a column of the table.

    With an `aggregate` the value of the result is the aggregate of `compute` over all rows.
    """

    name: str
    type: CqlType
    compute: Compute
    column: Column | None = None
    aggregate: Aggregate | None = None
    columns: tuple[Column, ...] = ()


def outputs(selected: Sequence[Selected], scope: Scope) -> tuple[Output, ...]:
    """The result columns of a SELECT list; every column for ``*``."""
    if not selected:
        return tuple(_column(column) for column in scope.table.select_order)
    return tuple(_aliased(_output(each.selector, scope), each.alias) for each in selected)


def _aliased(output: Output, alias: str | None) -> Output:
    return output if alias is None else evolve(output, name=alias)


def _output(selector: Selector, scope: Scope) -> Output:
    match selector:
        case ColumnSelector(name):
            return _column(_named(name, scope))
        case MetadataSelector(function, name):
            return _metadata(function, _named(name, scope))
        case FieldSelector(inner, field):
            return _field(_output(inner, scope), field)
        case ElementSelector(name, key):
            return _element(_named(name, scope), key, scope)
        case CastSelector(inner, text):
            return _cast(_output(inner, scope), scope.type(text))
        case CallSelector(name, arguments):
            return _call(name, arguments, scope)


def _named(name: str, scope: Scope) -> Column:
    return scope.column(name, "Undefined name {} in selection clause")


def _column(column: Column) -> Output:
    return Output(
        column.name,
        column.type,
        lambda view, _: view.value(column),
        column=column,
        columns=(column,),
    )


def _metadata(function: str, column: Column) -> Output:
    if column.is_key:
        raise InvalidRequest(f"Cannot use selection function {function} on PRIMARY KEY part "
                             f"{column.name}")  # fmt: skip
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
    names = [n for n, _ in source.type.fields] if isinstance(source.type, UserType) else []
    if not isinstance(source.type, UserType) or field not in names:
        raise InvalidRequest(f"{source.name} of type {source.type} has no field {field}")
    index, of_type = names.index(field), source.type.fields[names.index(field)][1]

    def compute(view: RowView, execution: Execution) -> bytes | None:
        value = source.compute(view, execution)
        cells = [] if value is None else read_fields(value)
        return cells[index] if index < len(cells) else None

    return Output(f"{source.name}.{field}", of_type, compute, columns=source.columns)


def _element(column: Column, key: Term, scope: Scope) -> Output:
    match column.type:
        case MapType(key_type, of_type):
            pass
        case SetType(key_type):
            of_type = key_type
        case _:
            raise InvalidRequest(f"Invalid element selection: {column.name} is not a map or set")
    spec = scope.spec(f"key({column.name})", freeze(key_type))
    wanted = compile_term(key, spec, scope)

    def compute(view: RowView, execution: Execution) -> bytes | None:
        value = view.value(column)
        if value is None:
            return None
        entries = map_entries(value) if isinstance(column.type, MapType) else []
        return dict(entries).get(given(wanted, spec, execution) or b"")

    label = key.text if isinstance(key, Constant) else "?"
    return Output(f"{column.name}[{label}]", of_type, compute, columns=(column,))


def _cast(source: Output, target: CqlType) -> Output:
    convert = cast(source.type, target)

    def compute(view: RowView, execution: Execution) -> bytes | None:
        value = source.compute(view, execution)
        return None if value is None else convert(value)

    return Output(f"system.castas{target}({source.name})", target, compute, columns=source.columns)


def _call(name: str, arguments: tuple[Selector | Term, ...], scope: Scope) -> Output:
    if name == "token":
        return _token(arguments, scope)
    if name in AGGREGATES:
        return _aggregate(name, arguments, scope)
    function, parts = _choose(name, arguments, scope)
    names = ", ".join(part.name for part in parts)

    def compute(view: RowView, execution: Execution) -> bytes | None:
        return function.call(execution, [part.compute(view, execution) for part in parts])

    columns = tuple(column for part in parts for column in part.columns)
    return Output(f"system.{name}({names})", function.returns, compute, columns=columns)


def _choose(
    name: str, arguments: tuple[Selector | Term, ...], scope: Scope
) -> tuple[Function, list[Output]]:
    for function in overloads(name):
        if len(function.arguments) != len(arguments):
            continue
        parts = [
            _argument(argument, function, index, scope) for index, argument in enumerate(arguments)
        ]
        if all(
            assignable(part.type, wanted)
            for part, wanted in zip(parts, function.arguments, strict=True)
        ):
            return function, parts
    raise InvalidRequest(
        f"Invalid call to function system.{name}, none of its type signatures match"
    )


def _argument(argument: Selector | Term, function: Function, index: int, scope: Scope) -> Output:
    if isinstance(argument, Selector):
        return _output(argument, scope)
    spec = scope.spec(f"arg{index}(system.{function.name})", function.arguments[index])
    return _constant(compile_term(argument, spec, scope), spec.type)


def _constant(evaluate: Evaluate, of_type: CqlType) -> Output:
    def compute(_: RowView, execution: Execution) -> bytes | None:
        value = evaluate(execution)
        return value if isinstance(value, bytes) else None

    return Output("(constant)", of_type, compute)


def _token(arguments: tuple[Selector | Term, ...], scope: Scope) -> Output:
    table = scope.table
    names = tuple(column.name for column in table.partition_key)
    if tuple(a.name for a in arguments if isinstance(a, ColumnSelector | CallTerm)) != names:
        raise InvalidRequest(
            f"The token function arguments must be in the partition key order: {', '.join(names)}"
        )

    def compute(view: RowView, _: Execution) -> bytes:
        return token_of(table.partitioner, view.key).to_bytes(8, "big", signed=True)

    return Output(f"system.token({', '.join(names)})", Native("bigint"), compute)


def _aggregate(name: str, arguments: tuple[Selector | Term, ...], scope: Scope) -> Output:
    if len(arguments) > 1:
        raise InvalidRequest(f"Invalid call to function system.{name}: expected one argument")
    if not arguments or not isinstance(arguments[0], Selector):
        if name != "count":
            raise InvalidRequest(f"Invalid call to function system.{name}: expected a column")
        return Output(
            "count", Native("bigint"), lambda _view, _: b"", aggregate=AGGREGATES[name](None)
        )
    source = _output(arguments[0], scope)
    aggregate = AGGREGATES[name](source.type)
    return Output(
        f"system.{name}({source.name})",
        aggregate.returns,
        source.compute,
        aggregate=aggregate,
        columns=source.columns,
    )

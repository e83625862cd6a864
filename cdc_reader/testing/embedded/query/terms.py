"""Terms made ready for execution: checked against the type they must have."""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader.cql_type import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
    freeze,
)
from cdc_reader.testing.embedded.codec import constant
from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.codec.order import join_cells, sort_key
from cdc_reader.testing.embedded.codec.validation import list_value, map_value, set_value
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.terms import (
    CallTerm,
    Constant,
    HintTerm,
    ListTerm,
    MapTerm,
    Marker,
    Null,
    SetTerm,
    Term,
    TupleTerm,
    UserTypeTerm,
)
from cdc_reader.testing.embedded.query.execution import Evaluate, Execution
from cdc_reader.testing.embedded.query.functions import Function, overloads
from cdc_reader.testing.embedded.query.options import Unset, Value
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.query.scope import Scope


def compile_term(term: Term, receiver: ColumnSpec, scope: Scope) -> Evaluate:
    """A function that gives the term's value; InvalidRequest if it cannot be the receiver's."""
    match term:
        case Null():
            return lambda _: None
        case Marker():
            return scope.marker(term, receiver)
        case Constant():
            return _constant(term, receiver)
        case CallTerm():
            return _call(term, receiver, scope)
        case HintTerm(text, inner):
            return _hinted(scope.type(text), inner, receiver, scope)
        case _:
            return _literal(term, receiver, scope)


def element_spec(label: str, receiver: ColumnSpec, element: CqlType) -> ColumnSpec:
    """The variable for a part of `receiver`, named as the server names it: ``value(m)``."""
    return ColumnSpec(receiver.keyspace, receiver.table, f"{label}({receiver.name})", element)


def _constant(term: Constant, receiver: ColumnSpec) -> Evaluate:
    if not isinstance(receiver.type, Native) or not constant.accepts(term, receiver.type):
        raise InvalidRequest(
            f'Invalid {term.kind.value} constant ({term.text}) for "{receiver.name}" '
            f"of type {receiver.type}"
        )
    try:
        value = constant.encode(term, receiver.type)
    except MarshalError as error:
        raise InvalidRequest(str(error)) from None
    return lambda _: value


def _hinted(hint: CqlType, term: Term, receiver: ColumnSpec, scope: Scope) -> Evaluate:
    if not assignable(hint, receiver.type):
        raise InvalidRequest(
            f"Cannot assign value ({hint}) to {receiver.name} of type {receiver.type}"
        )
    return compile_term(term, receiver, scope)


def _literal(
    term: ListTerm | SetTerm | MapTerm | UserTypeTerm | TupleTerm,
    receiver: ColumnSpec,
    scope: Scope,
) -> Evaluate:
    made = _collection(term, receiver, scope) or _record(term, receiver, scope)
    if made is None:
        raise InvalidRequest(
            f"Invalid {_WORDS[type(term)]} literal for {receiver.name} of type {receiver.type}"
        )
    return made


def _collection(term: Term, receiver: ColumnSpec, scope: Scope) -> Evaluate | None:
    match receiver.type, term:
        case ListType(element), ListTerm(terms):
            return _list(element, terms, receiver, scope)
        case SetType(element), SetTerm(terms):
            return _set(element, terms, receiver, scope)
        case MapType(), SetTerm(()):
            return lambda _: b"\0\0\0\0"
        case MapType(key, value), MapTerm(entries):
            return _map((key, value), entries, receiver, scope)
    return None


def _record(term: Term, receiver: ColumnSpec, scope: Scope) -> Evaluate | None:
    """A value of fixed parts: UDT, tuple, vector."""
    match receiver.type, term:
        case UserType(fields=fields), UserTypeTerm(given):
            return _user_type(fields, dict(given), receiver, scope)
        case UserType(fields=fields), SetTerm(()):
            return _user_type(fields, {}, receiver, scope)
        case TupleType(types), TupleTerm(terms) if len(terms) <= len(types):
            return _tuple(types, terms, receiver, scope)
        case VectorType(element, dimension), ListTerm(terms) if len(terms) == dimension:
            return _vector(element, terms, receiver, scope)
    return None


_WORDS: dict[type, str] = {
    ListTerm: "list",
    SetTerm: "set",
    MapTerm: "map",
    UserTypeTerm: "user type",
    TupleTerm: "tuple",
}


def _list(
    element: CqlType, terms: tuple[Term, ...], receiver: ColumnSpec, scope: Scope
) -> Evaluate:
    parts = _parts("value", freeze(element), terms, receiver, scope)
    return lambda execution: list_value([whole(part(execution)) for part in parts])


def _vector(
    element: CqlType, terms: tuple[Term, ...], receiver: ColumnSpec, scope: Scope
) -> Evaluate:
    parts = _parts("value", element, terms, receiver, scope)
    return lambda execution: b"".join(whole(part(execution)) for part in parts)


def _set(element: CqlType, terms: tuple[Term, ...], receiver: ColumnSpec, scope: Scope) -> Evaluate:
    parts = _parts("value", freeze(element), terms, receiver, scope)
    order = sort_key(element)
    return lambda execution: set_value({whole(part(execution)) for part in parts}, order)


def _map(
    types: tuple[CqlType, CqlType],
    entries: tuple[tuple[Term, Term], ...],
    receiver: ColumnSpec,
    scope: Scope,
) -> Evaluate:
    keys = _parts("key", freeze(types[0]), tuple(k for k, _ in entries), receiver, scope)
    values = _parts("value", freeze(types[1]), tuple(v for _, v in entries), receiver, scope)
    order = sort_key(types[0])

    def evaluate(execution: Execution) -> bytes:
        pairs = zip(keys, values, strict=True)
        return map_value({whole(k(execution)): whole(v(execution)) for k, v in pairs}, order)

    return evaluate


def _user_type(
    fields: tuple[tuple[str, CqlType], ...],
    given: dict[str, Term],
    receiver: ColumnSpec,
    scope: Scope,
) -> Evaluate:
    if unknown := given.keys() - dict(fields).keys():
        raise InvalidRequest(
            f"Unknown field '{min(unknown)}' in value of user defined type {receiver.type}"
        )
    parts = [
        compile_term(given.get(name, Null()), _component(receiver, name, freeze(of_type)), scope)
        for name, of_type in fields
    ]
    return _composite(parts)


def _tuple(
    types: tuple[CqlType, ...], terms: tuple[Term, ...], receiver: ColumnSpec, scope: Scope
) -> Evaluate:
    parts = [
        compile_term(term, _component(receiver, str(index), freeze(of_type)), scope)
        for index, (term, of_type) in enumerate(zip(terms, types, strict=False))
    ]
    return _composite(parts)


def _composite(parts: list[Evaluate]) -> Callable[[Execution], bytes]:
    return lambda execution: join_cells([_set_value(part(execution)) for part in parts])


def _component(receiver: ColumnSpec, name: str, of_type: CqlType) -> ColumnSpec:
    return ColumnSpec(receiver.keyspace, receiver.table, f"{receiver.name}.{name}", of_type)


def _parts(
    label: str,
    of_type: CqlType,
    terms: tuple[Term, ...],
    receiver: ColumnSpec,
    scope: Scope,
) -> list[Evaluate]:
    spec = element_spec(label, receiver, of_type)
    return [compile_term(term, spec, scope) for term in terms]


def whole(value: Value) -> bytes:
    """An element of a collection: never null, never unset."""
    if value is None:
        raise InvalidRequest("null is not supported inside collections")
    if isinstance(value, Unset):
        raise InvalidRequest("unset value is not supported inside collections")
    return value


def _set_value(value: Value) -> bytes | None:
    if isinstance(value, Unset):
        raise InvalidRequest("unset value is not supported inside tuples and user types")
    return value


# Functions


def _call(term: CallTerm, receiver: ColumnSpec, scope: Scope) -> Evaluate:
    candidates = [f for f in overloads(term.name) if assignable(f.returns, receiver.type)]
    if not candidates:
        raise InvalidRequest(
            f"Type error: cannot assign result of function system.{term.name} "
            f"(type {overloads(term.name)[0].returns}) to {receiver.name} (type {receiver.type})"
        )
    function, arguments = choose(candidates, term, scope)
    return lambda execution: function.call(execution, [part(execution) for part in arguments])


def choose(
    candidates: list[Function], term: CallTerm, scope: Scope
) -> tuple[Function, list[Evaluate]]:
    """The first function that takes the arguments, with them."""
    refusal = InvalidRequest(
        f"Invalid call to function system.{term.name}, none of its type signatures match"
    )
    for function in candidates:
        if len(function.arguments) != len(term.arguments):
            continue
        try:
            return function, [
                compile_term(argument, _argument(function, index, scope), scope)
                for index, argument in enumerate(term.arguments)
            ]
        except InvalidRequest as error:
            refusal = error if len(candidates) == 1 else refusal
    raise refusal


def _argument(function: Function, index: int, scope: Scope) -> ColumnSpec:
    return scope.spec(f"arg{index}(system.{function.name})", function.arguments[index])


def assignable(found: CqlType, wanted: CqlType) -> bool:
    """Whether a value of one type may stand where another is wanted, its bytes unchanged."""
    compatible = {("timeuuid", "uuid"), ("ascii", "text")}
    names = (str(found), str(wanted))
    return freeze(found) == freeze(wanted) or names in compatible or names[1] == "blob"

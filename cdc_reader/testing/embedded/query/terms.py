"""Compiles terms for execution, checking them against the required type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import ge, gt, le, lt
from typing import Any

from attrs import evolve

from cdc_reader.cql.types import (
    CqlType,
    ListType,
    MapType,
    Native,
    SetType,
    TupleType,
    UserType,
    VectorType,
    children,
    freeze,
    parts,
)
from cdc_reader.testing.embedded.codec import constant
from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.codec.native import decode
from cdc_reader.testing.embedded.codec.order import distinct, join_cells, sort_key
from cdc_reader.testing.embedded.codec.validation import (
    COMPATIBLE,
    list_value,
    map_value,
    read_cells,
    set_value,
    vector_value,
)
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import Relation
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
from cdc_reader.testing.embedded.query.functions import Function, overloads
from cdc_reader.testing.embedded.query.model import (
    MAX_KEY,
    Evaluate,
    Execution,
    Scope,
    Unset,
    Value,
)
from cdc_reader.testing.embedded.query.result import ColumnSpec


def compile_term(term: Term, receiver: ColumnSpec, scope: Scope) -> Evaluate:
    """Return a function that evaluates the term; raise InvalidRequest if `receiver` rejects it."""
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


def compile_optional(term: Term | None, name: str, of_type: str, scope: Scope) -> Evaluate | None:
    """Compile an optional term, such as LIMIT, with the name and type of its bind variable."""
    return None if term is None else compile_term(term, scope.spec(name, Native(of_type)), scope)


def _constant(term: Constant, receiver: ColumnSpec) -> Evaluate:
    if not isinstance(receiver.type, Native) or not constant.accepts(term, receiver.type):
        raise InvalidRequest(
            f'Invalid {term.kind.value} constant ({term.text}) for "{receiver.name}" '
            f"of type {receiver.type}"
        )
    if receiver.type.name == "timestamp" and term.text.lower() == "now":
        return lambda execution: (execution.now_us // 1000).to_bytes(8, "big", signed=True)
    try:
        value = constant.encode(term, receiver.type)
    except MarshalError as error:
        raise InvalidRequest(str(error)) from None
    return lambda _: value


def _hinted(hint: CqlType, term: Term, receiver: ColumnSpec, scope: Scope) -> Evaluate:
    if isinstance(term, Constant) and not constant.accepts(term, hint):
        raise InvalidRequest(f"Cannot cast value {term.text} to type {hint}")
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
    match receiver.type, term:
        case (ListType() | VectorType() | SetType(), _):
            made = _sequence(receiver.type, term, receiver, scope)
        case MapType(), SetTerm(()):
            made = _map(receiver.type, (), receiver, scope)
        case MapType(), MapTerm(entries):
            made = _map(receiver.type, entries, receiver, scope)
        case UserType(), UserTypeTerm(fields):
            made = _user_type(receiver.type, dict(reversed(fields)), receiver, scope)
        case UserType(), SetTerm(()):
            made = _user_type(receiver.type, {}, receiver, scope)
        case (UserType() | TupleType(), TupleTerm(terms)):
            made = _tuple(children(receiver.type), terms, receiver, scope)
        case _:
            made = None
    if made is None:
        raise InvalidRequest(
            f"Invalid {_WORDS[type(term)]} literal for {receiver.name} of type {receiver.type}"
        )
    return made


_WORDS: dict[type, str] = {
    ListTerm: "list",
    SetTerm: "set",
    MapTerm: "map",
    UserTypeTerm: "user type",
    TupleTerm: "tuple",
}


def _sequence(
    of_type: ListType | SetType | VectorType, term: Term, receiver: ColumnSpec, scope: Scope
) -> Evaluate | None:
    """Compile a list, set or vector; return None if the literal has the wrong kind or size."""
    if not isinstance(term, SetTerm if isinstance(of_type, SetType) else ListTerm):
        return None
    element, order = of_type.element, sort_key(of_type.element)
    parts = _parts("value", freeze(element), term.elements, receiver, scope)
    match of_type:
        case ListType():
            return lambda execution: list_value([whole(part(execution)) for part in parts])
        case SetType():
            keys = [_key("Set value", "value", part) for part in parts]
            return lambda execution: set_value([key(execution) for key in keys], order)
        case VectorType(_, dimension) if len(parts) == dimension:
            return lambda execution: vector_value(
                [whole(part(execution)) for part in parts], element
            )
    return None


def _map(
    of_type: MapType, entries: tuple[tuple[Term, Term], ...], receiver: ColumnSpec, scope: Scope
) -> Evaluate:
    parts = _parts("key", freeze(of_type.key), [k for k, _ in entries], receiver, scope)
    keys = [_key("Map key", "keys", part) for part in parts]
    values = _parts("value", freeze(of_type.value), [v for _, v in entries], receiver, scope)
    order = sort_key(of_type.key)

    def evaluate(execution: Execution) -> bytes:
        pairs = zip(keys, values, strict=True)
        return map_value([(k(execution), whole(v(execution))) for k, v in pairs], order)

    return evaluate


def _key(what: str, unit: str, part: Evaluate) -> Callable[[Execution], bytes]:
    """Return a function that evaluates a map's key or a set's element, and checks its length.

    The error message contains the words `what` and `unit`.
    """

    def evaluate(execution: Execution) -> bytes:
        value = whole(part(execution))
        if len(value) > MAX_KEY:
            raise InvalidRequest(
                f"{what} is too long. {what}s are limited to {MAX_KEY} bytes but {len(value)} "
                f"bytes {unit} provided"
            )
        return value

    return evaluate


def _user_type(
    of_type: UserType, given: dict[str, Term], receiver: ColumnSpec, scope: Scope
) -> Evaluate:
    if unknown := given.keys() - dict(of_type.fields).keys():
        name = str(receiver.type).removeprefix("frozen<").removesuffix(">")
        raise InvalidRequest(f"Unknown field '{min(unknown)}' in value of user defined type {name}")
    parts = [
        compile_term(given.get(name, Null()), _component(receiver, name, freeze(field)), scope)
        for name, field in of_type.fields
    ]
    return _composite(parts)


def _tuple(
    types: tuple[CqlType, ...], terms: tuple[Term, ...], receiver: ColumnSpec, scope: Scope
) -> Evaluate:
    refusal = f"Invalid tuple literal for {receiver.name}: "
    if len(terms) > len(types):
        raise InvalidRequest(
            f"{refusal}too many elements. Type {receiver.type} expects {len(types)} but got "
            f"{len(terms)}"
        )
    parts = []
    for index, (term, of_type) in enumerate(zip(terms, types, strict=False)):
        if isinstance(term, Constant) and not (
            isinstance(of_type, Native) and constant.accepts(term, of_type)
        ):
            raise InvalidRequest(f"{refusal}component {index} is not of type {of_type}")
        parts.append(compile_term(term, _component(receiver, str(index), freeze(of_type)), scope))
    return _composite(parts)


def _composite(parts: list[Evaluate]) -> Callable[[Execution], bytes]:
    return lambda execution: join_cells([_set_value(part(execution)) for part in parts])


def _component(receiver: ColumnSpec, name: str, of_type: CqlType) -> ColumnSpec:
    return evolve(receiver, name=f"{receiver.name}.{name}", type=of_type)


def _parts(
    label: str, of_type: CqlType, terms: Sequence[Term], receiver: ColumnSpec, scope: Scope
) -> list[Evaluate]:
    spec = evolve(receiver, name=f"{label}({receiver.name})", type=of_type)
    return [compile_term(term, spec, scope) for term in terms]


def whole(value: Value) -> bytes:
    """Return an element of a collection; raise InvalidRequest if it is null or unset."""
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
    """Return the first function that accepts the term's arguments, and the compiled arguments."""
    refusal = no_signature(term.name)
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


def no_signature(name: str) -> InvalidRequest:
    """Return the error for a call whose arguments match no function of that name."""
    known = sorted(
        f"system.{name} : ({', '.join(map(str, each.arguments))}) -> {each.returns}"
        for each in overloads(name)
    )
    return InvalidRequest(
        f"Invalid call to function {name}, none of its type signatures match "
        f"(known type signatures: {', '.join(known)})"
    )


def _argument(function: Function, index: int, scope: Scope) -> ColumnSpec:
    return scope.spec(f"arg{index}(system.{function.name})", function.arguments[index])


def assignable(found: CqlType, wanted: CqlType) -> bool:
    """Return True if the bytes of a value of type `found` are also valid for `wanted`."""
    names = (str(found), str(wanted))
    return freeze(found) == freeze(wanted) or names in COMPATIBLE or names[1] == "blob"


# Right-hand sides of relations

Candidates = Callable[[Execution], list[bytes]]
"""Returns the values that a column may have; none if it is compared with null."""


ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


def check_ordered(relation: Relation, spec: ColumnSpec, scope: Scope, what: str) -> None:
    """Reject a slice of durations, which have no order; `what` is a word in the message."""
    if relation.operator not in ORDERINGS or "duration" not in map(str, parts(spec.type)):
        return
    if scope.catalog.profile.new_words:
        raise InvalidRequest(f"Duration type is unordered for {spec.name}")
    kind = {UserType: "UDTs", TupleType: "tuples"}.get(type(spec.type), "collections")
    where = f"{kind} containing durations"
    if isinstance(spec.type, Native):
        where = "durations" if what == "conditions" else "duration columns"
    raise InvalidRequest(f"Slice {what} are not supported on {where}")


def candidates(relations: Sequence[Relation], spec: ColumnSpec, scope: Scope) -> Candidates:
    """Compile a column's relations, at least one of which is ``=`` or IN, to its allowed values."""
    exact = [
        (one if each.operator == "=" else several)(each.value, spec, scope)
        for each in relations
        if each.operator in ("=", "IN")
    ]
    bounds = [
        (ORDERINGS[each.operator], bound_value(each.value, spec, scope))
        for each in relations
        if each.operator in ORDERINGS
    ]
    if len(relations) == 1:
        return exact[0]
    order = sort_key(spec.type)

    def found(execution: Execution) -> list[bytes]:
        first, *others = [{order(v): v for v in values(execution)} for values in exact]
        kept = [v for place, v in first.items() if all(place in other for other in others)]
        for holds, bound in bounds:
            limit = bound(execution)
            kept = [v for v in kept if limit is not None and holds(order(v), order(limit))]
        return kept

    return found


def one(term: Term, spec: ColumnSpec, scope: Scope) -> Candidates:
    """Compile ``= term``."""
    evaluate = compile_term(term, spec, scope)

    def value(execution: Execution) -> list[bytes]:
        found = given(evaluate, spec, execution)
        if found is None and scope.writes:
            raise InvalidRequest(f"Invalid null value in condition for column {spec.name}")
        return present([found])

    return value


def several(term: Term, spec: ColumnSpec, scope: Scope) -> Candidates:
    """Compile ``IN (...)`` or ``IN ?`` to its distinct values, in the order of their type."""
    order = sort_key(spec.type)
    elements = listed(term, spec, scope)
    return lambda execution: distinct(present(elements(execution)), order)


def bound_value(term: Term, spec: ColumnSpec, scope: Scope) -> Callable[[Execution], bytes | None]:
    """Compile the value of a comparison, which may be null but not unset."""
    evaluate = compile_term(term, spec, scope)
    return lambda execution: given(evaluate, spec, execution)


def given(evaluate: Evaluate, spec: ColumnSpec, execution: Execution) -> bytes | None:
    """Evaluate a term; raise InvalidRequest if its value is unset."""
    value = evaluate(execution)
    if isinstance(value, Unset):
        raise InvalidRequest(f"Invalid unset value for column {spec.name}")
    return value


def present(values: list[bytes | None]) -> list[bytes]:
    """Return the non-null values."""
    return [value for value in values if value is not None]


def listed(term: Term, spec: ColumnSpec, scope: Scope) -> Callable[[Execution], list[bytes | None]]:
    """Compile ``IN (...)`` or ``IN ?`` to its values in the written order."""
    if isinstance(term, Marker):
        name = f"in{spec.name}" if spec.name.startswith("(") else f"in({spec.name})"
        receiver = evolve(scope.spec(name, ListType(spec.type, frozen=True)), has_nulls=True)
        whole_list = bound_value(term, receiver, scope)
        return lambda execution: _cells(whole_list(execution))
    if not isinstance(term, TupleTerm):
        raise InvalidRequest(f"Invalid IN restriction on {spec.name}: expected a list of values")
    parts = [bound_value(element, spec, scope) for element in term.elements]
    return lambda execution: [part(execution) for part in parts]


def _cells(value: bytes | None) -> list[bytes | None]:
    return [] if value is None else read_cells(value, 1)


def timeout(term: Term | None, scope: Scope) -> Callable[[Execution], None]:
    """Compile the validation of ``USING TIMEOUT``, which has no other effect in this server."""
    if term is None:
        return lambda _: None
    of_type = Native("duration")
    evaluate = compile_term(term, scope.spec("[timeout]", of_type), scope)

    def check(execution: Execution) -> None:
        value = evaluate(execution)
        if not isinstance(value, bytes):
            raise InvalidRequest("Timeout value cannot be null")
        given = decode(of_type, value)
        if given.months or given.days:
            raise InvalidRequest("Timeout values cannot be expressed in days/months")
        if given.nanoseconds % 1_000_000:
            raise InvalidRequest("Timeout values must be expressed in millisecond granularity")
        if given.nanoseconds < 0:
            raise InvalidRequest("Timeout values must be nonnegative")

    return check

"""The right sides of relations: one value, or the values of IN."""

from __future__ import annotations

from collections.abc import Callable

from cdc_reader.cql_type import ListType
from cdc_reader.testing.embedded.codec.order import sort_key
from cdc_reader.testing.embedded.codec.validation import read_collection
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.terms import Marker, Term, TupleTerm
from cdc_reader.testing.embedded.query.execution import Evaluate, Execution
from cdc_reader.testing.embedded.query.options import Unset
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.query.scope import Scope
from cdc_reader.testing.embedded.query.terms import compile_term

Candidates = Callable[[Execution], list[bytes]]
"""The values a column may have; empty if it is compared with null."""


def one(term: Term, spec: ColumnSpec, scope: Scope) -> Candidates:
    """``= term``."""
    evaluate = compile_term(term, spec, scope)
    return lambda execution: present([given(evaluate, spec, execution)])


def several(term: Term, spec: ColumnSpec, scope: Scope) -> Candidates:
    """``IN (...)`` or ``IN ?``: distinct values in the order of their type."""
    order = sort_key(spec.type)
    elements = _elements(term, spec, scope)
    return lambda execution: sorted(set(elements(execution)), key=order)


def bound_value(term: Term, spec: ColumnSpec, scope: Scope) -> Callable[[Execution], bytes | None]:
    """The one value of a comparison; null stays null."""
    evaluate = compile_term(term, spec, scope)
    return lambda execution: given(evaluate, spec, execution)


def given(evaluate: Evaluate, spec: ColumnSpec, execution: Execution) -> bytes | None:
    """The value; InvalidRequest if it is unset."""
    value = evaluate(execution)
    if isinstance(value, Unset):
        raise InvalidRequest(f"Invalid unset value for column {spec.name}")
    return value


def present(values: list[bytes | None]) -> list[bytes]:
    """The values without null."""
    return [value for value in values if value is not None]


def _elements(term: Term, spec: ColumnSpec, scope: Scope) -> Candidates:
    if isinstance(term, Marker):
        name = f"in{spec.name}" if spec.name.startswith("(") else f"in({spec.name})"
        listed = bound_value(term, scope.spec(name, ListType(spec.type, frozen=True)), scope)
        return lambda execution: _cells(listed(execution), spec)
    if not isinstance(term, TupleTerm):
        raise InvalidRequest(f"Invalid IN restriction on {spec.name}: expected a list of values")
    parts = [bound_value(element, spec, scope) for element in term.elements]
    return lambda execution: present([part(execution) for part in parts])


def _cells(value: bytes | None, spec: ColumnSpec) -> list[bytes]:
    if value is None:
        raise InvalidRequest(f"Invalid null value for IN restriction on {spec.name}")
    return read_collection(value, 1)[1]

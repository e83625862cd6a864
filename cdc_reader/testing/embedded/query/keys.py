"""The partitions that a statement selects."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from attrs import frozen

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.codec.marshal import class_name
from cdc_reader.testing.embedded.codec.token import MAX_TOKEN, MIN_TOKEN, token_of
from cdc_reader.testing.embedded.errors import InvalidRequest, ServerError
from cdc_reader.testing.embedded.grammar.ast import TokenRelation
from cdc_reader.testing.embedded.grammar.terms import CallTerm, Term
from cdc_reader.testing.embedded.query.model import Execution, Scope
from cdc_reader.testing.embedded.query.terms import Candidates, bound_value, present
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table
from cdc_reader.testing.embedded.storage.database import PartitionKey


@frozen
class ExactKeys:
    """A selection of partitions by key: ``=`` or IN restricts every part of the key."""

    table: Table
    parts: tuple[Candidates, ...]

    def keys(self, execution: Execution) -> list[PartitionKey]:
        """Return the keys, in the order of their types; raise ServerError if there are too many."""
        columns = [part(execution) for part in self.parts]
        check_product(columns, execution.most_partitions)
        return [key for key in itertools.product(*columns) if self._exists(key)]

    def _exists(self, key: PartitionKey) -> bool:
        """Return False for a log key whose length is not 16 bytes, because no read finds it."""
        return not self.table.is_cdc_log or len(key[0]) == 16


@frozen
class TokenRange:
    """A selection of partitions by token, with inclusive bounds; without bounds, all partitions."""

    lower: tuple[Callable[[Execution], int | None], ...] = ()
    upper: tuple[Callable[[Execution], int | None], ...] = ()

    def bounds(self, execution: Execution) -> tuple[int, int] | None:
        """Return (first token, last token); None if no token can match."""
        lower = [bound(execution) for bound in self.lower]
        upper = [bound(execution) for bound in self.upper]
        if None in lower or None in upper:
            return None
        first = max((t for t in lower if t is not None), default=MIN_TOKEN)
        last = min((t for t in upper if t is not None), default=MAX_TOKEN)
        return (first, last) if first <= last else None


KeyRestriction = ExactKeys | TokenRange


def check_product(columns: Sequence[Sequence[object]], most: int) -> None:
    """Reject IN lists that combine into more than `most` keys of partitions or rows."""
    size = math.prod(len(column) for column in columns)
    if size > most:
        raise ServerError(
            f"clustering-key cartesian product size {size} is greater than maximum {most}"
        )


def token_range(relations: Sequence[TokenRelation], scope: Scope) -> TokenRange:
    """Return the intersection of the ranges of all ``token(...)`` relations."""
    lower: list[Callable[[Execution], int | None]] = []
    upper: list[Callable[[Execution], int | None]] = []
    for relation in relations:
        _check_columns(relation, scope)
        token = _token(relation.value, scope)
        match relation.operator:
            case ">" | ">=":
                lower.append(_shifted(token, 1 if relation.operator == ">" else 0, MIN_TOKEN))
            case "<" | "<=":
                upper.append(_shifted(token, -1 if relation.operator == "<" else 0, MAX_TOKEN))
            case "=":
                lower.append(token)
                upper.append(token)
            case operator:
                raise InvalidRequest(f"Unsupported operator {operator} on the partition key token")
    return TokenRange(tuple(lower), tuple(upper))


def _check_columns(relation: TokenRelation, scope: Scope) -> None:
    names = tuple(column.name for column in scope.table.partition_key)
    if relation.columns != names:
        raise InvalidRequest(
            f"The token function arguments must be in the partition key order: {', '.join(names)}"
            if scope.catalog.profile.new_words
            else "The token function arguments must be in the partition key order: "
            f"[{', '.join(definition(scope.column(name)) for name in relation.columns)}]"
        )


def definition(column: Column) -> str:
    """Format a column as some error messages do."""
    kind = "CLUSTERING_COLUMN" if column.kind is Kind.CLUSTERING else column.kind.name
    return (
        f"ColumnDefinition{{name={column.name}, type={class_name(column.type)}, kind={kind}, "
        f"componentIndex={column.position if column.is_key else 'null'}, "
        "droppedAt=-9223372036854775808}"
    )


def _token(term: Term, scope: Scope) -> Callable[[Execution], int | None]:
    if isinstance(term, CallTerm) and term.name == "token":
        return token_call(term, scope)
    value = bound_value(term, scope.spec("partition key token", Native("bigint")), scope)

    def token(execution: Execution) -> int | None:
        given = value(execution)
        return None if given is None else int.from_bytes(given, "big", signed=True)

    return token


def token_call(term: CallTerm, scope: Scope) -> Callable[[Execution], int | None]:
    """Compile ``token(1, 'a')``, whose arguments are values of the partition key's columns."""
    columns = scope.table.partition_key
    if len(term.arguments) != len(columns):
        raise InvalidRequest(
            f"Invalid number of arguments in call to function token: {len(columns)} required but "
            f"{len(term.arguments)} provided"
        )
    parts = [
        bound_value(argument, scope.column_spec(column), scope)
        for argument, column in zip(term.arguments, columns, strict=True)
    ]

    def token(execution: Execution) -> int | None:
        key = present([part(execution) for part in parts])
        return token_of(scope.table.partitioner, tuple(key)) if len(key) == len(parts) else None

    return token


def _shifted(
    token: Callable[[Execution], int | None], by: int, smallest: int
) -> Callable[[Execution], int | None]:
    """Return a function that evaluates a token bound and adds `by`, so that the bound is inclusive.

    The smallest token becomes `smallest`: as a lower bound, the smallest token precedes all tokens;
    as an upper bound, it means the end of the ring.
    """

    def shifted(execution: Execution) -> int | None:
        value = token(execution)
        return smallest if value == MIN_TOKEN else value if value is None else value + by

    return shifted

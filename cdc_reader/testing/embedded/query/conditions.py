"""IF: what a lightweight transaction asks of the row before it writes."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.ast import Relation
from cdc_reader.testing.embedded.query.execution import Execution
from cdc_reader.testing.embedded.query.filters import Test, row_test
from cdc_reader.testing.embedded.query.row_view import RowView
from cdc_reader.testing.embedded.query.scope import Scope
from cdc_reader.testing.embedded.schema.table import Column


@frozen
class Conditions:
    """Either that the row exists (`exists` True) or does not (False), or tests of its columns.

    `columns` are those the result shows.
    """

    columns: tuple[Column, ...]
    exists: bool | None = None
    tests: tuple[Test, ...] = ()

    def hold(self, view: RowView, row_exists: bool, execution: Execution) -> bool:
        """Whether the statement applies."""
        if self.exists is not None:
            return row_exists is self.exists
        return all(test(view, execution) for test in self.tests)


def conditions(
    relations: Sequence[Relation], scope: Scope, exists: bool | None = None
) -> Conditions | None:
    """The conditions of a statement, None if it has none."""
    if exists is not None:
        return Conditions(scope.table.select_order, exists)
    if not relations:
        return None
    named = {relation.column for relation in relations}
    for name in named:
        if scope.column(name, "Unknown identifier {}").is_key:
            raise InvalidRequest(f"PRIMARY KEY column '{name}' cannot have IF conditions")
    return Conditions(
        tuple(column for column in scope.table.select_order if column.name in named),
        tests=tuple(row_test(relation, scope, null_equals_null=True) for relation in relations),
    )

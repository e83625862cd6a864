"""What names mean while a statement is planned: types, columns, bind variables."""

from __future__ import annotations

from attrs import define, evolve, field

from cdc_reader.cql_type import CqlType
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.terms import Marker
from cdc_reader.testing.embedded.query.execution import Evaluate, Execution
from cdc_reader.testing.embedded.query.options import Value
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.names import resolve_type
from cdc_reader.testing.embedded.schema.table import Column, Table


@define
class Scope:
    """The names of one statement over one table.

    `bind` collects the bind variables of the whole text: the statements of a batch share it.
    """

    table: Table
    catalog: Catalog
    bind: dict[int, ColumnSpec] = field(factory=dict)

    def column(self, name: str, message: str = "Unrecognized name {}") -> Column:
        """The column, or InvalidRequest with `message`."""
        try:
            return self.table.by_name[name]
        except KeyError:
            raise InvalidRequest(message.format(name)) from None

    def spec(self, name: str, of_type: CqlType) -> ColumnSpec:
        """A variable or result column of this table."""
        return ColumnSpec(self.table.keyspace, self.table.name, name, of_type)

    def column_spec(self, column: Column) -> ColumnSpec:
        return self.spec(column.name, column.type)

    def type(self, text: str) -> CqlType:
        """The type a text names, user-defined ones looked up in the table's keyspace."""
        return resolve_type(self.catalog, self.table.keyspace, text)

    def marker(self, marker: Marker, spec: ColumnSpec) -> Evaluate:
        """Declare a bind variable; gives the function that reads its value."""
        self.bind[marker.index] = evolve(spec, name=marker.name) if marker.name else spec
        index = marker.index

        def bound(execution: Execution) -> Value:
            return execution.values[index]

        return bound

    def bind_columns(self) -> tuple[ColumnSpec, ...]:
        """The bind variables in order of the text."""
        return tuple(self.bind[index] for index in sorted(self.bind))

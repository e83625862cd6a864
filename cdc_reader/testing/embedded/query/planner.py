"""Plans statements from their syntax trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from attrs import Factory, evolve, field, frozen

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.ddl.cdc_log import check_view
from cdc_reader.testing.embedded.ddl.definition import define
from cdc_reader.testing.embedded.ddl.keyspaces import replication_warnings
from cdc_reader.testing.embedded.ddl.tables import ensure_paxos, lacks_paxos
from cdc_reader.testing.embedded.errors import InvalidRequest, InvalidSyntax, Unauthorized
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.grammar.terms import Term
from cdc_reader.testing.embedded.query.batch import WritePlan, check_kind
from cdc_reader.testing.embedded.query.model import Execution, Scope
from cdc_reader.testing.embedded.query.plan_modification import plan_modification
from cdc_reader.testing.embedded.query.ports import Alter, MutationSink, SchemaAction, TableSource
from cdc_reader.testing.embedded.query.result import ColumnSpec, Result, Rows, SetKeyspace, Void
from cdc_reader.testing.embedded.query.select import SelectPlan, plan_select
from cdc_reader.testing.embedded.query.terms import compile_optional, timeout
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.names import qualified
from cdc_reader.testing.embedded.schema.table import Table
from cdc_reader.testing.embedded.storage.database import Database
from cdc_reader.testing.embedded.system.describe import describe

T = TypeVar("T")

_TWO_TIMESTAMPS = "Timestamp must be set either on BATCH or individual statements"
Plan = SelectPlan | WritePlan | SchemaAction
"""A statement that was validated against the schema at the time of planning."""


@frozen
class Planner:
    """Plans statements; `virtual` contains the sources of tables that are not in the database.

    `catalog` is the schema as the node knows it. `alter` changes the schema of the cluster, which
    may be newer; by default it changes `catalog`.
    """

    catalog: Catalog
    database: Database
    sink: MutationSink
    clock: Callable[[], int]
    virtual: Mapping[tuple[str, str], TableSource] = field(factory=dict)
    alter: Alter = Factory(lambda self: alters(self.catalog), takes_self=True)

    def plan(self, statement: ast.Statement, keyspace: str | None) -> Plan:
        """Plan a statement; `keyspace` is the connection's current keyspace."""
        match statement:
            case ast.Select(table=name):
                table = self._table(name, keyspace)
                return plan_select(statement, Scope(table, self.catalog), self._source(table))
            case ast.Insert() | ast.InsertJson() | ast.Update() | ast.Delete():
                return self._write((statement,), keyspace)
            case ast.Batch():
                return self._batch(statement, keyspace)
            case ast.Use() | ast.Truncate() | ast.Unsupported():
                return self._deed(statement, keyspace)
            case ast.Describe():
                return SchemaAction(lambda _: self._describe(statement, keyspace))
            case _:
                return SchemaAction(lambda _: self._define(statement, keyspace))

    def _deed(
        self, statement: ast.Use | ast.Truncate | ast.Unsupported, keyspace: str | None
    ) -> SchemaAction:
        match statement:
            case ast.Use(keyspace_name):
                return SchemaAction(lambda _: self._use(keyspace_name))
            case ast.Truncate(name, term):
                return self._truncate(Scope(self._table(name, keyspace), self.catalog), term)
            case ast.Unsupported(what, base, with_cdc):
                if base is not None:
                    check_view(self._table(base, keyspace), with_cdc)
                raise InvalidRequest(f"{what} is not supported by this server")

    def _describe(self, statement: ast.Describe, keyspace: str | None) -> Rows:
        names, rows = describe(statement, keyspace, self.catalog)
        columns = tuple(ColumnSpec("system", "describe", name, Native("text")) for name in names)
        return Rows(columns, [tuple(cell.encode() for cell in row) for row in rows])

    def _use(self, name: str) -> SetKeyspace:
        if name not in self.catalog.keyspaces:
            raise InvalidRequest(f"Keyspace '{name}' does not exist")
        return SetKeyspace(name)

    def _write(
        self,
        statements: tuple[ast.Modification, ...],
        keyspace: str | None,
        using: ast.Using | None = None,
    ) -> WritePlan:
        bind: dict[int, ColumnSpec] = {}
        scopes = [
            Scope(self._writable(statement.table, keyspace), self.catalog, bind, writes=True)
            for statement in statements
        ]
        timestamp = None
        if using is not None and scopes:
            timeout(using.timeout, scopes[0])
            timestamp = compile_optional(using.timestamp, "[timestamp]", "bigint", scopes[0])
        modifications = tuple(
            plan_modification(statement, scope, self._source(scope.table))
            for statement, scope in zip(statements, scopes, strict=True)
        )
        for each in modifications:
            if each.conditions is not None and lacks_paxos(each.table, self.catalog):
                self.alter(partial(ensure_paxos, each.table, now_us=self.clock()))
        bound = tuple(bind[index] for index in sorted(bind))
        return WritePlan(modifications, self.sink, bound, timestamp, using is not None)

    def _batch(self, batch: ast.Batch, keyspace: str | None) -> WritePlan:
        if batch.using.ttl is not None:
            raise InvalidRequest("Global TTL on the BATCH statement is not supported.")
        plan = self._write(batch.statements, keyspace, batch.using)
        if batch.using.timestamp is not None:
            refused = {
                "conditional BATCH": plan.is_lwt,
                "counter BATCH": batch.kind is ast.BatchKind.COUNTER,
                "a BATCH containing counters": any(m.table.is_counter for m in plan.modifications),
            }
            for what in (what for what, is_so in refused.items() if is_so):
                raise InvalidRequest(f"Cannot provide custom timestamp for {what}")
            if any(each.using.timestamp is not None for each in batch.statements):
                raise InvalidRequest(_TWO_TIMESTAMPS)
        check_kind(batch.kind, plan.modifications)
        return plan

    def _define(self, statement: ast.SchemaStatement, keyspace: str | None) -> Result:
        done = self.alter(
            lambda catalog: define(statement, keyspace, catalog, self.database, self.clock())
        )
        if isinstance(statement, ast.CreateKeyspace | ast.AlterKeyspace):
            warnings = replication_warnings(statement, self.catalog.profile)
            return evolve(done or Void(), warnings=warnings)
        return done or Void()

    def _truncate(self, scope: Scope, term: Term | None) -> SchemaAction:
        if term is not None and not self.catalog.profile.truncates_with_timeout:
            raise InvalidSyntax("line 1:0 no viable alternative at input 'USING'")
        check = timeout(term, scope)

        def truncate(execution: Execution) -> Void:
            check(execution)
            self._check_writable(scope.table)
            self.database.drop(scope.table.id)
            return Void()

        return SchemaAction(truncate, scope.bind_columns())

    def _table(self, name: ast.TableName, keyspace: str | None) -> Table:
        return self.catalog.table(*qualified(name, keyspace))

    def _writable(self, name: ast.TableName, keyspace: str | None) -> Table:
        table = self._table(name, keyspace)
        self._check_writable(table)
        return table

    def _check_writable(self, table: Table) -> None:
        if (table.keyspace, table.name) in self.virtual:
            raise Unauthorized(f"{table.keyspace} keyspace is not user-modifiable.")

    def _source(self, table: Table) -> TableSource:
        return self.virtual.get((table.keyspace, table.name), self.database)


def alters(catalog: Catalog) -> Alter:
    """Return the `Alter` that changes this catalog."""

    def alter(change: Callable[[Catalog], T]) -> T:
        return change(catalog)

    return alter

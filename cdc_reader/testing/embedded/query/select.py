"""Plans of SELECT, which are executed page by page."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.grammar.terms import TupleTerm
from cdc_reader.testing.embedded.query.filters import row_test
from cdc_reader.testing.embedded.query.model import SERIAL, Evaluate, Execution, Scope
from cdc_reader.testing.embedded.query.paging import PagingState, decode
from cdc_reader.testing.embedded.query.ports import TableSource
from cdc_reader.testing.embedded.query.readers import (
    Cells,
    DistinctReader,
    Found,
    PlainReader,
    Reader,
    ViewReader,
)
from cdc_reader.testing.embedded.query.result import ColumnSpec, Rows
from cdc_reader.testing.embedded.query.scan import Scan
from cdc_reader.testing.embedded.query.selectors import Output, json_output, outputs
from cdc_reader.testing.embedded.query.terms import compile_optional, timeout
from cdc_reader.testing.embedded.query.where import (
    Where,
    analyse,
    check_key_slices,
    partition_key_markers,
)
from cdc_reader.testing.embedded.schema.table import Kind, Table
from cdc_reader.testing.embedded.storage.position import position

PAGE_BYTES = 1 << 20
_WRITES_ONLY = {0x00: "ANY", 0x07: "EACH_QUORUM"}
NO_LIMIT = -1

_NEEDS_FILTERING = (
    "Cannot execute this query as it might involve data filtering and thus may have "
    "unpredictable performance. If you want to execute this query despite the performance "
    "unpredictability, use ALLOW FILTERING"
)
_SHOULD_ALLOW_FILTERING = (
    "This query should use ALLOW FILTERING and will be rejected in future versions."
)
_CANNOT_PAGE = (
    "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must "
    "either remove the ORDER BY or the IN and sort client side, or disable paging for this query"
)


@frozen
class SelectPlan:
    """A planned SELECT.

    `sorts` is True if ORDER BY sorts the rows of several partitions together. `refuses_serial` is
    True if the table is the log of a table that uses tablets; such logs reject serial reads.
    """

    table: Table
    outputs: tuple[Output, ...]
    scan: Scan
    limit: Evaluate | None
    per_partition_limit: Evaluate | None
    timeout: Callable[[Execution], None]
    sorts: bool
    bind_columns: tuple[ColumnSpec, ...]
    partition_key_indexes: tuple[int, ...]
    result_columns: tuple[ColumnSpec, ...]
    warnings: tuple[str, ...] = ()
    refuses_serial: bool = False
    is_lwt: bool = False

    def execute(self, execution: Execution) -> Rows:
        """Return one page of the result."""
        self.timeout(execution)
        if execution.options.consistency in _WRITES_ONLY:
            raise InvalidRequest(
                f"{_WRITES_ONLY[execution.options.consistency]} ConsistencyLevel is only supported "
                "for writes"
            )
        if self.refuses_serial and execution.options.consistency in SERIAL:
            raise InvalidRequest(
                f"LWT is not supported on CDC log tables: {self.table.keyspace}.{self.table.name}"
            )
        if any(output.aggregate for output in self.outputs):
            return self._rows([self._aggregated(execution)])
        limit = _limit(self.limit, "LIMIT", execution)
        if self.sorts:
            found = self._sorted(execution)
            return self._rows([cells for _, cells in found[: None if limit < 0 else limit]])
        state = execution.options.paging_state
        after = decode(state, self.table) if state else None
        return self._page(execution, after, after.remaining if after else limit)

    def _page(self, execution: Execution, after: PagingState | None, remaining: int) -> Rows:
        per_partition = _limit(self.per_partition_limit, "PER PARTITION LIMIT", execution)
        page = _Page(execution.options.page_size, len(self.outputs))
        for partition, found in self.scan.partitions(execution, after):
            returned = after.returned if after and after.key == partition.key else 0
            for key, cells in found:
                if returned == per_partition:
                    break
                is_full = page.add(cells)
                returned += 1
                remaining -= 1
                if remaining == 0:
                    return self._rows(page.rows)
                if is_full:
                    left = max(remaining, NO_LIMIT)
                    state = PagingState(partition.key, key, left, returned)
                    return self._rows(page.rows, state.encode())
        return self._rows(page.rows)

    def _sorted(self, execution: Execution) -> list[Found]:
        if execution.options.page_size:
            raise InvalidRequest(_CANNOT_PAGE)
        per_partition = _limit(self.per_partition_limit, "PER PARTITION LIMIT", execution)
        found: list[Found] = []
        for _, rows in self.scan.partitions(execution, None):
            found += list(rows)[: None if per_partition < 0 else per_partition]
        sort_keys = self.table.clustering_sort_keys
        return sorted(
            found, key=lambda row: position(sort_keys, row[0] or ()), reverse=self.scan.reverse
        )

    def _aggregated(self, execution: Execution) -> Cells:
        """Return a row of aggregates over all rows; plain columns have the first row's value."""
        columns: list[list[bytes | None]] = [[] for _ in self.outputs]
        for _, rows in self.scan.partitions(execution, None):
            for _, cells in rows:
                for column, cell in zip(columns, cells, strict=True):
                    column.append(cell)
        return tuple(
            output.aggregate.combine([cell for cell in column if cell is not None])
            if output.aggregate
            else next(iter(column), None)
            for output, column in zip(self.outputs, columns, strict=True)
        )

    def _rows(self, rows: list[Cells], paging_state: bytes | None = None) -> Rows:
        return Rows(self.result_columns, rows, paging_state, self.warnings)


class _Page:
    """Collects rows up to the page size or 1 MiB."""

    def __init__(self, page_size: int | None, width: int) -> None:
        self.rows: list[Cells] = []
        self._page_size = page_size or 0
        self._row_overhead = 4 * width
        self._bytes = 0

    def add(self, cells: Cells) -> bool:
        """Add a row; return True if the page is full."""
        self.rows.append(cells)
        if self._page_size <= 0:
            return False
        self._bytes += sum(map(len, filter(None, cells))) + self._row_overhead
        return len(self.rows) >= self._page_size or self._bytes >= PAGE_BYTES


def _limit(limit: Evaluate | None, what: str, execution: Execution) -> int:
    value = limit(execution) if limit else None
    if limit is not None and value is None:
        raise InvalidRequest("Invalid null value of limit")
    if not isinstance(value, bytes):
        return NO_LIMIT
    rows = int.from_bytes(value, "big", signed=True)
    if rows <= 0:
        raise InvalidRequest(f"{what} must be strictly positive")
    return rows


def plan_select(select: ast.Select, scope: Scope, source: TableSource) -> SelectPlan:
    """Validate a SELECT against the schema and plan it."""
    table = scope.table
    result = outputs(select.selected, scope)
    if select.json:
        result = (json_output(result),)
    where = analyse(select.where, scope)
    warnings = _check_filtering(select, where, scope)
    reverse = _check_order(select, where, table)
    per_partition_limit = compile_optional(
        select.per_partition_limit, "[per_partition_limit]", "int", scope
    )
    scan = Scan(table, source, where, _reader(select, where, result, scope), reverse)
    return SelectPlan(
        table,
        result,
        scan,
        limit=compile_optional(select.limit, "[limit]", "int", scope),
        per_partition_limit=per_partition_limit,
        timeout=timeout(select.timeout, scope),
        sorts=bool(select.order) and any(_is_in(r, table) for r in select.where),
        bind_columns=scope.bind_columns(),
        partition_key_indexes=partition_key_markers(select.where, scope),
        result_columns=tuple(scope.spec(output.name, output.type) for output in result),
        warnings=warnings,
        refuses_serial=table.is_cdc_log
        and scope.catalog.keyspace(table.keyspace).tablets is not None,
    )


def _reader(select: ast.Select, where: Where, result: tuple[Output, ...], scope: Scope) -> Reader:
    tests = tuple(row_test(relation, scope) for relation in where.filters)
    if select.distinct:
        _check_distinct(result, where, scope.table)
        return DistinctReader(ViewReader(result, tests))
    columns = tuple(o.column for o in result if o.column is not None and o.aggregate is None)
    if len(columns) == len(result) and not tests:
        return PlainReader(columns)
    return ViewReader(result, tests)


def _check_distinct(result: tuple[Output, ...], where: Where, table: Table) -> None:
    others = {r.column for r in where.filters} - {c.name for c in table.partition_key}
    if others or not where.clustering.is_open:
        raise InvalidRequest(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key."
        )
    selected = [column for output in result for column in output.columns]
    for column in selected:
        if column.kind not in (Kind.PARTITION_KEY, Kind.STATIC):
            raise InvalidRequest(
                "SELECT DISTINCT queries must only request partition key columns and/or static "
                f"columns (not {column.name})"
            )
    for column in table.partition_key if not where.key_is_exact else ():
        if column not in selected:
            raise InvalidRequest(
                "SELECT DISTINCT queries must request all the partition key columns (missing "
                f"{column.name})"
            )


def _check_filtering(select: ast.Select, where: Where, scope: Scope) -> tuple[str, ...]:
    """Reject a SELECT that lacks a required ALLOW FILTERING; otherwise, return the warnings.

    There is a warning if only clustering columns are restricted.
    """
    if select.allow_filtering:
        return ()
    if where.skipped and where.key_is_exact:
        raise InvalidRequest(where.skipped)
    check_key_slices(where, scope)
    if where.filters:
        raise InvalidRequest(_NEEDS_FILTERING)
    if not where.key_is_exact and not where.clustering.is_open:
        return (_SHOULD_ALLOW_FILTERING,)
    return ()


def _check_order(select: ast.Select, where: Where, table: Table) -> bool:
    """Return True if rows are read in reverse order; reject an invalid ORDER BY."""
    if not select.order:
        return False
    if not where.key_is_exact:
        raise InvalidRequest(
            "ORDER BY is only supported when the partition key is restricted by an EQ or an IN."
        )
    directions = set()
    for index, (name, descending) in enumerate(select.order):
        if index >= len(table.clustering) or table.clustering[index].name != name:
            raise InvalidRequest(
                "Order by currently only supports the ordering of columns following their "
                "declared order in the PRIMARY KEY"
            )
        directions.add(table.clustering[index].descending != descending)
    if len(directions) > 1:
        raise InvalidRequest("Unsupported order by relation")
    return directions.pop()


def _is_in(relation: ast.AnyRelation, table: Table) -> bool:
    return (
        isinstance(relation, ast.Relation)
        and relation.operator == "IN"
        and not (isinstance(relation.value, TupleTerm) and len(relation.value.elements) == 1)
        and table.by_name[relation.column].kind is Kind.PARTITION_KEY
    )

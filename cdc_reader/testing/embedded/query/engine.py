"""The engine, which executes CQL statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import md5
from uuid import UUID

from attrs import evolve, frozen

from cdc_reader.cql.types import ListType
from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.codec.validation import list_with_nulls, validator
from cdc_reader.testing.embedded.errors import CqlError, InvalidRequest, Unprepared
from cdc_reader.testing.embedded.grammar.ast import BatchKind
from cdc_reader.testing.embedded.grammar.parser import build_parser, parse
from cdc_reader.testing.embedded.query.availability import check_available
from cdc_reader.testing.embedded.query.batch import WritePlan, apply, check_kind
from cdc_reader.testing.embedded.query.lwt import Step
from cdc_reader.testing.embedded.query.model import (
    MOST_KEYS,
    Execution,
    Ordinals,
    QueryOptions,
    Value,
)
from cdc_reader.testing.embedded.query.planner import Plan, Planner
from cdc_reader.testing.embedded.query.ports import Replays, TableSource
from cdc_reader.testing.embedded.query.result import ColumnSpec, Prepared, Result
from cdc_reader.testing.embedded.query.select import SelectPlan
from cdc_reader.testing.embedded.query.wording import in_older_words
from cdc_reader.testing.embedded.schema.table import Column, Table
from cdc_reader.testing.embedded.text_cache import TextCache

_FROM_ONE = {0x01, 0x0A}
"""The consistency levels ONE and LOCAL_ONE, at which a node answers from its own replica."""
_CACHED_CHARACTERS = 1 << 23
_PREPARED_CHARACTERS = 1 << 26


Values = Sequence[Value] | Mapping[str, Value]
Shape = tuple[tuple[UUID, tuple[Column, ...]], ...]
"""The (table id, columns) of each table that a statement uses."""


@frozen
class Remembered:
    """A prepared statement.

    `keyspace` is the keyspace of the connection that prepared it. `shape` describes the tables and
    columns that the statement used when it was prepared.
    """

    cql: str
    keyspace: str | None
    shape: Shape


class Engine:
    """Executes the statements that a planner plans.

    `clock` returns the server's time in µs since the epoch. `replays` contains pages to replay.
    `most_partitions` is the maximum number of partitions that IN lists may select. `nodes` returns
    the number of nodes that can store replicas; without it, any number of replicas is available.
    Every method raises `errors.CqlError` if ScyllaDB would return an error.
    """

    def __init__(
        self,
        planner: Planner,
        clock: Callable[[], int],
        replays: Replays | None = None,
        most_partitions: int = MOST_KEYS,
        nodes: Callable[[], int] | None = None,
    ) -> None:
        build_parser()
        self._planner = planner
        self._clock = clock
        self._replays = replays
        self._most_partitions = most_partitions
        self._nodes = nodes
        self._replicas: Mapping[tuple[str, str], TableSource] = {}
        self._prepared: TextCache[Remembered] = TextCache(_PREPARED_CHARACTERS)
        self._plans: TextCache[Plan] = TextCache(_CACHED_CHARACTERS)
        self._last_timestamp = 0

    def show(
        self, planner: Planner, replicas: Mapping[tuple[str, str], TableSource] | None = None
    ) -> None:
        """Show the cluster as `planner` knows it from now on; prepared statements are kept.

        SELECTs at ONE from the tables named in `replicas` read these sources.
        """
        self._planner, self._replicas = planner, replicas or {}
        self._plans.clear()

    def now_us(self) -> int:
        """Return the server's time in µs since the epoch."""
        return self._clock()

    def query(self, cql: str, values: Values, options: QueryOptions) -> Result:
        """Execute the text of a statement."""
        with self._worded():
            return self._run(self._plan(cql, options.keyspace), values, options)

    def prepare(self, cql: str, options: QueryOptions) -> Prepared:
        """Prepare a statement; the same text and keyspace always have the same id."""
        keyspace = options.keyspace
        with self._worded():
            plan = self._plan(cql, keyspace)
        text = (keyspace or "") + cql
        statement_id = md5(text.encode(), usedforsecurity=False).digest()
        self._prepared.put(statement_id, Remembered(cql, keyspace, _shape(plan)), len(cql))
        return _description(statement_id, plan)

    def prepared(self, statement_id: bytes) -> Prepared:
        """Return the prepared statement with this id; raise Unprepared if the id is unknown."""
        return _description(statement_id, self._prepared_plan(statement_id))

    def text(self, statement_id: bytes) -> str:
        """Return the text of a prepared statement, or an empty string if the id is unknown."""
        found = self._prepared.get(statement_id)
        return "" if found is None else found.cql

    def forget(self, statement_id: bytes | None = None) -> None:
        """Discard a prepared statement; without an id, discard all, as a restarted node does."""
        if statement_id is None:
            self._prepared.clear()
        else:
            self._prepared.pop(statement_id)

    def execute(self, statement_id: bytes, values: Values, options: QueryOptions) -> Result:
        """Execute a prepared statement; raise Unprepared if the id is unknown."""
        with self._worded():
            return self._run(self._prepared_plan(statement_id), values, options)

    def batch(
        self,
        kind: BatchKind,
        statements: Sequence[tuple[str | bytes, Values]],
        options: QueryOptions,
    ) -> Result:
        """Execute a BATCH frame: statements as text (str) or prepared id (bytes), with values."""
        now, ordinals = self._clock(), Ordinals()
        steps: list[Step] = []
        with self._worded():
            for statement, values in statements:
                plan = self._batched(statement, options.keyspace)
                bound = bind(plan.bind_columns, values)
                self._check_available(plan, options)
                execution = self._execution(bound, now, options, ordinals)
                steps += [(modification, execution) for modification in plan.modifications]
            check_kind(kind, [modification for modification, _ in steps])
            return apply(steps, self._planner.sink, is_batch=True)

    @contextmanager
    def _worded(self) -> Iterator[None]:
        """Reword errors to match the messages of the server's version."""
        try:
            yield
        except CqlError as error:
            if not self._planner.catalog.profile.new_words:
                in_older_words(error)
            raise

    def _batched(self, statement: str | bytes, keyspace: str | None) -> WritePlan:
        if isinstance(statement, str):
            plan = self._plan(statement, keyspace)
        else:
            plan = self._prepared_plan(statement)
        if not isinstance(plan, WritePlan) or len(plan.modifications) != 1:
            raise InvalidRequest(
                "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed."
            )
        return plan

    def _run(self, plan: Plan, values: Values, options: QueryOptions) -> Result:
        if self._replays is not None and isinstance(plan, SelectPlan):
            table = plan.table
            page = self._replays.page(table.keyspace, table.name, options.paging_state)
            if page is not None:
                return page
        if self._replicas and isinstance(plan, SelectPlan):
            plan = self._local(plan, options)
        bound = bind(plan.bind_columns, values)
        self._check_available(plan, options)
        return plan.execute(self._execution(bound, self._clock(), options, Ordinals()))

    def _check_available(self, plan: Plan, options: QueryOptions) -> None:
        if self._nodes is None:
            return
        for table in _tables(plan):
            replication = self._planner.catalog.keyspace(table.keyspace).replication
            check_available(replication, options.consistency, self._nodes())

    def _local(self, plan: SelectPlan, options: QueryOptions) -> SelectPlan:
        """Return the plan, made to read the node's own replica if one replica is enough."""
        replica = self._replicas.get((plan.table.keyspace, plan.table.name))
        if replica is None or options.consistency not in _FROM_ONE:
            return plan
        return evolve(plan, scan=evolve(plan.scan, source=replica))

    def _execution(
        self, values: tuple[Value, ...], now: int, options: QueryOptions, ordinals: Ordinals
    ) -> Execution:
        return Execution(values, now, self._timestamp, options, ordinals, self._most_partitions)

    def _timestamp(self) -> int:
        """Return a write timestamp from the server's clock, later than all previous ones."""
        self._last_timestamp = max(self._clock(), self._last_timestamp + 1)
        return self._last_timestamp

    def _prepared_plan(self, statement_id: bytes) -> Plan:
        """Return the plan; discard the statement if its tables or their columns have changed."""
        found = self._prepared.get(statement_id)
        plan = None if found is None else self._still(found)
        if plan is None:
            self._prepared.pop(statement_id)
            raise Unprepared(
                f"No prepared statement with ID {statement_id.hex()} found.", statement_id
            )
        return plan

    def _still(self, statement: Remembered) -> Plan | None:
        try:
            plan = self._plan(statement.cql, statement.keyspace)
        except CqlError:  # its table, or a column that it names, was dropped
            return None
        return plan if _shape(plan) == statement.shape else None

    def _plan(self, cql: str, keyspace: str | None) -> Plan:
        """Return the plan from the cache; plan again if the schema has changed."""
        key = cql, keyspace, self._planner.catalog.version
        plan = self._plans.get(key)
        if plan is None:
            plan = self._planner.plan(parse(cql), keyspace)
            self._plans.put(key, plan, len(cql))
        return plan


def _shape(plan: Plan) -> Shape:
    return tuple((table.id, table.columns) for table in _tables(plan))


def _tables(plan: Plan) -> Sequence[Table]:
    """Return the tables that the plan reads or writes."""
    match plan:
        case SelectPlan(table=table):
            return (table,)
        case WritePlan(modifications):
            return tuple(each.table for each in modifications)
        case _:
            return ()


def _description(statement_id: bytes, plan: Plan) -> Prepared:
    return Prepared(
        statement_id,
        plan.bind_columns,
        plan.partition_key_indexes,
        plan.result_columns,
        plan.warnings,
        plan.is_lwt,
    )


def bind(columns: tuple[ColumnSpec, ...], values: Values) -> tuple[Value, ...]:
    """Return the values in marker order; raise InvalidRequest if one of them is invalid."""
    given = _named(columns, values) if isinstance(values, Mapping) else tuple(values)
    if len(given) != len(columns):
        raise InvalidRequest(
            f"Invalid amount of bind variables: expected {len(columns)} received {len(given)}"
        )
    return tuple(_checked(column, value) for column, value in zip(columns, given, strict=True))


def _named(columns: tuple[ColumnSpec, ...], values: Mapping[str, Value]) -> tuple[Value, ...]:
    missing = [column.name for column in columns if column.name not in values]
    if missing:
        raise InvalidRequest(f"Missing value for bind variable {missing[0]}")
    return tuple(values[column.name] for column in columns)


def _checked(column: ColumnSpec, value: Value) -> Value:
    if not isinstance(value, bytes):
        return value
    try:
        if column.has_nulls and isinstance(column.type, ListType):
            return list_with_nulls(column.type)(value)
        return validator(column.type)(value)
    except MarshalError as error:
        raise InvalidRequest(f"Exception while binding column {column.name}: {error}") from None

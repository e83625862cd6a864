"""Types shared by planning and execution: options, bound values, and names in scope."""

from __future__ import annotations

import enum
from collections.abc import Callable

from attrs import define, evolve, field, frozen

from cdc_reader.cql.types import CqlType
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.grammar.terms import Marker
from cdc_reader.testing.embedded.query.result import ColumnSpec
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.names import resolve_type
from cdc_reader.testing.embedded.schema.table import Column, Table

MOST_KEYS = 100
"""Default maximum number of partitions, and of rows in each partition, that IN lists may select."""
MAX_KEY = 65_535
"""Maximum size, in bytes, of a partition key, of a clustering value and of a collection's key."""
SERIAL = {0x08: "SERIAL", 0x09: "LOCAL_SERIAL"}
_UNDEFINED = "Undefined name {0} in where clause ('unresolved({0})')"


class Unset(enum.Enum):
    """The bind value "not set", which leaves the column unchanged."""

    UNSET = "unset"


UNSET = Unset.UNSET

Value = bytes | None | Unset


@frozen
class QueryOptions:
    """Options of a QUERY, EXECUTE or BATCH frame.

    `timestamp` is the client's default write timestamp in µs. `keyspace` is the connection's
    current keyspace. `page_size` is in rows (None: unpaged).
    """

    consistency: int = 1
    serial_consistency: int = 8
    page_size: int | None = None
    paging_state: bytes | None = None
    timestamp: int | None = None
    keyspace: str | None = None


class Ordinals:
    """Numbers the list elements of a statement or batch, so that their timeuuids keep the order.

    Appended elements are numbered upward from 0, prepended elements downward from 2^17.
    """

    LIMIT = 1 << 17

    def __init__(self) -> None:
        self._appended = 0
        self._prepended = self.LIMIT

    def append(self) -> int:
        """Return the ordinal of the next appended element."""
        self._appended += 1
        return self._appended - 1

    def prepend(self, count: int) -> range:
        """Return the ordinals of `count` elements to prepend in this order."""
        self._prepended -= count
        return range(self._prepended, self._prepended + count)


@frozen
class Execution:
    """The context of one execution of a statement.

    `values` are the validated bound values by marker index. `now_us` is the server's time in µs.
    `server_timestamp` returns a write timestamp, for statements that specify none.
    `most_partitions` is the maximum number of partitions that IN lists may select.
    """

    values: tuple[Value, ...]
    now_us: int
    server_timestamp: Callable[[], int]
    options: QueryOptions
    ordinals: Ordinals = field(factory=Ordinals)
    most_partitions: int = MOST_KEYS

    @property
    def now(self) -> int:
        """The server's time in seconds, for expiry."""
        return self.now_us // 1_000_000


Evaluate = Callable[[Execution], Value]
"""A compiled term: returns its serialized value for an execution."""


@define
class Scope:
    """The names that a statement on one table may use.

    `bind` collects the bind variables of the whole text; the statements of a batch share it.
    `writes` is True for modifications, whose key columns must not be null.
    """

    table: Table
    catalog: Catalog
    bind: dict[int, ColumnSpec] = field(factory=dict)
    writes: bool = False

    def column(self, name: str, message: str = _UNDEFINED) -> Column:
        """Return the column; raise InvalidRequest with `message` if there is none.

        In newer versions, "Unrecognized name" replaces messages that begin with "Undefined".
        """
        if (found := self.table.by_name.get(name)) is not None:
            return found
        if self.catalog.profile.new_words and message.startswith("Undefined"):
            message = "Unrecognized name {}"
        raise InvalidRequest(message.format(name))

    def spec(self, name: str, of_type: CqlType) -> ColumnSpec:
        """Return the spec of a bind variable or result column of this table."""
        return ColumnSpec(self.table.keyspace, self.table.name, name, of_type)

    def column_spec(self, column: Column) -> ColumnSpec:
        return self.spec(column.name, column.type)

    def type(self, text: str) -> CqlType:
        """Parse a type; user-defined types are resolved in the table's keyspace."""
        return resolve_type(self.catalog, self.table.keyspace, text)

    def marker(self, marker: Marker, spec: ColumnSpec) -> Evaluate:
        """Declare a bind variable; return the function that reads its value."""
        self.bind[marker.index] = evolve(spec, name=marker.name) if marker.name else spec
        index = marker.index

        def bound(execution: Execution) -> Value:
            return execution.values[index]

        return bound

    def bind_columns(self) -> tuple[ColumnSpec, ...]:
        """Return the bind variables in the order of their markers."""
        return tuple(self.bind[index] for index in sorted(self.bind))

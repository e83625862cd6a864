"""Fixtures that run statements on an engine without sockets, with a manual clock."""

import pytest
from attrs import define, evolve, field

from cdc_reader.testing.embedded.cdc.write_path import WritePath
from cdc_reader.testing.embedded.errors import CqlError
from cdc_reader.testing.embedded.query.engine import Engine, Values
from cdc_reader.testing.embedded.query.model import QueryOptions
from cdc_reader.testing.embedded.query.planner import Planner
from cdc_reader.testing.embedded.query.result import Result, Rows
from cdc_reader.testing.embedded.schema.catalog import Catalog, SchemaChange
from cdc_reader.testing.embedded.storage.database import Database

Row = tuple[bytes | None, ...]
STREAM = bytes(range(16))


class OneStream:
    """A stream chooser that returns the same stream for all writes."""

    def stream_ids(self, key: tuple[bytes, ...], write_us: int, now_us: int) -> tuple[bytes, ...]:
        del key, write_us, now_us
        return (STREAM,)


@define
class Shell:
    """A shell that runs statements on an engine, in the keyspace `ks`."""

    now_us: int = 1_700_000_000_000_000
    catalog: Catalog = field(factory=Catalog)
    database: Database = field(factory=Database)
    options: QueryOptions = QueryOptions(keyspace="ks")
    changes: list[SchemaChange] = field(factory=list)
    engine: Engine = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.catalog.listeners.append(self.changes.append)
        path = WritePath(self.catalog, self.database, lambda _: OneStream(), self.catalog.profile)
        planner = Planner(self.catalog, self.database, path, lambda: self.now_us)
        self.engine = Engine(planner, planner.clock)
        self.run(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )

    def run(self, cql: str, *values: bytes | None) -> Result:
        """Advance the clock by a microsecond, then execute a statement."""
        self.now_us += 1
        return self.engine.query(cql, values, self.options)

    def rows(self, cql: str, *values: bytes | None) -> list[Row]:
        """Return all rows of an unpaged SELECT."""
        result = self.run(cql, *values)
        assert isinstance(result, Rows)
        return result.rows

    def consistency(self, consistency: int) -> None:
        """Set the consistency level of subsequent statements."""
        self.options = evolve(self.options, consistency=consistency)

    def ints(self, cql: str) -> list[tuple[int | None, ...]]:
        """Return all rows of a SELECT of integer columns."""
        return [
            tuple(None if c is None else int.from_bytes(c, "big", signed=True) for c in row)
            for row in self.rows(cql)
        ]

    def pages(self, cql: str, page_size: int, values: Values = ()) -> list[list[Row]]:
        """Return the pages of a prepared SELECT, each requested with the previous paging state."""
        prepared = self.engine.prepare(cql, self.options)
        pages: list[list[Row]] = []
        state: bytes | None = None
        while True:
            options = evolve(self.options, page_size=page_size, paging_state=state)
            result = self.engine.execute(prepared.id, values, options)
            assert isinstance(result, Rows)
            pages.append(result.rows)
            state = result.paging_state
            if state is None:
                return pages

    def refusal(self, cql: str, *values: bytes | None) -> tuple[int, str]:
        """Execute a statement that must fail, and return the error's code and message."""
        with pytest.raises(CqlError) as caught:
            self.run(cql, *values)
        return caught.value.code, caught.value.message


@pytest.fixture
def shell() -> Shell:
    """A new engine with an empty keyspace `ks`."""
    return Shell()


@pytest.fixture(scope="session")
def make_shell() -> type[Shell]:
    """The class `Shell`, for fixtures with a wider scope or other settings."""
    return Shell

"""The engine: CQL text and values in, results out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cdc_reader.testing.embedded.grammar.ast import BatchKind
from cdc_reader.testing.embedded.query.options import QueryOptions, Value
from cdc_reader.testing.embedded.query.result import Prepared, Result
from cdc_reader.testing.embedded.query.source import MutationSink, TableSource
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.storage.database import Database

Values = Sequence[Value] | Mapping[str, Value]


class Engine:
    """Executes statements over a catalog and a database.

    `clock` gives the server's time in µs since the epoch. `virtual` maps (keyspace, table) to the
    source of a table that is not in the database. Every method raises `errors.CqlError`
    for what the server refuses.
    """

    def __init__(
        self,
        catalog: Catalog,
        database: Database,
        write_path: MutationSink,
        clock: Callable[[], int],
        virtual: Mapping[tuple[str, str], TableSource] | None = None,
    ) -> None:
        raise NotImplementedError

    def query(self, cql: str, values: Values, options: QueryOptions) -> Result:
        """Execute a statement given as text."""
        raise NotImplementedError

    def prepare(self, cql: str, options: QueryOptions) -> Prepared:
        """Remember a statement; preparing it again gives the same id."""
        raise NotImplementedError

    def prepared(self, statement_id: bytes) -> Prepared:
        """A prepared statement by its id, as now planned; raises Unprepared if it is not known."""
        raise NotImplementedError

    def execute(self, statement_id: bytes, values: Values, options: QueryOptions) -> Result:
        """Execute a prepared statement; raises Unprepared if the id is not known."""
        raise NotImplementedError

    def batch(
        self,
        kind: BatchKind,
        statements: Sequence[tuple[str | bytes, Values]],
        options: QueryOptions,
    ) -> Result:
        """Execute a BATCH frame: statements by text (str) or prepared id (bytes), with values."""
        raise NotImplementedError

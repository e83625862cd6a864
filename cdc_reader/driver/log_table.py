"""One table as the cluster shows it."""

from __future__ import annotations

from functools import cached_property

from cdc_reader.driver.generations import TableGenerations
from cdc_reader.driver.log_source import CqlLogSource
from cdc_reader.driver.queries import Queries
from cdc_reader.driver.schema_source import SchemaSource, dropped
from cdc_reader.errors import TableNotFoundError
from cdc_reader.ids import TableName
from cdc_reader.ports import GenerationSource
from cdc_reader.schema import LogSchema

_VERSION = "SELECT schema_version FROM system.local"


class CdcTable:
    """The `LogTable` over CQL, on vnodes or tablets.

    A read of a table that was dropped, or of a column that was, is refused (QueryRefusedError);
    `schema` then tells which it is. A permission that was lost is a PermissionDeniedError. None
    of them is asked again.
    """

    def __init__(self, queries: Queries, name: TableName) -> None:
        self._queries = queries
        self._name = name
        self._found = False

    @cached_property
    def generations(self) -> GenerationSource:
        """The generations of the kind that the table has."""
        return TableGenerations(self._queries, self._name)

    def schema_version(self) -> object:
        """The version that the node asked is at; while nodes disagree it goes to and fro."""
        return [row["schema_version"] for row in self._queries.rows(_VERSION)]

    def schema(self) -> LogSchema:
        """The schema as it is now; raises what `SchemaSource.log_schema` does."""
        try:
            schema = SchemaSource(self._queries).log_schema(self._name)
        except TableNotFoundError:
            if self._found:
                raise dropped(self._name) from None
            raise
        self._found = True
        return schema

    def source(self, schema: LogSchema) -> CqlLogSource:
        """A source of rows with the columns of `schema`."""
        return CqlLogSource(self._queries, schema)

"""Copies of the tables that patterns such as ``shop.*`` find, also of tables that appear later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from attrs import define, field
from pyspark.sql import SparkSession

from cdc_reader.cluster import SchemaSource
from cdc_reader.cql.discovery import Discovery
from cdc_reader.cql.names import TableName
from cdc_reader.errors import ConfigurationError, MirrorError, TableNotFoundError
from pyspark_scylla_cdc.clusters import cluster_of
from pyspark_scylla_cdc.mirroring.capacity import check_capacity
from pyspark_scylla_cdc.mirroring.copy import Copy
from pyspark_scylla_cdc.mirroring.failures import raised_class, reason
from pyspark_scylla_cdc.options.source_options import SourceOptions

_LOOK = 5.0
"""Seconds between two looks for tables, each a small query for each keyspace."""
_OF_A_TABLE = {
    "TableNotFoundError",
    "CdcNotEnabledError",
    "UnsupportedTableError",
    "PermissionDeniedError",
    "CheckpointError",
}
"""Errors of a running query that concern its table alone: it was dropped, for example."""


@define(eq=False)
class FoundCopies:
    """Makes and starts copies of the tables that patterns find, and leaves out the others."""

    spark: SparkSession
    _options: SourceOptions
    _discovery: Discovery
    _make: Callable[[TableName], Copy]
    goes_on: bool
    """Whether tables are looked for after the start."""
    new: Sequence[TableName] = field(default=(), init=False)
    """The tables without a copy, as of the last look."""
    _tables: dict[Copy, TableName] = field(factory=dict, init=False)
    _looked: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        if not hasattr(self.spark, "_jsparkSession"):
            remedy = (
                "a Spark Connect session cannot look for tables in the cluster: name each table, "
                "or call mirror in a job on the cluster"
            )
            raise ConfigurationError("tables", str(self._discovery.patterns[0]), remedy)

    def is_due(self) -> bool:
        """Return whether it is time to look again."""
        return time.monotonic() - self._looked >= _LOOK

    def look(self) -> None:
        """Look for tables without a copy; raise errors of `cdc_reader.errors`."""
        self._looked = time.monotonic()
        options = self._options
        with options.as_option_errors():
            cluster = cluster_of(options.connection(), options.read)
            self.new = self._discovery.look(SchemaSource(cluster.connection).logged)

    def started(self, running: int) -> Iterator[Copy]:
        """Start copies of the new tables, beside those that run; yield each.

        A table that cannot be copied is left out with one line.
        """
        names, self.new = self.new, ()
        for name in names:
            copy = self._make(name)
            try:
                check_capacity(self.spark, str(name), running + 1)
                copy.start()
            except Exception as error:  # noqa: BLE001 - whatever the source or a target raises
                copy.end()
                self._discovery.leave_out(name, _told(error))
                continue
            running += 1
            self._tables[copy] = name
            self._discovery.take(name)
            yield copy

    def leaves_out(self, copy: Copy, error: MirrorError) -> bool:
        """Return whether the others go on without a copy that ended with this error.

        They do if its table was found, and was dropped, for example.
        """
        name, kind = self._tables.get(copy), raised_class(error.__cause__)
        if name is None or kind not in _OF_A_TABLE:
            return False
        copy.end()
        is_gone = kind == TableNotFoundError.__name__
        self._discovery.leave_out(name, TableNotFoundError(str(error)) if is_gone else error)
        return True


def _told(error: Exception) -> Exception:
    """Return an error of the source as it was before Spark wrapped it, in one line."""
    is_gone = raised_class(error) == TableNotFoundError.__name__
    return TableNotFoundError(reason(error)) if is_gone else MirrorError(reason(error))

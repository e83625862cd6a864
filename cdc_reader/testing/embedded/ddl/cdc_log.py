"""A base table and its log: enabling, following changes, detaching, dropping."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from cdc_reader.testing.embedded.cdc.log_schema import log_name, log_table
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.schema.catalog import Catalog, SchemaChange
from cdc_reader.testing.embedded.schema.table import Table


def check_cdc(table: Table, catalog: Catalog) -> None:
    """Refuse CDC on a table that cannot have it, or whose log's name is taken."""
    if not table.cdc.enabled:
        return
    full_name = f"{table.keyspace}.{table.name}"
    if table.is_cdc_log:
        raise InvalidRequest(
            f"Cannot create a CDC log for a table {full_name}, because creating nested CDC logs "
            "is not allowed"
        )
    if table.is_counter:
        raise InvalidRequest(
            f"Cannot create CDC log for table {full_name}. Counter support not implemented"
        )
    taken = catalog.keyspaces[table.keyspace].tables.get(log_name(table.name))
    if taken is not None and not taken.is_cdc_log:
        raise InvalidRequest(
            f"Cannot create CDC log table for table {full_name} because a table of name "
            f"{taken.keyspace}.{taken.name} already exists"
        )


@frozen
class Log:
    """What becomes of a table's log."""

    catalog: Catalog

    def of(self, base: Table) -> Table | None:
        """The log, also a detached one."""
        found = self.catalog.keyspaces[base.keyspace].tables.get(log_name(base.name))
        return found if found is not None and found.is_cdc_log else None

    def follow(self, base: Table) -> Iterator[SchemaChange]:
        """Make or update the log of a table with CDC; a disabled one stays as it is."""
        if not base.cdc.enabled:
            return
        existing = self.of(base)
        log = log_table(base, existing)
        self.catalog.keyspaces[base.keyspace].tables[log.name] = log
        change = "CREATED" if existing is None else "UPDATED"
        yield SchemaChange(change, "TABLE", log.keyspace, log.name)

    def base_of(self, log: Table) -> Table | None:
        """The table that writes this log now."""
        for table in self.catalog.keyspaces[log.keyspace].tables.values():
            if log_name(table.name) == log.name and table.cdc.enabled:
                return table
        return None

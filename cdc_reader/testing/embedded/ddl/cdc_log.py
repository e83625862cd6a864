"""Maintains the log of a base table: creates, updates, and drops or detaches it."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from cdc_reader.testing.embedded.cdc.log_schema import follow, log_name, log_table
from cdc_reader.testing.embedded.errors import InvalidRequest
from cdc_reader.testing.embedded.schema.catalog import Catalog, SchemaChange
from cdc_reader.testing.embedded.schema.table import Table

_REUSE_DELAY_US = 5_000_000


def check_cdc(table: Table, catalog: Catalog) -> None:
    """Reject CDC if the table does not support it, or if the log's name is taken."""
    if not table.cdc.enabled:
        return
    full_name = f"{table.keyspace}.{table.name}"
    if table.is_cdc_log:
        raise InvalidRequest(
            f"Cannot create a CDC log for a table {full_name}, because creating nested CDC logs "
            "is not allowed"
        )
    keyspace, profile = catalog.keyspaces[table.keyspace], catalog.profile
    if keyspace.tablets is not None and not profile.cdc_on_tablets:
        raise InvalidRequest(
            f"Cannot create CDC log for a table {full_name}, because keyspace uses tablets. See "
            "issue #16317."
        )
    if table.is_counter:
        raise InvalidRequest(
            f"Cannot create CDC log for table {full_name}. Counter support not implemented"
        )
    names = [column.name for column in log_table(table, profile, table.altered_us).columns]
    for name in names:
        if names.count(name) > 1:  # ScyllaDB 5.2 crashes here
            raise InvalidRequest(
                f"Cannot create CDC log for table {full_name}, because its column {name} has the "
                "name of a column of the log"
            )
    taken = keyspace.tables.get(log_name(table.name))
    if taken is not None and not taken.is_cdc_log:
        raise InvalidRequest(
            f"Cannot create CDC log table for table {full_name} because a table of name "
            f"{taken.keyspace}.{taken.name} already exists"
        )


def check_view(base: Table, with_cdc: bool) -> None:
    """Reject a materialized view of a log, and a materialized view with CDC."""
    if base.is_cdc_log:
        raise InvalidRequest("Materialized views cannot be created on CDC Log tables")
    if with_cdc:
        raise InvalidRequest("Cannot enable CDC for a materialized view")


@frozen
class Log:
    """Creates, updates and drops a table's log."""

    catalog: Catalog

    def of(self, base: Table) -> Table | None:
        """Return the log of `base`, even if the log is detached; None if there is none."""
        found = self.catalog.keyspaces[base.keyspace].tables.get(log_name(base.name))
        return found if found is not None and found.is_cdc_log else None

    def create(self, base: Table, now_us: int) -> Iterator[SchemaChange]:
        """Create the log of a table that has CDC enabled but no log yet."""
        if base.cdc.enabled:
            yield self._stored(log_table(base, self.catalog.profile, now_us), "CREATED")

    def follow(self, base: Table, now_us: int) -> Iterator[SchemaChange]:
        """Create or update the log; if CDC is disabled, older versions drop it."""
        log = self.of(base)
        if log is None:
            yield from self.create(base, now_us)
        elif base.cdc.enabled:
            yield self._stored(follow(log, base, now_us, self.catalog.profile), "UPDATED")
        elif not self.catalog.profile.keeps_disabled_log:
            del self.catalog.keyspaces[log.keyspace].tables[log.name]
            yield SchemaChange("DROPPED", "TABLE", log.keyspace, log.name)

    def base_of(self, log: Table) -> Table | None:
        """Return the table that currently writes to this log; None if there is none."""
        for table in self.catalog.keyspaces[log.keyspace].tables.values():
            if log_name(table.name) == log.name and table.cdc.enabled:
                return table
        return None

    def _stored(self, log: Table, change: str) -> SchemaChange:
        self.catalog.keyspaces[log.keyspace].tables[log.name] = log
        return SchemaChange(change, "TABLE", log.keyspace, log.name)


def columns_are_the_log_s_own(renaming: bool, attached: bool) -> InvalidRequest:
    """Return the error for altering a log's columns.

    `attached` is True if CDC is still enabled on the base table.
    """
    if attached and renaming:
        return InvalidRequest("Cannot rename a column of a CDC log table.")
    if attached:
        return InvalidRequest(
            "You cannot modify the set of columns of a CDC log table directly. Modify the base "
            "table instead."
        )
    if renaming:
        return InvalidRequest(
            "You cannot rename a column of a CDC log table. Although the base table has "
            "deactivated CDC, this table will continue being a CDC log table until it is dropped."
        )
    return InvalidRequest(
        "You cannot modify the set of columns of a CDC log table directly. Although the base "
        "table has deactivated CDC, this table will continue being a CDC log table until it is "
        "dropped. If you want to modify the columns in it, you can only do that by reenabling CDC "
        "on the base table, which will reattach this log table. Then you will be able to modify "
        "the columns in the base table, and that will have effect on the log table too. Modifying "
        "the columns of a CDC log table directly is never allowed."
    )


def check_not_just_dropped(name: str, log: Table | None, now_us: int) -> None:
    """Reject adding a column again just after it was dropped, while old writes may still arrive."""
    if log is None or name not in log.dropped:
        return
    _, dropped_us = log.dropped[name]
    wait_us = dropped_us + _REUSE_DELAY_US - now_us
    if wait_us > 0:
        raise InvalidRequest(
            f"Cannot add column {name} because a column with the same name was dropped too "
            f"recently. Please retry after {-(-wait_us // 1_000_000)} seconds"
        )

"""DESCRIBE: returns schema elements as the statements that create them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cdc_reader.cql.names import bare_or_quoted
from cdc_reader.cql.types import UserType
from cdc_reader.testing.embedded.cdc.log_schema import log_name
from cdc_reader.testing.embedded.errors import InvalidRequest, InvalidSyntax
from cdc_reader.testing.embedded.grammar.ast import Describe
from cdc_reader.testing.embedded.schema.catalog import Catalog, Keyspace
from cdc_reader.testing.embedded.schema.table import MURMUR3, Column, Kind, Table
from cdc_reader.testing.embedded.system.schema_tables import properties, replication

Row = tuple[str, ...]
_ELEMENT = ("keyspace_name", "type", "name")
_LOG_NOTE = """/* Do NOT execute this statement! It's only for informational purposes.
   A CDC log table is created automatically when creating the base with CDC
   enabled option or creating the vector index on the base table's vector column.

{}
*/"""


Description = tuple[tuple[str, ...], tuple[Row, ...]]
"""The column names and rows of the result of DESCRIBE; all values are text."""


def describe(statement: Describe, current: str | None, catalog: Catalog) -> Description:
    """Execute DESCRIBE on a connection whose keyspace is `current`."""
    if not catalog.profile.describes:  # drivers fall back to their own descriptions
        raise InvalidSyntax("line 1:0 no viable alternative at input 'DESCRIBE'")
    if statement.name is None and statement.what != "KEYSPACE":
        return _all(statement, current, catalog)
    return _described(_named(statement, current, catalog))


def _all(statement: Describe, current: str | None, catalog: Catalog) -> Description:
    """Describe all elements of a kind, in the current keyspace if there is one."""
    what = statement.what
    everything = [catalog.keyspaces[name] for name in sorted(catalog.keyspaces)]
    keyspaces = [catalog.keyspaces[current]] if current in catalog.keyspaces else everything
    match what:
        case "CLUSTER":
            snitch = "org.apache.cassandra.locator.SimpleSnitch"
            row = (catalog.cluster_name, MURMUR3, snitch)
            return ("cluster", "partitioner", "snitch"), (row,)
        case "KEYSPACES":
            listed = everything if catalog.profile.lists_all_keyspaces else keyspaces
            return _listed((k.name, "keyspace", bare_or_quoted(k.name)) for k in listed)
        case "TABLES":
            shown = ((k.name, t) for k in keyspaces for t in _tables(k, catalog))
            return _listed((keyspace, "table", bare_or_quoted(t.name)) for keyspace, t in shown)
        case "TYPES":
            return _listed(
                (k.name, "type", bare_or_quoted(n)) for k in keyspaces for n in sorted(k.types)
            )
        case "FUNCTIONS" | "AGGREGATES":
            return _listed(())
        case _:
            is_full = what.startswith("FULL")
            wanted = (k for k in everything if is_full or not k.system)
            return _described(row for k in wanted for row in _keyspace(k, statement, catalog))


def _tables(keyspace: Keyspace, catalog: Catalog) -> list[Table]:
    """Return a keyspace's tables, sorted by name; newer versions leave out the logs."""
    tables = (keyspace.tables[name] for name in sorted(keyspace.tables))
    return [table for table in tables if not (table.is_cdc_log and catalog.profile.new_words)]


def _named(statement: Describe, current: str | None, catalog: Catalog) -> Iterable[Row]:
    what, name = statement.what, statement.name
    if name is None or what == "KEYSPACE":
        wanted = current if name is None else name.name
        return _keyspace(_existing(wanted, catalog), statement, catalog)
    if what == "ANY" and name.keyspace is None and name.name in catalog.keyspaces:
        return _keyspace(catalog.keyspaces[name.name], statement, catalog)
    keyspace = _existing(name.keyspace or current, catalog)
    if what in ("TABLE", "COLUMNFAMILY", "ANY") and name.name in keyspace.tables:
        return _table(keyspace, keyspace.tables[name.name], statement.internals, catalog)
    if what in ("TYPE", "ANY") and name.name in keyspace.types:
        return [_type(keyspace.types[name.name])]
    kinds = {"TABLE": "Table ", "COLUMNFAMILY": "Table ", "TYPE": "User type "}
    label = kinds.get(what, "")
    raise InvalidRequest(f"{label}'{name.name}' not found in keyspace '{keyspace.name}'")


def _existing(name: str | None, catalog: Catalog) -> Keyspace:
    if name is None:
        raise InvalidRequest("No keyspace specified and no current keyspace")
    if name not in catalog.keyspaces:
        raise InvalidRequest(f"'{name}' not found in keyspaces")
    return catalog.keyspaces[name]


def _listed(rows: Iterable[Row]) -> Description:
    return _ELEMENT, tuple(rows)


def _described(rows: Iterable[Row]) -> Description:
    return (*_ELEMENT, "create_statement"), tuple(rows)


def _keyspace(keyspace: Keyspace, statement: Describe, catalog: Catalog) -> Iterator[Row]:
    text = (
        f"CREATE KEYSPACE {bare_or_quoted(keyspace.name)} WITH replication = "
        f"{_map(replication(keyspace))} AND durable_writes = {str(keyspace.durable_writes).lower()}"
    )
    if catalog.profile.tablets:
        enabled = str(keyspace.tablets is not None).lower()
        text += f" AND tablets = {{'enabled': {enabled}}}"
    yield keyspace.name, "keyspace", bare_or_quoted(keyspace.name), f"{text};"
    if statement.only:
        return
    yield from (_type(each) for each in keyspace.types.values())
    for table in _tables(keyspace, catalog):
        yield from _table(keyspace, table, statement.internals, catalog)


def _type(user_type: UserType) -> Row:
    fields = ",\n".join(f"    {bare_or_quoted(name)} {field}" for name, field in user_type.fields)
    name = f"{bare_or_quoted(user_type.keyspace)}.{bare_or_quoted(user_type.name)}"
    return (
        user_type.keyspace,
        "type",
        bare_or_quoted(user_type.name),
        f"CREATE TYPE {name} (\n{fields}\n);",
    )


def _table(keyspace: Keyspace, table: Table, internals: bool, catalog: Catalog) -> Iterator[Row]:
    """Describe a table; with `internals`, including its id and the columns dropped from it.

    Newer versions add a row with the properties of the table's log. If the table is itself a log,
    they return its CREATE statement inside a comment.
    """
    dropped = sorted(table.dropped) if internals and catalog.profile.tablets else []
    text = f"CREATE TABLE {_name(table)} (\n{_columns(table, dropped)}\n) WITH "
    if internals:
        text += f"ID = {table.id}\nAND "
    if table.clustering:
        order = (
            f"{bare_or_quoted(c.name)} {'DESC' if c.descending else 'ASC'}"
            for c in table.clustering
        )
        text += f"CLUSTERING ORDER BY ({', '.join(order)})\n    AND "
    text += f"{_options(table, catalog)};\n" + "".join(_drops(table, dropped))
    if table.is_cdc_log and catalog.profile.new_words:
        text = _LOG_NOTE.format(text)
    yield keyspace.name, "table", bare_or_quoted(table.name), text
    log = keyspace.tables.get(log_name(table.name))
    if table.cdc.enabled and log is not None and catalog.profile.new_words:
        altered = f"ALTER TABLE {_name(log)} WITH {_options(log, catalog)};\n"
        yield keyspace.name, "table", bare_or_quoted(log.name), altered


def _name(table: Table) -> str:
    return f"{bare_or_quoted(table.keyspace)}.{bare_or_quoted(table.name)}"


def _drops(table: Table, dropped: Iterable[str]) -> Iterator[str]:
    """Yield the statements that drop the dropped columns, and add those that were added again."""
    for name in dropped:
        _, at = table.dropped[name]
        yield f"\nALTER TABLE {_name(table)} DROP {bare_or_quoted(name)} USING TIMESTAMP {at};"
        if name in table.by_name:
            yield f"\nALTER TABLE {_name(table)} ADD {_column(table.by_name[name])};"


def _column(column: Column) -> str:
    static = " static" if column.kind is Kind.STATIC else ""
    return f"{bare_or_quoted(column.name)} {column.type}{static}"


def _columns(table: Table, dropped: Sequence[str]) -> str:
    """Return the columns and the key, with the `dropped` columns as they were."""
    lines = [
        f"    {_column(column)}" for column in table.select_order if column.name not in dropped
    ]
    lines += [f"    {bare_or_quoted(name)} {table.dropped[name][0]}" for name in dropped]
    partition = ", ".join(bare_or_quoted(column.name) for column in table.partition_key)
    if len(table.partition_key) > 1:
        partition = f"({partition})"
    key = ", ".join([partition, *(bare_or_quoted(column.name) for column in table.clustering)])
    return ",\n".join([*lines, f"    PRIMARY KEY ({key})"])


def _options(table: Table, catalog: Catalog) -> str:
    newer = catalog.profile.new_words
    separator = ", " if newer else ","
    found = properties(table, catalog.profile)
    if newer:
        for name in ("dclocal_read_repair_chance", "read_repair_chance"):
            del found[name]
    shown = {name: _value(found[name], separator) for name in sorted(found)}
    if newer and table.cdc_options is not None:
        shown["cdc"] = _map(table.cdc_options.as_map())
    if newer:
        default = {"mode": "timeout", "propagation_delay_in_seconds": "3600"}
        shown["tombstone_gc"] = _map(table.options.get("tombstone_gc", default))
    return "\n    AND ".join(f"{name} = {value}" for name, value in shown.items())


def _value(value: Any, separator: str) -> str:
    match value:
        case str():
            return _text(value)
        case Mapping():
            return _map(value, separator)
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _map(values: Mapping[str, str], separator: str = ", ") -> str:
    entries = (f"{_text(key)}: {_text(value)}" for key, value in sorted(values.items()))
    return f"{{{separator.join(entries)}}}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

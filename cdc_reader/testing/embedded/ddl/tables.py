"""Executes CREATE TABLE and DROP TABLE."""

from __future__ import annotations

from attrs import evolve

from cdc_reader.cql.types import Native
from cdc_reader.testing.embedded.ddl.cdc_log import Log, check_cdc
from cdc_reader.testing.embedded.ddl.columns import (
    check_counters,
    check_static,
    column_type,
    key_column,
)
from cdc_reader.testing.embedded.ddl.properties import cdc_options, table_options
from cdc_reader.testing.embedded.errors import (
    AlreadyExists,
    ConfigurationError,
    InvalidRequest,
    Unauthorized,
)
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.schema.catalog import Catalog, Keyspace, SchemaChange
from cdc_reader.testing.embedded.schema.names import check_table_name
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table, new_id
from cdc_reader.testing.embedded.storage.database import Database

PAXOS_SUFFIX = "$paxos"
_NO_COMPACT_STORAGE = (
    "Support for the deprecated feature of 'CREATE TABLE WITH COMPACT STORAGE' is disabled and "
    "will eventually be removed in a future version.  To enable, set the "
    "'enable_create_table_with_compact_storage' config option to 'true'."
)


def create_table(
    statement: ast.CreateTable, keyspace: str, catalog: Catalog, now_us: int
) -> SchemaChange | None:
    """Execute CREATE TABLE; with CDC, also create the log."""
    tables, name = catalog.keyspace(keyspace).tables, statement.table.name
    if catalog.keyspace(keyspace).system:
        raise Unauthorized(f"Cannot CREATE <table {keyspace}.{name}>")
    check_table_name(name, catalog.profile)
    options = table_options(statement.properties, catalog, keyspace)
    table = Table(
        keyspace,
        name,
        options.pop("id", None) or new_id(now_us),
        _columns(statement, keyspace, catalog),
        cdc_options=cdc_options(statement.properties, catalog.profile),
        options=options,
        altered_us=now_us,
    )
    if name in tables:
        if statement.if_not_exists:
            return None
        raise AlreadyExists(
            f'Cannot add already existing table "{name}" to keyspace "{keyspace}"', keyspace, name
        )
    check_counters(table)
    check_cdc(table, catalog)
    _check_replicas(catalog.keyspace(keyspace), catalog)
    tables[name] = table
    changes = list(Log(catalog).create(table, now_us))
    created = catalog.changed(SchemaChange("CREATED", "TABLE", keyspace, name))
    for change in changes:
        catalog.changed(change)
    return created


def _check_replicas(keyspace: Keyspace, catalog: Catalog) -> None:
    """Reject a table that uses tablets if its keyspace has more replicas than there are nodes."""
    if keyspace.tablets is None or catalog.nodes is None:
        return
    for name, factor in keyspace.replication.items():
        if factor.isdecimal() and int(factor) > catalog.nodes():
            raise ConfigurationError(
                f"Datacenter {name} doesn't have enough token-owning nodes for "
                f"replication_factor={factor}"
            )


def drop_table(
    statement: ast.DropTable, keyspace: str, catalog: Catalog, database: Database
) -> SchemaChange | None:
    """Execute DROP TABLE, which also drops the table's log; reject dropping a log in use."""
    name = statement.table.name
    if statement.if_exists and name not in getattr(catalog.keyspaces.get(keyspace), "tables", ()):
        return None
    if catalog.profile.new_words and not catalog.has(keyspace, name):
        raise InvalidRequest(f"Cannot drop non existing table '{name}' in keyspace '{keyspace}'.")
    table, log = catalog.table(keyspace, name), Log(catalog)
    if table.is_cdc_log and log.base_of(table) is not None:
        shown = name if catalog.profile.new_words else f"<table {keyspace}.{name}>"
        raise Unauthorized(f"Cannot DROP cdc log table {shown}")
    if catalog.keyspace(keyspace).system:
        raise Unauthorized(f"Cannot DROP <table {keyspace}.{name}>")
    paxos = catalog.keyspaces[keyspace].tables.get(name + PAXOS_SUFFIX)
    dropped = [each for each in (table, log.of(table), paxos) if each is not None]
    for each in dropped:
        del catalog.keyspaces[keyspace].tables[each.name]
        database.drop(each.id)
    changes = [SchemaChange("DROPPED", "TABLE", keyspace, each.name) for each in dropped]
    for change in changes:
        catalog.changed(change)
    return changes[0]


def lacks_paxos(table: Table, catalog: Catalog) -> bool:
    """Return True if a table needs a Paxos table, as it uses tablets, and does not have it."""
    keyspace = catalog.keyspace(table.keyspace)
    uses_one = keyspace.tablets is not None and catalog.profile.paxos_tables
    return uses_one and table.name + PAXOS_SUFFIX not in keyspace.tables


def ensure_paxos(table: Table, catalog: Catalog, now_us: int) -> None:
    """Create the Paxos table of a table that uses tablets, unless the Paxos table exists."""
    if not lacks_paxos(table, catalog):
        return
    name = table.name + PAXOS_SUFFIX
    keyspace = catalog.keyspaces[table.keyspace]
    blobs = [Column(name, Native("blob")) for name in ("most_recent_commit", "proposal")]
    names = ("most_recent_commit_at", "promise", "proposal_ballot")
    columns = (
        Column("row_key", Native("blob"), Kind.PARTITION_KEY, 0),
        *blobs,
        *(Column(each, Native("timeuuid")) for each in names),
    )
    options = {"comment": f"Paxos state for {table.keyspace}.{table.name}", "gc_grace_seconds": 0}
    keyspace.tables[name] = Table(
        table.keyspace, name, new_id(now_us), columns, options=options, altered_us=now_us
    )
    catalog.changed(SchemaChange("CREATED", "TABLE", table.keyspace, name))


def _columns(statement: ast.CreateTable, keyspace: str, catalog: Catalog) -> tuple[Column, ...]:
    if statement.properties.compact_storage:
        raise InvalidRequest(
            _NO_COMPACT_STORAGE
            if catalog.profile.checks_options
            else "COMPACT STORAGE is not supported by this server"
        )
    key = _primary_key(statement)
    definitions = _definitions(statement)
    for name in (*key.partition, *key.clustering):
        if name not in definitions:
            raise InvalidRequest(f"Unknown definition {name} referenced in PRIMARY KEY")
        if definitions[name].static:
            raise InvalidRequest(f"Static column {name} cannot be part of the PRIMARY KEY")
    descending = _descending(statement.properties, key)
    columns = []
    for name, definition in definitions.items():
        column = Column(name, column_type(definition, keyspace, catalog))
        if name in key.partition:
            place = key.partition.index(name)
            column = key_column(evolve(column, kind=Kind.PARTITION_KEY, position=place))
        elif name in key.clustering:
            place = key.clustering.index(name)
            column = key_column(
                Column(name, column.type, Kind.CLUSTERING, place, descending.get(name, False))
            )
        else:
            kind = check_static(definition.static, bool(key.clustering))
            column = evolve(column, kind=kind)
        columns.append(column)
    return tuple(columns)


def _primary_key(statement: ast.CreateTable) -> ast.PrimaryKey:
    # "specifed" is ScyllaDB's spelling.
    if not statement.primary_keys:
        raise InvalidRequest("No PRIMARY KEY specifed (exactly one required)")
    if len(statement.primary_keys) > 1:
        raise InvalidRequest("Multiple PRIMARY KEYs specifed (exactly one required)")
    key = statement.primary_keys[0]
    names = (*key.partition, *key.clustering)
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"Multiple definitions of {name} in PRIMARY KEY")
    return key


def _definitions(statement: ast.CreateTable) -> dict[str, ast.ColumnDefinition]:
    definitions: dict[str, ast.ColumnDefinition] = {}
    for definition in statement.columns:
        if definition.name in definitions:
            raise InvalidRequest(f"Multiple definition of identifier {definition.name}")
        definitions[definition.name] = definition
    return definitions


def _descending(properties: ast.Properties, key: ast.PrimaryKey) -> dict[str, bool]:
    order = dict(properties.clustering_order)
    for name in order:
        if name not in key.clustering:
            raise InvalidRequest(
                "Only clustering key columns can be defined in CLUSTERING ORDER directive"
            )
    for name, expected in zip(order, key.clustering, strict=False):
        if name != expected:
            raise InvalidRequest(
                "The order of columns in the CLUSTERING ORDER directive must be the one of the "
                f"clustering key ({expected} must appear before {name})"
                if expected in order
                else f"Missing CLUSTERING ORDER for column {expected}"
            )
    return order

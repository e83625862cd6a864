"""All keyspaces of a server, and the listeners for their changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

from attrs import define, evolve, field, frozen

from cdc_reader.cql.types import UserType
from cdc_reader.testing.embedded.errors import InvalidRequest, Unauthorized
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.table import Table


@define
class Keyspace:
    """A keyspace: its replication map, and its tables and user types by name.

    If `system` is True, clients cannot alter or drop the keyspace. `tablets` is the initial number
    of tablets (0: the server's choice), or None for vnodes. `consistency` is the keyspace's
    option `consistency`, or None for ``eventual``.
    """

    name: str
    replication: Mapping[str, str]
    durable_writes: bool = True
    tablets: int | None = None
    consistency: str | None = None
    tables: dict[str, Table] = field(factory=dict)
    types: dict[str, UserType] = field(factory=dict)
    system: bool = False


@frozen
class SchemaChange:
    """The effect of a DDL statement, in the terms of the native protocol.

    `change` is CREATED, UPDATED or DROPPED; `target` is KEYSPACE, TABLE or TYPE; `name` is None for
    a keyspace. The client that sent the statement gets `warnings`.
    """

    change: str
    target: str
    keyspace: str
    name: str | None = None
    warnings: tuple[str, ...] = ()


@define
class Catalog:
    """Keyspaces by name, the schema version, and the listeners for schema changes.

    `profile` is the server's version, which decides what a schema may contain. Keyspaces may have
    replicas in `datacenters`, in the cluster named `cluster_name`. With `prefers_tablets`,
    keyspaces use tablets by default. `nodes` returns the number of nodes that can store replicas;
    without it, there are as many as needed.
    """

    profile: Profile = Profile()
    keyspaces: dict[str, Keyspace] = field(factory=dict)
    version: UUID = field(factory=uuid4)
    listeners: list[Callable[[SchemaChange], Any]] = field(factory=list)
    datacenters: tuple[str, ...] = ("datacenter1",)
    cluster_name: str = "embedded"
    prefers_tablets: bool = False
    nodes: Callable[[], int] | None = None

    def keyspace(self, name: str) -> Keyspace:
        """Return the keyspace; raise InvalidRequest, with ScyllaDB's message, if there is none."""
        try:
            return self.keyspaces[name]
        except KeyError:
            raise InvalidRequest(f"Keyspace {name} does not exist") from None

    def modifiable(self, name: str) -> Keyspace:
        """Return the keyspace; raise Unauthorized if it is a system keyspace."""
        if (found := self.keyspace(name)).system:
            raise Unauthorized(f"{name} keyspace is not user-modifiable.")
        return found

    def table(self, keyspace: str, name: str) -> Table:
        """Return the table; raise InvalidRequest, with ScyllaDB's message, if there is none."""
        try:
            return self.keyspace(keyspace).tables[name]
        except KeyError:
            raise InvalidRequest(f"unconfigured table {name}") from None

    def has(self, keyspace: str, name: str) -> bool:
        """Return True if the table exists."""
        return keyspace in self.keyspaces and name in self.keyspaces[keyspace].tables

    def copy(self) -> Catalog:
        """Return a copy without listeners, which later changes leave as it is."""
        copies = {
            name: evolve(keyspace, tables=dict(keyspace.tables), types=dict(keyspace.types))
            for name, keyspace in self.keyspaces.items()
        }
        return evolve(self, keyspaces=copies, listeners=[])

    def changed(self, change: SchemaChange) -> SchemaChange:
        """Set a new schema version and notify the listeners; return `change`."""
        self.version = uuid4()
        for listener in self.listeners:
            listener(change)
        return change

"""Executes CREATE, ALTER and DROP KEYSPACE."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_reader.testing.embedded.errors import (
    AlreadyExists,
    ConfigurationError,
    InvalidRequest,
    InvalidSyntax,
    Unauthorized,
)
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.catalog import Catalog, Keyspace, SchemaChange
from cdc_reader.testing.embedded.schema.names import check_keyspace_name
from cdc_reader.testing.embedded.storage.database import Database

_LOCATOR = "org.apache.cassandra.locator."
_STRATEGIES = ("SimpleStrategy", "NetworkTopologyStrategy", "LocalStrategy", "EverywhereStrategy")
_DISCOURAGED = (
    "{0} replication class is not recommended, but was used for keyspace {1}. You may suppress "
    "this warning by delisting {0} from replication_strategy_warn_list configuration option, or "
    "make it into an error by listing this replication strategy on replication_strategy_fail_list."
)
_FEW_REPLICAS = (
    "Using Replication Factor {}={} lower than the minimum_replication_factor_warn_threshold=3 is "
    "not recommended."
)
_PROPERTIES = frozenset(["replication", "durable_writes", "tablets", "storage", "consistency"])


def create_keyspace(statement: ast.CreateKeyspace, catalog: Catalog) -> SchemaChange | None:
    """Execute CREATE KEYSPACE; return None if IF NOT EXISTS leaves the schema unchanged."""
    check_keyspace_name(statement.name, catalog.profile)
    properties = _checked(statement.properties, catalog.profile)
    if not properties and not catalog.profile.default_replication:
        raise InvalidSyntax("line 1:0 : Syntax error")
    replication = _replication(properties.get("replication"), statement.name, catalog)
    if statement.name in catalog.keyspaces:
        if statement.if_not_exists:
            return None
        raise AlreadyExists(f'Cannot add existing keyspace "{statement.name}"', statement.name)
    tablets = _tablets(properties)
    if tablets is not None and replication["class"].endswith("SimpleStrategy"):
        raise ConfigurationError("SimpleStrategy doesn't support tablet replication")
    if "tablets" not in properties and replication["class"].endswith("NetworkTopologyStrategy"):
        tablets = 0 if catalog.prefers_tablets else None
    consistency = str(properties.get("consistency", "eventual"))
    catalog.keyspaces[statement.name] = Keyspace(
        statement.name,
        replication,
        durable_writes=_is_true(properties.get("durable_writes", True)),
        tablets=tablets,
        consistency=consistency if consistency != "eventual" else None,
    )
    return catalog.changed(SchemaChange("CREATED", "KEYSPACE", statement.name))


def alter_keyspace(statement: ast.AlterKeyspace, catalog: Catalog) -> SchemaChange:
    """Execute ALTER KEYSPACE, which changes replication, initial tablets and durable writes."""
    if statement.name not in catalog.keyspaces:
        raise InvalidRequest(f"Can't find a keyspace {statement.name}")
    keyspace = catalog.modifiable(statement.name)
    properties = _checked(statement.properties, catalog.profile)
    if "tablets" in properties and (_tablets(properties) is None) != (keyspace.tablets is None):
        raise InvalidRequest("Cannot alter replication strategy vnode/tablets flavor")
    if "tablets" in properties:
        keyspace.tablets = _tablets(properties)
    if "replication" in properties:
        old = keyspace.replication
        uses_tablets = keyspace.tablets is not None
        new = _replication(properties["replication"], keyspace.name, catalog, old, uses_tablets)
        if uses_tablets:
            _check_step(old, new)
        keyspace.replication = new
    if "durable_writes" in properties:
        keyspace.durable_writes = _is_true(properties["durable_writes"])
    return catalog.changed(SchemaChange("UPDATED", "KEYSPACE", statement.name))


def drop_keyspace(
    statement: ast.DropKeyspace, catalog: Catalog, database: Database
) -> SchemaChange | None:
    """Execute DROP KEYSPACE, which also drops the keyspace's tables, logs and data."""
    keyspace = catalog.keyspaces.get(statement.name)
    if keyspace is None:
        if statement.if_exists:
            return None
        raise ConfigurationError(f"Cannot drop non existing keyspace '{statement.name}'.")
    if keyspace.system:
        raise Unauthorized(f"Cannot DROP <keyspace {statement.name}>")
    del catalog.keyspaces[statement.name]
    for table in keyspace.tables.values():
        database.drop(table.id)
    return catalog.changed(SchemaChange("DROPPED", "KEYSPACE", statement.name))


def replication_warnings(
    statement: ast.CreateKeyspace | ast.AlterKeyspace, profile: Profile
) -> tuple[str, ...]:
    """Return the warnings about the replication that a statement requests."""
    given = statement.properties.values.get("replication")
    if not profile.warns_of_replication or not isinstance(given, Mapping):
        return ()
    strategy = given.get("class", "")
    is_simple = strategy.endswith("SimpleStrategy")
    discouraged = (_DISCOURAGED.format(strategy, statement.name),) if is_simple else ()
    few = (_FEW_REPLICAS.format(*each) for each in sorted(given.items()) if each[1] in ("1", "2"))
    return *discouraged, *few


def _checked(properties: ast.Properties, profile: Profile) -> Mapping[str, ast.PropertyValue]:
    known = _PROPERTIES if profile.tablets else _PROPERTIES - {"tablets"}
    if unknown := properties.values.keys() - known:
        raise InvalidSyntax(f"Unknown property '{min(unknown)}'")
    for name in ("replication", "tablets"):
        if not isinstance(properties.values.get(name, {}), Mapping):
            raise InvalidSyntax(f"Invalid value for property '{name}'. It should be a map.")
    return properties.values


def _is_true(value: ast.PropertyValue) -> bool:
    return str(value).lower() in ("true", "yes", "1")


def _replication(
    value: ast.PropertyValue | None,
    name: str,
    catalog: Catalog,
    old: Mapping[str, str] | None = None,
    uses_tablets: bool = False,
) -> dict[str, str]:
    """Return the replication map; a `replication_factor` applies to each datacenter."""
    profile = catalog.profile
    if value is None and profile.default_replication:
        value = {"class": "NetworkTopologyStrategy"}
    if not isinstance(value, Mapping) or "class" not in value:
        raise ConfigurationError("Missing mandatory replication strategy class")
    strategy = value["class"].removeprefix(_LOCATOR)
    if strategy not in _STRATEGIES:
        raise ConfigurationError(f"unable to find class '{value['class']}'")
    factors = {name: factor for name, factor in value.items() if name != "class"}
    known = {"replication_factor"} if strategy == "SimpleStrategy" else set[str]()
    if strategy == "NetworkTopologyStrategy":
        factors = _by_datacenter(factors, catalog, old or {}, uses_tablets)
        known = set(catalog.datacenters)
    if strategy == "SimpleStrategy" and "replication_factor" not in factors:
        raise ConfigurationError("SimpleStrategy requires a replication_factor strategy option.")
    for option, factor in factors.items():
        if option not in known:
            where = strategy if profile.new_words else f"{_LOCATOR}{strategy} for keyspace {name}"
            raise ConfigurationError(f"Unrecognized strategy option {{{option}}} passed to {where}")
        if not factor.isdigit():
            raise ConfigurationError(
                f"Replication factor must be numeric and non-negative, found '{factor}'"
            )
    return {"class": _LOCATOR + strategy, **factors}


def _check_step(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Reject a change of replication that tablets do not support.

    Tablets require NetworkTopologyStrategy. A statement may add or remove at most one replica
    of one datacenter.
    """
    if not new["class"].endswith("NetworkTopologyStrategy"):
        raise InvalidRequest("Cannot alter replication strategy vnode/tablets flavor")
    names = (old.keys() | new.keys()) - {"class"}
    if sum(abs(int(new.get(name, old.get(name, 0))) - int(old.get(name, 0))) for name in names) > 1:
        raise InvalidRequest("Only one DC's RF can be changed at a time and not by more than 1")


def _by_datacenter(
    given: dict[str, str], catalog: Catalog, old: Mapping[str, str], uses_tablets: bool
) -> dict[str, str]:
    before = {name: n for name, n in old.items() if name not in ("class", "replication_factor")}
    for name in before:
        if uses_tablets and name not in given and catalog.profile.new_words:
            raise ConfigurationError(
                f"Attempted to implicitly drop replicas in datacenter {name}. If this is the "
                f"desired behavior, set replication factor to 0 in {name} explicitly."
            )
    factor = given.pop("replication_factor", None)
    if not given and factor is None:
        default = "1" if catalog.profile.default_replication and not old else None
        factor = old.get("replication_factor", default)
        if factor is None:
            raise ConfigurationError("Configuration for at least one datacenter must be present")
    if factor is None:
        return given
    return {**dict.fromkeys(catalog.datacenters, factor), **before, **given}


def _tablets(properties: Mapping[str, ast.PropertyValue]) -> int | None:
    """Return the initial number of tablets; 0 lets the server choose, None means vnodes."""
    value = properties.get("tablets")
    if not isinstance(value, Mapping):
        return None
    enabled, initial = value.get("enabled", "true"), value.get("initial", "0")
    if enabled not in ("true", "false"):
        raise ConfigurationError(f"Tablets enabled value must be true or false; found: {enabled}")
    if not initial.isdigit():
        raise ConfigurationError(f"Initial tablets value should be numeric; found {initial}")
    if unknown := value.keys() - {"enabled", "initial"}:
        raise ConfigurationError(f"Unrecognized tablets option {min(unknown)}")
    return int(initial) if enabled == "true" else None

"""Validates and resolves the names of keyspaces, tables and types."""

from __future__ import annotations

import re

from cdc_reader.cql import types as cql_type
from cdc_reader.cql.types import CqlType, MapType, Native, SetType, UserType, VectorType
from cdc_reader.testing.embedded.errors import InvalidRequest, InvalidSyntax
from cdc_reader.testing.embedded.grammar.ast import TableName
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.catalog import Catalog

_WORD = re.compile(r"\w+", re.ASCII)
_LONG, _SHORT = 192, 48
_MOST_DIMENSIONS = 16_000


def check_keyspace_name(name: str, profile: Profile) -> None:
    """Raise InvalidRequest if the keyspace name is not allowed."""
    if name.lower() in ("system", "system_schema"):
        raise InvalidRequest("system keyspace is not user-modifiable")
    if not _WORD.fullmatch(name):
        raise InvalidRequest(f'"{name}" is not a valid keyspace name')
    _check_length("Keyspace", name, profile)


def check_table_name(name: str, profile: Profile) -> None:
    """Raise InvalidRequest if the table name is not allowed."""
    if not _WORD.fullmatch(name):
        raise InvalidRequest(
            f'"{name}" is not a valid table name (must be alphanumeric character only: '
            "[0-9A-Za-z]+)"
        )
    _check_length("Table", name, profile)


def _check_length(what: str, name: str, profile: Profile) -> None:
    limit = _LONG if profile.long_names else _SHORT
    if len(name) > limit:
        raise InvalidRequest(
            f'{what} names shouldn\'t be more than {limit} characters long (got "{name}")'
        )


def qualified(name: TableName, keyspace: str | None) -> tuple[str, str]:
    """Return (keyspace, name); the keyspace defaults to the connection's."""
    found = name.keyspace or keyspace
    if found is None:
        raise InvalidRequest(
            "No keyspace has been specified. USE a keyspace, or explicitly specify "
            "keyspace.tablename"
        )
    return found, name.name


def resolve_type(catalog: Catalog, keyspace: str, text: str) -> CqlType:
    """Return the type that `text` names in a keyspace; raise InvalidRequest if there is none."""

    def user_type(name: str) -> UserType:
        types = catalog.keyspace(keyspace).types
        if name in types:  # a quoted name may contain dots; the name of a keyspace may not
            return types[name]
        *places, bare = name.split(".", 1)
        if places and places != [keyspace]:
            raise InvalidRequest(
                f"Statement on keyspace {keyspace} cannot refer to a user type in keyspace "
                f"{places[0]}; user types can only be used in the keyspace they are defined in"
            )
        if bare not in types:
            raise InvalidRequest(f"Unknown type {keyspace}.{bare}")
        return types[bare]

    try:
        found = cql_type.parse(text, user_type)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    for part in cql_type.parts(found):
        _check_part(part, catalog.profile)
    return found


def _check_part(part: CqlType, profile: Profile) -> None:
    match part:
        case VectorType() if not profile.vectors:
            raise InvalidSyntax("line 1:0 no viable alternative at input '<'")
        case SetType(Native("duration")):
            raise InvalidRequest(f"Durations are not allowed inside sets: {part}")
        case MapType(Native("duration")):
            raise InvalidRequest(f"Durations are not allowed as map keys: {part}")
        case VectorType(_, dimension) if not 1 <= dimension <= _MOST_DIMENSIONS:
            raise InvalidRequest(f"Vectors have a dimension of 1 to {_MOST_DIMENSIONS}: {part}")

"""Errors about columns of a table that its copy cannot have."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_reader.errors import SchemaError


def lacks_key(target: str, name: str, there: Iterable[str]) -> SchemaError:
    """Return the error for a copy without a column of the key."""
    return SchemaError(
        f"{target} lacks key column {name}, and has the columns {', '.join(there)}: a key column "
        "of the table was renamed, or this is a copy of another table; delete target and "
        "checkpoint to start over"
    )


def other_type(target: str, column: str, there: object, wanted: object) -> SchemaError:
    """Return the error for a column, or a field inside it, whose type has changed."""
    return SchemaError(
        f"{target} has {column} of type {there}, and the table's values are of type {wanted}: "
        "delete target and checkpoint to start over"
    )


def renamed_field(target: str, field: str) -> SchemaError:
    """Return the error for a field inside a column that the table's type no longer has."""
    return SchemaError(
        f"{target} has the field {field}, which the table's type lacks: the field was renamed; "
        "delete target and checkpoint to start over"
    )


def new_in_map(target: str, field: str, remedy: str) -> SchemaError:
    """Return the error for a field inside a map that deltalake cannot add."""
    return SchemaError(
        f"{target} lacks the field {field}, which the table's type has gained inside a map, and "
        f"deltalake cannot add it: {remedy}"
    )


def taken_name(target: str, name: str) -> SchemaError:
    """Return the error for a new column with the name of one of the copy's own columns."""
    return SchemaError(
        f"the table has gained a column {name}, and {target} uses this name for a column of its "
        "own: delete target and checkpoint to start over"
    )


def of_earlier_version(target: str) -> SchemaError:
    """Return the error for a copy that has other columns of its own than this version makes."""
    return SchemaError(
        f"{target} was made by an earlier version, with other columns of its own: delete target "
        "and checkpoint to start over"
    )

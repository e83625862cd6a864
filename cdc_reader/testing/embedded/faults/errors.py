"""The error responses of faults, with the codes, messages and counts that ScyllaDB sends.

The counts describe a single replica that does not respond.
"""

from __future__ import annotations

import re

from cdc_reader.cql.names import LOG_SUFFIX
from cdc_reader.testing.embedded.errors import (
    CONSISTENCIES,
    CqlError,
    Overloaded,
    ReadTimeout,
    ServerError,
    Unauthorized,
    Unavailable,
)
from cdc_reader.testing.embedded.faults.fault import FaultKind, Strike

_TABLE = re.compile(
    r'\b(?:from|into|update|table(?:\s+if\s+not\s+exists)?)\s+((?:"?\w+"?\s*\.\s*)?"?\w+"?)',
    re.IGNORECASE,
)


def error_of(strike: Strike, user: str) -> CqlError | None:
    """Return the error to send `user` instead of a result; None to execute the statement."""
    statement, level = strike.statement, strike.statement.consistency
    name = CONSISTENCIES[level]
    match strike.kind:
        case FaultKind.OVERLOADED:
            return Overloaded(
                "too many in-flight requests (configured via max_concurrent_requests_per_shard): 1"
            )
        case FaultKind.READ_TIMEOUT:
            return ReadTimeout(
                f"Operation timed out for {_table(statement.cql)} - received only 0 responses "
                f"from 1 CL={name}.",
                level,
                received=0,
                block_for=1,
                data_present=False,
            )
        case FaultKind.UNAVAILABLE:
            return Unavailable(
                f"Cannot achieve consistency level for cl {name}. Requires 1, alive 0",
                level,
                required=1,
                alive=0,
            )
        case FaultKind.SERVER_ERROR:
            return ServerError("a server error, as asked for")
        case FaultKind.UNAUTHORIZED:
            permission, resource = _needed(statement.cql)
            return Unauthorized(
                f"User {user} has no {permission} permission on <{resource}> or any of its parents"
            )
        case _:
            return None


def _table(cql: str) -> str:
    found = _TABLE.search(cql)
    return found.group(1).replace('"', "") if found else "?"


def _needed(cql: str) -> tuple[str, str]:
    """Return the (permission, resource) that a statement requires.

    Reading a log requires SELECT on its base table.
    """
    table = _table(cql)
    match cql.split(maxsplit=1)[0].upper():
        case "SELECT":
            return "SELECT", f"table {table.removesuffix(LOG_SUFFIX)}"
        case "CREATE":
            return "CREATE", f"keyspace {table.partition('.')[0]}"
        case "ALTER" | "DROP" as verb:
            return verb, f"table {table}"
        case _:
            return "MODIFY", f"table {table}"

"""The only module that translates the driver's errors into errors of `cdc_reader.errors`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import cassandra
from cassandra import (
    AuthenticationFailed,
    FunctionFailure,
    OperationTimedOut,
    RequestExecutionException,
    RequestValidationException,
    Unauthorized,
    UnresolvableContactPoints,
    protocol,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException

from cdc_reader.cluster.tls import Refusal
from cdc_reader.cql.names import bare_or_quoted
from cdc_reader.errors import (
    AuthenticationFailedError,
    CdcError,
    ConnectionFailedError,
    OverloadedError,
    PermissionDeniedError,
    QueryRefusedError,
    RequestTimeoutError,
    SourceError,
    TransientError,
)

_MISSING = re.compile(
    r"User (?P<role>.+?) has no (?P<permission>[A-Z]+) permission on "
    r"<(?P<kind>table|keyspace) (?P<name>\w+(?:\.\w+)?)>"
)

# ScyllaDB sends every error without a code of its own as a "server error". Some are transient, such
# as a failed allocation or a node that shuts down. The messages below belong to permanent errors.
_TOO_MANY_KEYS = re.compile(r"cartesian product size \d+ is greater than maximum (\d+)")
_LASTING = (
    _TOO_MANY_KEYS,
    re.compile(r"could not find any CDC streams?"),  # a write older than the first generation
)

_SERVERS_WORDS = re.compile(r'Error from server: code=\w+ \[[^]]*\] message="(.*)"')

_RATE_LIMITED = tuple(filter(None, [getattr(cassandra, "RateLimitReached", None)]))
"""An error class that only scylla-driver has, as a subclass of a configuration error."""

_Meaning = tuple[type[SourceError], str]
_REFUSED: _Meaning = (QueryRefusedError, "")
_PASSING: _Meaning = (TransientError, "; check that enough of the cluster's nodes are up")

# The first row with a matching type determines the meaning of a driver error. The driver has two
# families of error classes. Only requests whose errors are transient here are retried.
_MEANINGS: tuple[tuple[tuple[type[Exception], ...], _Meaning], ...] = (
    ((AuthenticationFailed,), (AuthenticationFailedError, "; check username and password")),
    ((OperationTimedOut,), (RequestTimeoutError, "; no answer within the request timeout")),
    (_RATE_LIMITED, (TransientError, "; the table limits requests to a partition")),
    # A restarted node has forgotten the statement, and other nodes may have too.
    ((protocol.PreparedQueryNotFound,), _PASSING),
    # Syntax, names, configuration, objects that already exist.
    ((RequestValidationException, protocol.RequestValidationException), _REFUSED),
    # A user-defined function fails again on the same values.
    ((FunctionFailure, protocol.FunctionFailureMessage), _REFUSED),
    ((protocol.OverloadedErrorMessage,), (OverloadedError, "; the node has too many requests")),
    # Unavailable, bootstrapping, timeouts, and replicas that failed: out of memory,
    # too many reads queued, shutting down.
    ((RequestExecutionException, protocol.RequestExecutionException), _PASSING),
    # Errors without a code of their own: most are transient; `is_lasting` recognizes the others.
    ((protocol.ServerError,), (TransientError, "; the node's log may say more")),
    ((NoHostAvailable, ConnectionException, ConnectionBusy, OSError), _PASSING),
    # Bugs of the driver, protocol errors, unknown codes.
    ((Exception,), (SourceError, "")),
)


def with_grant(refusal: str) -> str:
    """Return the server's message about a missing permission, and the statement that grants it.

    The message names the resource that was checked: for a log table, its base table.
    """
    found = _MISSING.search(refusal)
    if found is None:
        return f"{refusal}; ask an administrator for the permission"
    name = ".".join(map(bare_or_quoted, found["name"].split(".")))
    resource = f"KEYSPACE {name}" if found["kind"] == "keyspace" else name
    grant = f"GRANT {found['permission']} ON {resource} TO {bare_or_quoted(found['role'])}"
    return f"{refusal}; ask an administrator for: {grant}"


def is_lasting(text: str) -> bool:
    """Return True if repeating the statement cannot succeed."""
    return any(pattern.search(text) for pattern in _LASTING)


def most_keys(text: str) -> int | None:
    """Return the limit on keys in an IN list if the message reports it, else None."""
    found = _TOO_MANY_KEYS.search(text)
    return int(found[1]) if found else None


def request_error(error: Exception, doing: str) -> CdcError:
    """Return the error for a failed request on an open connection; `doing` says what it was for."""
    if isinstance(error, CdcError):
        return error
    if isinstance(error, Unauthorized):
        return PermissionDeniedError(f"{doing}: {with_grant(_one_line(error))}")
    kind, remedy = _meaning(error)
    return kind(f"{doing}: {_one_line(error)}{remedy}")


def _meaning(error: Exception) -> _Meaning:
    """Classify the error; NoHostAvailable is permanent only if every host rejected the query."""
    causes = _causes(error)
    if causes != [error]:
        return _REFUSED if all(_meaning(cause) == _REFUSED for cause in causes) else _PASSING
    if isinstance(error, protocol.ServerError) and is_lasting(error.message):
        return _REFUSED
    return next(meaning for types, meaning in _MEANINGS if isinstance(error, types))


def connect_error(error: Exception, where: str) -> CdcError:
    """Return the error for a failure to connect to the contact points `where`."""
    if isinstance(error, CdcError):
        return error
    causes = _causes(error)
    if any(isinstance(cause, AuthenticationFailed) for cause in causes):
        return AuthenticationFailedError(
            f"{where} refused the login: expected the username and password of a role that "
            "may log in; check both"
        )
    found = "; ".join(dict.fromkeys(map(_one_line, causes)))
    return unreachable_error(where, found)


def unreachable_error(where: str, found: str) -> ConnectionFailedError:
    """Return the error for contact points that did not respond as `found` describes."""
    remedy = "check host, port and that the node is up"
    return ConnectionFailedError(f"cannot connect to {where}: {found}", remedy)


def refused_error(where: str, refusals: Iterable[Refusal]) -> ConnectionFailedError:
    """Return the error for nodes that responded but cannot be used because of TLS."""
    reasons, remedies = (
        "; ".join(dict.fromkeys(texts))
        for texts in zip(*((each.reason, each.remedy) for each in refusals), strict=True)
    )
    return ConnectionFailedError(f"cannot connect to {where}: {reasons}", remedies)


def _causes(error: Exception) -> list[Exception]:
    """Return the errors of the individual hosts if the driver has them, else the error itself."""
    by_host = getattr(error, "errors", None) if isinstance(error, NoHostAvailable) else None
    return list(by_host.values()) if isinstance(by_host, dict) and by_host else [error]


def _one_line(error: Exception) -> str:
    """Return the server's message if there is one, else the driver's."""
    if (causes := _causes(error)) != [error]:
        return "; ".join(dict.fromkeys(map(_one_line, causes)))
    if isinstance(error, UnresolvableContactPoints):
        return "no address was found for it"
    if isinstance(error, NoHostAvailable):
        return "no node can be reached"  # no host was tried: the driver's message is a tuple
    text = error.message if isinstance(error, protocol.ErrorMessage) else str(error)
    text = " ".join(text.split())
    quoted = _SERVERS_WORDS.fullmatch(text)
    return (quoted[1] if quoted else text) or type(error).__name__

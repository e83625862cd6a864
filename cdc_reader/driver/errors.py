"""The driver's errors in this package's words, translated once, here."""

from __future__ import annotations

from cassandra import (
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    RequestExecutionException,
    Unauthorized,
    UnresolvableContactPoints,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ConfigurationException, ErrorMessage, SyntaxException

from cdc_reader.errors import (
    AuthenticationFailedError,
    CdcError,
    ConnectionFailedError,
    PermissionDeniedError,
    QueryRefusedError,
    RequestTimeoutError,
    SourceError,
    TransientError,
)

# The first row whose types fit tells what an error of the driver means here.
_MEANINGS: tuple[tuple[tuple[type[Exception], ...], tuple[type[SourceError], str]], ...] = (
    ((Unauthorized,), (PermissionDeniedError, "; grant the role SELECT on this table")),
    ((AuthenticationFailed,), (AuthenticationFailedError, "; check username and password")),
    ((OperationTimedOut,), (RequestTimeoutError, "; no answer within the request timeout")),
    ((InvalidRequest, SyntaxException, ConfigurationException), (QueryRefusedError, "")),
    (
        (NoHostAvailable, ConnectionException, RequestExecutionException, ErrorMessage, OSError),
        (TransientError, "; check that enough of the cluster's nodes are up"),
    ),
    ((Exception,), (SourceError, "")),
)


def request_error(error: Exception, doing: str) -> CdcError:
    """The error of a request on a connection that once worked; `doing` says what it was for."""
    if isinstance(error, CdcError):
        return error
    kind, remedy = next(meaning for types, meaning in _MEANINGS if isinstance(error, types))
    return kind(f"{doing}: {_one_line(error)}{remedy}")


def connect_error(error: Exception, where: str) -> CdcError:
    """The error of opening a connection to the contact points `where`."""
    if isinstance(error, CdcError):
        return error
    causes = _causes(error)
    if any(isinstance(cause, AuthenticationFailed) for cause in causes):
        return AuthenticationFailedError(
            f"{where} refused the login: expected the username and password of a role that "
            "may log in; check both"
        )
    found = "; ".join(dict.fromkeys(map(_one_line, causes)))
    return ConnectionFailedError(
        f"cannot connect to {where}: {found}; check host, port and that the node is up"
    )


def _causes(error: Exception) -> list[Exception]:
    """The errors of the single hosts, if the driver tells them, else the error itself."""
    by_host = getattr(error, "errors", None) if isinstance(error, NoHostAvailable) else None
    return list(by_host.values()) if isinstance(by_host, dict) and by_host else [error]


def _one_line(error: Exception) -> str:
    """The server's own words where there are some, else the driver's."""
    if (causes := _causes(error)) != [error]:
        return "; ".join(dict.fromkeys(map(_one_line, causes)))
    if isinstance(error, UnresolvableContactPoints):
        return "no address was found for it"
    if isinstance(error, NoHostAvailable):
        return "no node can be reached"  # nor was one tried: the driver's words are a tuple
    text = error.message if isinstance(error, ErrorMessage) else str(error)
    return " ".join(text.split()) or type(error).__name__

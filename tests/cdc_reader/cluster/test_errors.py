from __future__ import annotations

import cassandra
import pytest
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import (
    ConfigurationException,
    ErrorMessage,
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    PreparedQueryNotFound,
    ProtocolException,
    ServerError,
    SyntaxException,
    TruncateError,
)

from cdc_reader.cluster.errors import connect_error, request_error
from cdc_reader.errors import (
    AuthenticationFailedError,
    CdcError,
    ConnectionFailedError,
    DecodeError,
    OverloadedError,
    PermissionDeniedError,
    QueryRefusedError,
    RequestTimeoutError,
    SourceError,
    TransientError,
)

TOO_MANY_KEYS = "clustering-key cartesian product size 64 is greater than maximum 20"
NO_STREAM = "cdc::metadata::get_stream: could not find any CDC stream for timestamp 2020/01/01."


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (cassandra.Unavailable("not enough replicas"), TransientError),
        (cassandra.ReadTimeout("timed out"), TransientError),
        (cassandra.ReadFailure("failed"), TransientError),
        (OverloadedErrorMessage(0x1001, "busy", None), OverloadedError),
        (ServerError(0, "boom", None), TransientError),
        (ServerError(0, TOO_MANY_KEYS, None), QueryRefusedError),
        (ServerError(0, NO_STREAM, None), QueryRefusedError),
        (IsBootstrappingErrorMessage(0x1002, "joining", None), TransientError),
        (TruncateError(0x1003, "timed out", None), TransientError),
        (cassandra.WriteTimeout("timed out", write_type=0), TransientError),
        (cassandra.WriteFailure("failed"), TransientError),
        (cassandra.FunctionFailure("failed", "ks", "f", []), QueryRefusedError),
        (PreparedQueryNotFound(0x2500, "unknown", b"id"), TransientError),
        (cassandra.AlreadyExists("ks", "t"), QueryRefusedError),
        (ConfigurationException(0x2300, "no such option", None), QueryRefusedError),
        (ProtocolException(0x000A, "unknown opcode", None), SourceError),
        (ErrorMessage(0x9999, "of the future", None), SourceError),
        (NoHostAvailable("none", {"a": ServerError(0, NO_STREAM, None)}), QueryRefusedError),
        (
            NoHostAvailable("", {"a": ServerError(0, NO_STREAM, None), "b": OSError("gone")}),
            TransientError,
        ),
        (NoHostAvailable("", {"a": NoConnectionsAvailable("all in use")}), TransientError),
        (ConnectionBusy("overloaded"), TransientError),
        (ConnectionShutdown("gone"), TransientError),
        (NoHostAvailable("none", {"a": ConnectionShutdown("gone")}), TransientError),
        (ConnectionResetError("reset"), TransientError),
        (cassandra.OperationTimedOut({"a": "late"}), RequestTimeoutError),
        (cassandra.Unauthorized("no SELECT"), PermissionDeniedError),
        (cassandra.AuthenticationFailed("bad"), AuthenticationFailedError),
        (cassandra.InvalidRequest("no such column"), QueryRefusedError),
        (SyntaxException(0x2000, "line 1", None), QueryRefusedError),
        (ValueError("odd"), SourceError),
    ],
)
def test_each_error_of_a_request_has_one_meaning(
    error: Exception, expected: type[CdcError]
) -> None:
    """Each driver error becomes one kind of `CdcError`. Its message begins with what failed."""
    translated = request_error(error, "reading ks.t")
    assert type(translated) is expected
    assert str(translated).startswith("reading ks.t: ")
    assert "\n" not in str(translated)


def test_an_outage_of_all_nodes_is_described() -> None:
    """If all nodes are down, the error says so, although the driver reports no reason."""
    outage = NoHostAvailable("Unable to complete the operation against any hosts", {})
    assert str(request_error(outage, "reading ks.t")).startswith(
        "reading ks.t: no node can be reached; check that"
    )


def test_own_errors_are_not_wrapped() -> None:
    """The package's own errors, such as a DecodeError, are returned as they are, not wrapped."""
    error = DecodeError("odd")
    assert request_error(error, "reading") is error
    assert connect_error(error, "host:1") is error


def test_a_refused_login_is_told_from_a_dead_host() -> None:
    """A refused login and an unreachable host raise different errors, unlike in the driver."""
    refused = NoHostAvailable("", {"a": cassandra.AuthenticationFailed("bad credentials")})
    dead = NoHostAvailable("", {"a": ConnectionRefusedError(111, "Connection refused")})
    assert type(connect_error(refused, "a:1")) is AuthenticationFailedError
    translated = connect_error(dead, "a:1")
    assert type(translated) is ConnectionFailedError
    assert "cannot connect to a:1" in str(translated)
    assert "Connection refused" in str(translated)

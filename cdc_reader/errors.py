"""The errors of this package; ``except CdcError`` catches all of them.

::

    CdcError
    ├── ConfigurationError
    ├── SchemaError
    │   ├── TableNotFoundError
    │   ├── CdcNotEnabledError
    │   └── UnsupportedTableError
    ├── DataLossError
    ├── SourceError
    │   ├── ConnectionFailedError
    │   ├── AuthenticationFailedError
    │   ├── PermissionDeniedError
    │   ├── QueryRefusedError
    │   ├── TransientError
    │   │   ├── OverloadedError
    │   │   └── RequestTimeoutError
    │   └── RetriesExhaustedError
    ├── DecodeError
    │   └── ColumnDecodeError
    ├── CheckpointError
    │   ├── LeaseUnsupportedError
    │   ├── LeaseHeldError
    │   └── LeaseLostError
    ├── StoppedError
    ├── HandlerError
    └── MirrorError

A message is one line: what was found, what was expected, what to do. No message or `repr`
contains a password.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

__all__ = [
    "AuthenticationFailedError",
    "CdcError",
    "CdcNotEnabledError",
    "CheckpointError",
    "ColumnDecodeError",
    "ConfigurationError",
    "ConnectionFailedError",
    "DataLossError",
    "DecodeError",
    "HandlerError",
    "LeaseHeldError",
    "LeaseLostError",
    "LeaseUnsupportedError",
    "MirrorError",
    "OverloadedError",
    "PermissionDeniedError",
    "QueryRefusedError",
    "RequestTimeoutError",
    "RetriesExhaustedError",
    "SchemaError",
    "SourceError",
    "StoppedError",
    "TableAlteredError",
    "TableNotFoundError",
    "TransientError",
    "UnsupportedTableError",
]

_LONGEST, _SHOWN = 1_000, 40
"""Values of up to `_LONGEST` characters are shown whole; longer values are cut to `_SHOWN`."""


class CdcError(Exception):
    """Base class of all errors that this package raises."""


class ConfigurationError(CdcError):
    """An option's value cannot be used; `remedy` says what to do."""

    def __init__(self, option: str, value: object, remedy: str) -> None:
        super().__init__(option, value, remedy)
        self.option = option
        self.value = value
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.option} is {self._shown()}: {self.remedy}"

    def _shown(self) -> str:
        match self.value:
            case timedelta():
                return f"{self.value.total_seconds():g} s"
            case Enum():
                return repr(self.value.value)
        return in_one_line(self.value)


def in_one_line(value: object) -> str:
    """Return a value's `repr` on one line, shortened if it is long.

    If the `repr` cannot be printed, a description of the value is returned.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - whatever the repr of a caller's object raises
        return f"a {type(value).__name__}"
    if not text.isprintable():
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_SHOWN]}... ({len(text):,} characters)"


class SchemaError(CdcError):
    """The table cannot be followed as it is."""


class TableNotFoundError(SchemaError):
    """The table or its keyspace does not exist."""


class CdcNotEnabledError(SchemaError):
    """The table exists but has no CDC log."""


class UnsupportedTableError(SchemaError):
    """The table has no readable CDC log: a view, a log table, or an unsupported kind."""


class DataLossError(CdcError):
    """Rows written from `start` to `end` (exclusive) were lost before they were read.

    They had expired, or their log was dropped. Both times are in µs since 1970.
    """

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[type[DataLossError], tuple[str, int, int]]:
        return type(self), (str(self), self.start, self.end)


class SourceError(CdcError):
    """A request to the cluster failed."""


class ConnectionFailedError(SourceError):
    """No contact point accepted a connection in time.

    `found` says why, in the words of the server or the driver, and `remedy` what to do.
    """

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found, remedy)
        self.found = found
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.found}; {self.remedy}"


class AuthenticationFailedError(SourceError):
    """The cluster rejected the credentials, or requires credentials and none were given."""


class PermissionDeniedError(SourceError):
    """The role lacks a permission that the request needs."""


class QueryRefusedError(SourceError):
    """The server rejected the query; retrying does not help."""


class TransientError(SourceError):
    """A temporary failure, such as a lost connection; the same request may succeed later."""


class OverloadedError(TransientError):
    """A node temporarily rejects requests, because it has received too many."""


class RequestTimeoutError(TransientError):
    """No response arrived within the request timeout."""


class RetriesExhaustedError(SourceError):
    """Transient errors continued until the retry deadline; the last of them is the cause."""


class DecodeError(CdcError):
    """Bytes from the server do not match their CQL type."""


class ColumnDecodeError(DecodeError):
    """Values of one column do not match its type; a read without this column works."""


class TableAlteredError(SchemaError, DecodeError):
    """The table was altered after its columns were read; begin the read again."""


class CheckpointError(CdcError):
    """A checkpoint cannot be read or saved."""


class LeaseUnsupportedError(CheckpointError):
    """The checkpoint store cannot give one consumer exclusive access."""


class LeaseHeldError(CheckpointError):
    """Another consumer with the same application, table and shard is running."""


class LeaseLostError(CheckpointError):
    """Another consumer with the same application, table and shard took over the lease."""


class StoppedError(CdcError):
    """`stop` was called before the operation was complete."""


class HandlerError(CdcError):
    """A handler failed permanently; its exception is the cause."""


class MirrorError(CdcError):
    """A copy that `mirror` maintains has ended; `__cause__` is the original error.

    Whatever was committed before stays in the copy. Call `mirror` again to continue, or in the
    shell, ``scylla-cdc mirror``.
    """

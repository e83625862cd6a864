"""Every error of this package, one tree, so that one ``except CdcError`` catches all of them.

::

    CdcError
    ├── ConfigurationError            an option's value cannot be used (yours to change)
    ├── SchemaError                   the table cannot be followed (yours to change)
    │   ├── TableNotFoundError
    │   ├── CdcNotEnabledError
    │   └── UnsupportedTableError     a view, a log table itself, a kind this version cannot read
    ├── DataLossError                 rows were gone before they were read
    ├── SourceError                   the cluster did not do what was asked
    │   ├── ConnectionFailedError
    │   ├── AuthenticationFailedError
    │   ├── PermissionDeniedError
    │   ├── QueryRefusedError         the server understood the query and refused it
    │   ├── TransientError            worth asking again, nothing changed
    │   │   └── RequestTimeoutError
    │   └── RetriesExhaustedError     a transient error that did not pass within its deadline
    ├── DecodeError                   bytes from the server are not what the schema says
    │   └── ColumnDecodeError         those of one column, which a read without it can do without
    ├── CheckpointError               a checkpoint cannot be read or kept
    └── HandlerError                  the handler of a change failed; its own error is the cause

A message is one line: what was found, what was expected, what to do. No message and no
`repr` holds a password.
"""

from __future__ import annotations


class CdcError(Exception):
    """The root of all errors raised on purpose by this package."""


class ConfigurationError(CdcError):
    """An option's value cannot be used; `remedy` says what can."""

    def __init__(self, option: str, value: object, remedy: str) -> None:
        super().__init__(option, value, remedy)
        self.option = option
        self.value = value
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.option} is {self.value!r}: {self.remedy}"


class SchemaError(CdcError):
    """The table asked for cannot be followed as it is."""


class TableNotFoundError(SchemaError):
    """No table of this name, or no keyspace."""


class CdcNotEnabledError(SchemaError):
    """The table exists and has no CDC log."""


class UnsupportedTableError(SchemaError):
    """The table is of a kind that has no readable CDC log of its own."""


class DataLossError(CdcError):
    """Rows expired, or their streams were removed, before they were read."""


class SourceError(CdcError):
    """The cluster did not answer as it was asked to."""


class ConnectionFailedError(SourceError):
    """No contact point took the connection in time."""


class AuthenticationFailedError(SourceError):
    """The cluster refused the credentials, or wants some and got none."""


class PermissionDeniedError(SourceError):
    """The role lacks a permission this read needs."""


class QueryRefusedError(SourceError):
    """The server refused the query; asking again gives the same answer."""


class TransientError(SourceError):
    """A failure that may pass: a node overloaded, unavailable, gone in the middle of an answer."""


class RequestTimeoutError(TransientError):
    """No answer within the request timeout."""


class RetriesExhaustedError(SourceError):
    """A transient error that outlasted the retry deadline; the last one is its cause."""


class DecodeError(CdcError):
    """Bytes from the server do not have the shape their CQL type prescribes."""


class ColumnDecodeError(DecodeError):
    """The values of one column do not have the shape its type prescribes, or no room in Arrow's."""


class CheckpointError(CdcError):
    """A store of checkpoints cannot be read, or cannot keep one."""


class HandlerError(CdcError):
    """A handler failed for good; what it raised is the cause."""

"""The errors sent to clients, with the codes of the native protocol.

CqlError
 ├── ServerError 0x0000        ├── InvalidSyntax 0x2000
 ├── ProtocolError 0x000A      ├── Unauthorized 0x2100
 ├── BadCredentials 0x0100     ├── InvalidRequest 0x2200
 ├── Unavailable 0x1000        ├── ConfigurationError 0x2300
 ├── Overloaded 0x1001         ├── AlreadyExists 0x2400
 └── ReadTimeout 0x1200        └── Unprepared 0x2500
"""

from __future__ import annotations

from typing import ClassVar

CONSISTENCIES = (
    "ANY ONE TWO THREE QUORUM ALL LOCAL_QUORUM EACH_QUORUM SERIAL LOCAL_SERIAL LOCAL_ONE".split()
)
"""The names of the consistency levels, by code."""


class CqlError(Exception):
    """An error response: a code, a message, and the extra fields of some codes."""

    code: ClassVar[int]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ServerError(CqlError):
    code = 0x0000


class ProtocolError(CqlError):
    code = 0x000A


class BadCredentials(CqlError):
    code = 0x0100


class Unavailable(CqlError):
    """Too few replicas are available; the fields are [consistency, required, alive]."""

    code = 0x1000

    def __init__(self, message: str, consistency: int, required: int, alive: int) -> None:
        super().__init__(message)
        self.consistency, self.required, self.alive = consistency, required, alive


class Overloaded(CqlError):
    code = 0x1001


class ReadTimeout(CqlError):
    """Replicas timed out; the fields are [consistency, received, block_for, data_present]."""

    code = 0x1200

    def __init__(
        self, message: str, consistency: int, received: int, block_for: int, data_present: bool
    ) -> None:
        super().__init__(message)
        self.consistency, self.received = consistency, received
        self.block_for, self.data_present = block_for, data_present


class InvalidSyntax(CqlError):
    code = 0x2000


class Unauthorized(CqlError):
    code = 0x2100


class InvalidRequest(CqlError):
    code = 0x2200


class ConfigurationError(CqlError):
    code = 0x2300


class AlreadyExists(CqlError):
    """A keyspace or table already exists.

    The fields are [keyspace, table]; `table` is empty for a keyspace.
    """

    code = 0x2400

    def __init__(self, message: str, keyspace: str, table: str = "") -> None:
        super().__init__(message)
        self.keyspace, self.table = keyspace, table


class Unprepared(CqlError):
    """The id of a prepared statement is unknown; the only field is [id]."""

    code = 0x2500

    def __init__(self, message: str, statement_id: bytes) -> None:
        super().__init__(message)
        self.statement_id = statement_id

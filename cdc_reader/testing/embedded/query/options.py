"""What a client sends along with a statement."""

from __future__ import annotations

import enum

from attrs import frozen


class Unset(enum.Enum):
    """The bind value "not set": the column stays untouched."""

    UNSET = "unset"


UNSET = Unset.UNSET

Value = bytes | None | Unset


@frozen
class QueryOptions:
    """Options of a QUERY, EXECUTE or BATCH frame.

    `timestamp` is the client's default write timestamp in µs, `keyspace` the connection's
    current one, `page_size` in rows (None: unpaged).
    """

    consistency: int = 1
    serial_consistency: int = 8
    page_size: int | None = None
    paging_state: bytes | None = None
    timestamp: int | None = None
    keyspace: str | None = None

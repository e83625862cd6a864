"""Paging states: bytes, opaque to the client, that encode where a page ended."""

from __future__ import annotations

import struct
import zlib

from attrs import frozen

from cdc_reader.testing.embedded.codec.marshal import MarshalError
from cdc_reader.testing.embedded.codec.order import join_cells, read_fields
from cdc_reader.testing.embedded.codec.validation import validator
from cdc_reader.testing.embedded.errors import ProtocolError
from cdc_reader.testing.embedded.schema.table import Table

_HEADER = struct.Struct(">Bqqi")
_VERSION = 1


@frozen
class PagingState:
    """The last row returned, and the remaining limits.

    `clustering` is None at the end of a partition. `remaining` is how many more rows the
    statement's LIMIT allows (-1: no limit), and `returned` is the number of rows returned from this
    partition so far.
    """

    key: tuple[bytes, ...]
    clustering: tuple[bytes, ...] | None
    remaining: int
    returned: int

    def encode(self) -> bytes:
        """Encode the state for the client, with a checksum."""
        ends_partition = self.clustering is None
        cells: list[bytes | None] = [*self.key, *(self.clustering or ())]
        width = -1 if ends_partition else len(self.clustering or ())
        body = _HEADER.pack(_VERSION, self.remaining, self.returned, width) + join_cells(cells)
        return zlib.crc32(body).to_bytes(4, "big") + body


def decode(state: bytes, table: Table) -> PagingState:
    """Decode a state from a client; raise ProtocolError if it is not valid for this table."""
    body = state[4:]
    if len(body) < _HEADER.size or zlib.crc32(body).to_bytes(4, "big") != state[:4]:
        raise _invalid()
    version, remaining, returned, width = _HEADER.unpack_from(body)
    columns = (*table.partition_key, *(() if width < 0 else table.clustering))
    try:
        cells = read_fields(body[_HEADER.size :])
        whole = tuple(
            validator(column.type)(cell)
            for column, cell in zip(columns, cells, strict=True)
            if cell is not None
        )
    except (MarshalError, ValueError):
        raise _invalid() from None
    key_size = len(table.partition_key)
    if version != _VERSION or len(whole) != key_size + max(width, 0):
        raise _invalid()
    return PagingState(
        whole[:key_size], None if width < 0 else whole[key_size:], remaining, returned
    )


def _invalid() -> ProtocolError:
    return ProtocolError("Invalid value for the paging state")

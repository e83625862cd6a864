"""Results as bytes: the driver reads frames and errors, the kernel reads rows.

The driver would turn each cell into a Python object. Here the body of a ROWS result is kept
as it came, and metadata is parsed by the kernel, in this package's own types.
"""

from __future__ import annotations

import io
from typing import Any, ClassVar

from attrs import field, frozen
from cassandra.protocol import ResultMessage, _ProtocolHandler

from cdc_reader.kernel.buffer import Buffer
from cdc_reader.kernel.metadata import read_metadata
from cdc_reader.schema import Column


@frozen
class RowsBody:
    """A RESULT body of kind ROWS, and the columns its prepared statement promised, if any."""

    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")
    promised: tuple[Column, ...] | None


class BytesResult(ResultMessage):  # type: ignore[misc]
    """A RESULT whose rows stay bytes: `parsed_rows` is one RowsBody."""

    def recv_results_metadata(self, f: io.BytesIO, user_type_map: object) -> None:  # noqa: ARG002
        """Also of a statement prepared again, whose results it then comes with."""
        buffer = Buffer(f.getvalue(), f.tell())
        metadata = read_metadata(buffer)
        f.seek(buffer.position)
        self.column_metadata = metadata.columns
        self.paging_state = metadata.paging_state

    def recv_results_rows(
        self,
        f: io.BytesIO,
        protocol_version: int,
        user_type_map: object,
        result_metadata: tuple[Column, ...] | None,
        column_encryption_policy: object,
    ) -> None:
        """Keep the body from its kind on; only the paging state is looked at now."""
        del protocol_version, column_encryption_policy
        body = f.getvalue()[f.tell() - 4 :]
        self.recv_results_metadata(f, user_type_map)
        self.column_names = self.column_types = ()
        self.parsed_rows = [RowsBody(body, result_metadata or None)]


class BytesProtocol(_ProtocolHandler):  # type: ignore[misc]
    """The protocol handler of sessions that read rows as bytes."""

    message_types_by_opcode: ClassVar[dict[int, Any]] = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: BytesResult,
    }

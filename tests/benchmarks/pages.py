"""Pages for benchmarks: recorded from a real server, or generated for a log with simple columns."""

from __future__ import annotations

import base64
import gzip
import json
import random
import struct
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attrs import frozen
from cassandra.protocol import ProtocolHandler, ResultMessage

from cdc_reader import decoding
from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import Native
from cdc_reader.decoding import parse_metadata
from tests.drivers import read_result

_RECORDED = Path(__file__).parents[1] / "data" / "scylla-5.2-frames.json.gz"
_RICH = ("log_all_columns_unprepared", "base_all_columns", "log_one_stream_prepared_no_metadata")
_COMPILED = ProtocolHandler.message_types_by_opcode[ResultMessage.opcode]


@frozen
class RecordedPage:
    """The body of a prepared statement's result, with its columns.

    `columns` describes the columns for this package, and `described` describes them for the
    driver.
    """

    body: bytes
    columns: tuple[Column, ...]
    described: list[Any]

    def received(self) -> decoding.Page:
        """Return the page as a reader receives it: only the metadata is parsed."""
        return decoding.Page.parse(self.body, self.columns)

    def by_driver(self) -> list[tuple[Any, ...]]:
        """Return the rows as the driver's compiled parser returns them."""
        message = read_result(self.body, self.described, _COMPILED)
        rows: list[tuple[Any, ...]] = message.parsed_rows
        return rows


def page_of(body: bytes) -> RecordedPage:
    """Separate the body of a recorded result into a page and its metadata."""
    metadata = parse_metadata(body)
    described = read_result(body, None, _COMPILED).column_metadata
    header = struct.pack(">iii", 2, 4, metadata.column_count)
    return RecordedPage(header + body[metadata.rows_offset :], metadata.columns or (), described)


def rich_pages() -> list[RecordedPage]:
    """Return recorded pages of tables with columns of all types, and of their logs."""
    results = json.loads(gzip.decompress(_RECORDED.read_bytes()))["results"]
    bodies = (body for result in results if result["label"] in _RICH for body in result["bodies"])
    return [page_of(base64.b64decode(body)) for body in bodies]


def flat_page(rows: int) -> RecordedPage:
    """Return a page of a log with eleven columns of common types."""
    draw = random.Random(11)
    header = struct.pack(">iii", 2, 1, len(_FLAT)) + _string("ks") + _string("log")
    names = (_string(name) + struct.pack(">h", code) for name, (_, code, _) in _FLAT.items())
    cells = (make(draw) for _ in range(rows) for _, _, make in _FLAT.values())
    return page_of(header + b"".join(names) + struct.pack(">i", rows) + _joined(cells))


def _joined(cells: Iterable[bytes | None]) -> bytes:
    return b"".join(
        struct.pack(">i", -1) if cell is None else struct.pack(">i", len(cell)) + cell
        for cell in cells
    )


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _packed(form: str, low: int, high: int) -> Callable[[random.Random], bytes]:
    return lambda draw: struct.pack(form, draw.randint(low, high))


def _timeuuid(draw: random.Random) -> bytes:
    return uuid.UUID(
        fields=(draw.getrandbits(32), draw.getrandbits(16), 0x11F0, 0x80, 0x80, 1)
    ).bytes


_FLAT: dict[str, tuple[Native, int, Callable[[random.Random], bytes | None]]] = {
    "cdc$stream_id": (Native("blob"), 0x03, lambda draw: draw.randbytes(16)),
    "cdc$time": (Native("timeuuid"), 0x0F, _timeuuid),
    "cdc$batch_seq_no": (Native("int"), 0x09, _packed(">i", 0, 3)),
    "cdc$operation": (Native("tinyint"), 0x14, _packed(">b", 0, 9)),
    "cdc$ttl": (Native("bigint"), 0x02, lambda draw: draw.choice([None, struct.pack(">q", 600)])),
    "cdc$end_of_batch": (Native("boolean"), 0x04, lambda draw: draw.choice([None, b"\x01"])),
    "pk": (Native("int"), 0x09, _packed(">i", 0, 10_000)),
    "ck": (Native("int"), 0x09, _packed(">i", -(2**31), 2**31 - 1)),
    "name": (Native("text"), 0x0D, lambda draw: f"name {draw.getrandbits(40)}".encode()),
    "amount": (Native("bigint"), 0x02, _packed(">q", -(2**63), 2**63 - 1)),
    "ratio": (Native("double"), 0x07, lambda draw: struct.pack(">d", draw.random())),
}

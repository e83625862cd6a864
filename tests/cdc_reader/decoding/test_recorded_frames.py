"""Every recorded frame of a real server is decoded as the driver decodes it, cell by cell."""

from __future__ import annotations

import base64
import gzip
import ipaddress
import json
import struct
import uuid
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from pathlib import Path
from typing import Any

import pytest
from cassandra.protocol import ResultMessage
from cassandra.util import Date, Duration, OrderedMapSerializedKey, SortedSet, Time
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql.types import CqlType, Native, SetType
from cdc_reader.decoding import arrow_schema, parse_metadata
from cdc_reader.errors import DecodeError
from tests.cdc_reader.decoding.conftest import Decode
from tests.drivers import read_result

_DATA = Path(__file__).parents[2] / "data"
_ROWS = b"\0\0\0\x02"


def recorded(name: str) -> Any:
    """Return the contents of a recording."""
    return json.loads(gzip.decompress((_DATA / name).read_bytes()))


def answers() -> dict[str, list[bytes]]:
    """Return the recorded results that have rows, keyed by their query's number and beginning."""
    found: dict[str, list[bytes]] = {}
    for number, response in enumerate(recorded("scylla-5.2-responses.json.gz")["responses"]):
        body = base64.b64decode(response.get("body", ""))
        is_result = response.get("opcode") == ResultMessage.opcode and body.startswith(_ROWS)
        if is_result and parse_metadata(body).columns is not None:
            found[f"{number} {response['request'][:60]}"] = [body]
    return found


FRAMES: dict[str, Any] = recorded("scylla-5.2-frames.json.gz")
BODIES = {
    **answers(),
    **{query: [base64.b64decode(body)] for query, body in FRAMES["system"].items()},
    **{
        result["label"]: [base64.b64decode(body) for body in result["bodies"]]
        for result in FRAMES["results"]
    },
}


def by_driver(body: bytes) -> list[list[Any]]:
    """Decode the rows with the driver's Python decoder."""
    message = read_result(body)
    return [[plain(value) for value in row] for row in message.parsed_rows]


@singledispatch
def plain(value: Any) -> Any:
    """Convert a driver's value to the form that Arrow's `to_pylist` returns."""
    return value


@plain.register(uuid.UUID)
@plain.register(ipaddress.IPv4Address)
@plain.register(Decimal)
def _(value: object) -> str:
    return str(value)


@plain.register(Date)
def _(value: Date) -> date:
    return date(1970, 1, 1) + timedelta(days=value.days_from_epoch)


@plain.register(Time)
def _(value: Time) -> Any:
    return value.nanosecond_time


@plain.register(Duration)
def _(value: Duration) -> dict[str, Any]:
    return {part: getattr(value, part) for part in ("months", "days", "nanoseconds")}


@plain.register(datetime)
def _(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC)


@plain.register(OrderedMapSerializedKey)
def _(value: OrderedMapSerializedKey) -> list[Any]:
    return [(plain(key), plain(item)) for key, item in value.items()]


@plain.register(SortedSet)
@plain.register(list)
def _(value: list[Any]) -> list[Any]:
    return [plain(item) for item in value]


@plain.register(tuple)
def _(value: tuple[Any, ...]) -> dict[str, Any]:
    names = getattr(value, "_fields", [f"_{at}" for at in range(1, len(value) + 1)])
    return dict(zip(names, map(plain, value), strict=True))


def typed(value: Any) -> Any:
    """Pair each part of the value with its type, because 1, 1.0 and True are equal in Python."""
    if isinstance(value, list | tuple):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    return type(value), repr(value) if isinstance(value, float) else value


def by_kernel(decode: Decode, body: bytes) -> list[list[Any]]:
    """Decode with the kernel, and convert the values for comparison with the driver."""
    columns = parse_metadata(body).columns or ()
    return [
        [in_driver_terms(column.type, row[column.name]) for column in columns]
        for row in decode(body).to_pylist()
    ]


def in_driver_terms(cql_type: CqlType, value: Any) -> Any:
    """Sort sets, and convert varints to numbers, as the driver does."""
    if isinstance(cql_type, SetType) and value is not None:
        return sorted(value)
    return int(value) if cql_type == Native("varint") and value is not None else value


def without_metadata(body: bytes) -> bytes:
    """Return the body without column metadata, which servers omit for prepared statements."""
    metadata = parse_metadata(body)
    header = struct.pack(">iii", 2, 4 | 2 * bool(metadata.paging_state), metadata.column_count)
    state = metadata.paging_state
    paging = b"" if state is None else struct.pack(">i", len(state)) + state
    return header + paging + body[metadata.rows_offset :]


@pytest.mark.parametrize("label", BODIES)
def test_every_cell_is_what_the_driver_reads(decode: Decode, label: str) -> None:
    """Every cell of all recorded results has the driver's value and type."""
    for body in BODIES[label]:
        assert typed(by_kernel(decode, body)) == typed(by_driver(body))


@pytest.mark.parametrize("label", BODIES)
def test_batches_are_valid_arrow_of_the_promised_schema(decode: Decode, label: str) -> None:
    """Batches pass Arrow's full validation, which also checks offsets and UTF-8."""
    for body in BODIES[label]:
        batch = decode(body)
        batch.validate(full=True)
        assert batch.schema == arrow_schema(parse_metadata(body).columns or ())


@pytest.mark.parametrize("label", BODIES)
def test_a_body_without_metadata_decodes_the_same(decode: Decode, label: str) -> None:
    """A body without metadata is decoded with the known columns, and yields the same rows."""
    for body in BODIES[label]:
        columns = parse_metadata(body).columns
        assert decode(without_metadata(body), columns).equals(decode(body, columns))


@pytest.mark.parametrize("result", FRAMES["results"], ids=lambda result: result["label"])
def test_only_the_last_page_has_no_paging_state(decode: Decode, result: dict[str, Any]) -> None:
    """Only the last page has no paging state, and all pages together contain all rows."""
    pages = BODIES[result["label"]]
    states = [parse_metadata(body).paging_state for body in pages]
    assert [state is None for state in states] == [False] * (len(pages) - 1) + [True]
    assert sum(decode(body).num_rows for body in pages) == result["rows"]


def test_a_set_of_streams_keeps_the_order_of_the_wire(decode: Decode) -> None:
    """Decoding keeps the wire order of a set of streams, which is the order of the shards."""
    (body,) = BODIES["stream_ids"]
    found = [stream for row in decode(body).to_pylist() for stream in row["streams"]]
    assert sorted(found, key=body.index) == found


@given(st.data())
def test_a_damaged_body_is_a_decode_error_or_another_result(
    decode: Decode, data: st.DataObject
) -> None:
    """Decoding a damaged body returns some result or raises a DecodeError, but no other error."""
    body = bytearray(without_metadata(BODIES["log_one_stream_prepared_no_metadata"][-1]))
    columns = parse_metadata(BODIES["log_one_stream_prepared_no_metadata"][-1]).columns
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=3)):
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for damaged in (bytes(body), bytes(body[:cut])):
        with suppress(DecodeError):
            decode(damaged, columns).validate(full=True)

"""Records RESULT bodies as received from a server: rows of system tables, a table and its log."""

from __future__ import annotations

import base64
import io
import socket
import struct
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from cassandra.cluster import Session
from cassandra.protocol import SupportedMessage

from tests.drivers import read_result
from tests.recordings.bare_client import (
    EXECUTE,
    ONE,
    OPTIONS,
    PREPARE,
    QUERY,
    RESULT,
    STARTUP,
    Client,
    long_text,
    query,
    text,
)
from tests.recordings.replay import RawRows

_TYPE = "CREATE TYPE {ks}.u (x int, y text)"
_TABLE = """CREATE TABLE {ks}.t (
    pk int, ck int, st text static, ascii ascii, bigint bigint, blob blob, boolean boolean,
    date date, decimal decimal, double double, duration duration,
    fl frozen<list<frozen<u>>>, float float, inet inet, l list<int>, m map<int, frozen<list<text>>>,
    s set<text>, smallint smallint, text text,
    time time, timestamp timestamp, timeuuid timeuuid, tinyint tinyint, tp frozen<tuple<int, text>>,
    un u, uuid uuid, varint varint, PRIMARY KEY (pk, ck)
) WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"""
_BETWEEN = '"cdc$time" >= minTimeuuid(?) AND "cdc$time" < minTimeuuid(?) BYPASS CACHE'
_ONE_STREAM = f'SELECT * FROM {{ks}}.t_scylla_cdc_log WHERE "cdc$stream_id" = ? AND {_BETWEEN}'
_STREAMS = f'SELECT * FROM {{ks}}.t_scylla_cdc_log WHERE "cdc$stream_id" IN ? AND {_BETWEEN}'
_MOST_STREAMS = 20
_FAR = struct.pack(">q", 4_000_000_000_000)  # ms
_FUNCTIONS = """SELECT "cdc$stream_id", token("cdc$stream_id"), "cdc$time",
    toTimestamp("cdc$time"), toUnixTimestamp("cdc$time"), writetime("cdc$operation"),
    ttl("cdc$operation"), count(*) FROM {ks}.t_scylla_cdc_log"""
_EMPTY = f'SELECT * FROM {{ks}}.t_scylla_cdc_log WHERE "cdc$stream_id" = 0x{"00" * 16}'
_SIMPLE = {
    "log_all_columns_unprepared": ("SELECT * FROM {ks}.t_scylla_cdc_log", 200),
    "base_all_columns": ("SELECT * FROM {ks}.t", 100),
    "empty_result": (_EMPTY, 100),
    "functions": (_FUNCTIONS, 100),
}
"""The query and its page size in rows, by the label of the result."""

Cells = Sequence[bytes | None]


def record_frames(
    session: Session, address: tuple[str, int], recorded: Any, properties: str
) -> Any:
    """Return a recording of queries of system tables, and of a table and its log.

    `recorded` contains the queries of system tables and the rows to write. `session` creates the
    keyspace with `properties`, and drops it at the end.
    """
    keyspace = f"f{uuid.uuid4().hex[:6]}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH {properties}")
    try:
        with socket.create_connection(address, timeout=60) as connection:
            client = Client(connection)
            client.send(STARTUP, b"\0\1" + text("CQL_VERSION") + text("3.3.1"))
            for statement in (_TYPE, _TABLE):
                session.execute(statement.replace("{ks}", keyspace))
            _write(client, keyspace, _base_rows(recorded))
            return {
                "supported": _supported(client),
                "system": {
                    cql: base64.b64encode(answer.body).decode()
                    for cql in recorded["system"]
                    if (answer := client.send(QUERY, query(cql))).opcode == RESULT
                },
                "results": list(_results(client, keyspace)),
            }
    finally:
        session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")


def _base_rows(recorded: Any) -> Iterator[tuple[Sequence[str], Cells]]:
    """Yield (column names, cells) of each recorded row of the base table."""
    (result,) = (each for each in recorded["results"] if each["label"] == "base_all_columns")
    for body in result["bodies"]:
        page = read_result(base64.b64decode(body), kind=RawRows)
        for row in page.parsed_rows:
            yield page.column_names, row


def _write(client: Client, keyspace: str, rows: Iterator[tuple[Sequence[str], Cells]]) -> None:
    """Insert the rows, and delete some cells and some rows."""
    for number, (names, row) in enumerate(rows):
        listed = ", ".join(f'"{name}"' for name in names)
        marks = ", ".join("?" * len(names))
        insert = f"INSERT INTO {keyspace}.t ({listed}) VALUES ({marks})"
        _execute(client, insert, row)
        key = [row[names.index(name)] for name in ("pk", "ck")]
        if number % 3 == 0:
            delete = f"DELETE text, l, m[1] FROM {keyspace}.t WHERE pk = ? AND ck = ?"
            _execute(client, delete, key)
        if number % 7 == 0:
            _execute(client, f"DELETE FROM {keyspace}.t WHERE pk = ? AND ck = ?", key)


def _execute(client: Client, cql: str, cells: Cells) -> None:
    statement = _prepared(client, cql)[0]
    answer = client.send(EXECUTE, text_of(statement) + _options(cells))
    assert answer.opcode == RESULT, answer.body


def _prepared(client: Client, cql: str) -> tuple[bytes, list[Any]]:
    """Prepare a statement, and return its id and the columns of its result."""
    answer = client.send(PREPARE, long_text(cql))
    assert answer.opcode == RESULT, (cql, answer.body)
    result = read_result(answer.body, [])
    return result.query_id, list(result.column_metadata or ())


def text_of(statement: bytes) -> bytes:
    """Encode a [short bytes]."""
    return struct.pack(">H", len(statement)) + statement


def _options(
    cells: Cells | None, page_size: int | None = None, state: bytes | None = None, known: int = 0
) -> bytes:
    """Encode a statement's options: values, paging, and whether the client has the metadata."""
    flags = (0x01 if cells is not None else 0) | (0x02 if known else 0)
    flags |= (0x04 if page_size else 0) | (0x08 if state else 0)
    parts = [struct.pack(">HB", ONE, flags)]
    if cells is not None:
        parts.append(struct.pack(">H", len(cells)))
        parts += [_bytes(cell) for cell in cells]
    if page_size:
        parts.append(struct.pack(">i", page_size))
    if state:
        parts.append(_bytes(state))
    return b"".join(parts)


def _bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def _supported(client: Client) -> dict[str, list[str]]:
    body = client.send(OPTIONS, b"").body
    message = SupportedMessage.recv_body(io.BytesIO(body))
    return {**message.options, "CQL_VERSION": message.cql_versions}


def _results(client: Client, keyspace: str) -> Iterator[dict[str, Any]]:
    for label, (cql, page_size) in _SIMPLE.items():
        placed = cql.replace("{ks}", keyspace)
        pages = _pages(client, QUERY, long_text(placed), None, page_size)
        yield _result(label, placed, page_size, pages)
    counted = Counter(_streams(client, keyspace))
    busiest = [stream for stream, _ in counted.most_common(_MOST_STREAMS)]
    listed = struct.pack(">i", len(busiest)) + b"".join(map(_bytes, busiest))
    since = struct.pack(">q", 0)
    for label, cql, which in (
        ("log_one_stream_prepared_no_metadata", _ONE_STREAM, busiest[0]),
        ("log_streams_in_prepared", _STREAMS, listed),
    ):
        placed = cql.replace("{ks}", keyspace)
        statement, columns = _prepared(client, placed)
        cells = [which, since, _FAR]
        pages = _pages(client, EXECUTE, text_of(statement), cells, 50, known=1)
        metadata = [[*c[:3], c[3].cql_parameterized_type()] for c in columns]
        yield _result(label, placed, 50, pages, metadata)


def _streams(client: Client, keyspace: str) -> list[bytes]:
    """Return the stream of each row of the log."""
    cql = f'SELECT "cdc$stream_id" FROM {keyspace}.t_scylla_cdc_log'
    body = client.send(QUERY, query(cql)).body
    return [stream for (stream,) in read_result(body, kind=RawRows).parsed_rows]


def _pages(
    client: Client,
    opcode: int,
    statement: bytes,
    cells: Cells | None,
    page_size: int,
    known: int = 0,
) -> Iterator[bytes]:
    state = None
    while True:
        body = client.send(opcode, statement + _options(cells, page_size, state, known)).body
        yield body
        state = _paging_state(body)
        if state is None:
            return


def _paging_state(body: bytes) -> bytes | None:
    """Return the paging state in a RESULT of rows, or None on the last page."""
    _, flags, _ = struct.unpack_from(">iii", body)
    if not flags & 0x02:
        return None
    size = struct.unpack_from(">i", body, 12)[0]
    return body[16 : 16 + size]


def _result(
    label: str,
    cql: str,
    fetch_size: int,
    pages: Iterator[bytes],
    metadata: list[list[str]] | None = None,
) -> dict[str, Any]:
    bodies = list(pages)
    known: list[Any] | None = metadata and [(*column[:3], None) for column in metadata]
    rows = sum(len(read_result(b, known, RawRows).parsed_rows) for b in bodies)
    return {
        "label": label,
        "cql": cql,
        "prepared": metadata is not None,
        "result_metadata": metadata,
        "fetch_size": fetch_size,
        "rows": rows,
        "bodies": [base64.b64encode(body).decode() for body in bodies],
    }

"""Runs recorded statements on a server, and reads the resulting log, base table and schema.

A recording is JSON with statements, in which `{ks}` stands for the keyspace. Write timestamps are
moved to the present. `tests.recordings.comparison` compares the resulting logs.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from attrs import frozen
from cassandra import DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable, Session
from cassandra.protocol import (
    ErrorMessage,
    ResultMessage,
    _ProtocolHandler,
    read_int,
)
from cassandra.query import UNSET_VALUE, SimpleStatement

from tests.recordings.comparison import (
    ComparableCell,
    Result,
    comparable,
    differences,
)

_SCHEMA = (
    "SELECT table_name, column_name, clustering_order, kind, position, type "
    "FROM system_schema.columns WHERE keyspace_name = '{ks}'"
)
_TABLES = (
    "SELECT table_name, comment, compaction, default_time_to_live, gc_grace_seconds "
    "FROM system_schema.tables WHERE keyspace_name = '{ks}'"
)
_EXTENSIONS = "SELECT table_name, extensions FROM system_schema.tables WHERE keyspace_name = '{ks}'"
MADE = "replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
_DATE = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)?")
_OF_HOST = re.compile(r"Unable to complete the operation.*(<Error from server.*>)}")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FIRST, _STEP = 300, 3_500
"""Time in µs from a scenario's base timestamp to its first statement, and between statements.

These are close to the recorded times, so that each `{T+n}` falls between the same statements,
whatever the server's speed.
"""
Recording = Mapping[str, Any]


@frozen
class Outcome:
    """The results of a replay, without random values and times.

    `errors` contains the error message of each statement, or None if it was accepted.
    """

    errors: tuple[str | None, ...]
    log_columns: tuple[tuple[str, str], ...]
    log: list[dict[str, ComparableCell]]
    base: list[str]
    schema: list[str]
    tables: list[str]
    writetimes: list[str]

    def differences(self, other: Outcome) -> Iterator[str]:
        """Yield a line for each difference between this outcome, which is expected, and `other`."""
        for part in ("errors", "log_columns", "base", "schema", "tables", "writetimes"):
            expected, found = getattr(self, part), getattr(other, part)
            if expected != found:
                yield f"{part}: expected {expected}, found {found}"
        yield from differences(self.log, other.log)


class Timestamps:
    """The driver's timestamp generator. Returns `next` (µs), or the current time if it is None."""

    next: int | None = None

    def __call__(self) -> int:
        return time.time_ns() // 1000 if self.next is None else self.next


def recorded_scenario(scenario: Recording) -> Outcome:
    """Return the outcome of a recorded scenario on the real server."""
    errors = [op["error"] and op["error"]["message"] for op in scenario["ops"]]
    parts = {name: Result.from_recording(scenario[name]) for name in _PARTS}
    return _outcome(scenario["keyspace"], errors, parts, shift=0)


def recorded_history(history: Recording) -> Outcome:
    """Return the outcome of a recorded history on the real server.

    Write times are relative to the write time of the last statement.
    """
    last = max(op["timestamp"] for op in history["ops"])
    parts = {n: Result.from_recording(history[n]) for n in ("log", "base", "writetimes")}
    return _outcome("", [None] * len(history["ops"]), parts, shift=last)


def replay_scenario(
    session: Session, timestamps: Timestamps, scenario: Recording, now: int, made: str = MADE
) -> Outcome:
    """Run a scenario as `record_scenario` does, and return the outcome."""
    return recorded_scenario(record_scenario(session, timestamps, scenario, now, made))


def record_scenario(
    session: Session, timestamps: Timestamps, scenario: Recording, now: int, made: str = MADE
) -> Recording:
    """Run a scenario in a new keyspace and return its recording. ``{T+n}`` becomes `now` + n µs.

    `made` contains the keyspace's properties. The session's cluster must use `timestamps` as its
    timestamp generator.
    """
    with _keyspace(session, made) as keyspace:
        for cql in (*scenario["types"], scenario["table"]):
            session.execute(cql.replace("{ks}", keyspace))
        ops = []
        try:
            for number, op in enumerate(scenario["ops"]):
                timestamps.next = now + _FIRST + number * _STEP
                error = _refusal(session, op["op"], keyspace, now)
                ops.append({"op": op["op"], "error": error})
        finally:
            timestamps.next = None
        parts = {n: raw_select(session, cql.format(ks=keyspace)) for n, cql in _PARTS.items()}
    return {
        **{name: scenario[name] for name in ("name", "types", "table")},
        "ops": ops,
        "base_ts": now,
        "keyspace": keyspace,
        **{name: part.recording() for name, part in parts.items()},
    }


def replay_history(
    session: Session, timestamps: Timestamps, history: Recording, now: int, made: str = MADE
) -> Outcome:
    """Run a history as `record_history` does, and return the outcome."""
    return recorded_history(record_history(session, timestamps, history, now, made))


def record_history(
    session: Session, timestamps: Timestamps, history: Recording, now: int, made: str = MADE
) -> Recording:
    """Run a history in a new keyspace and return its recording.

    Its timestamps are shifted so that the last one is `now` (µs).

    `made` contains the keyspace's properties. The session's cluster must use `timestamps` as its
    timestamp generator.
    """
    shift = now - max(op["timestamp"] for op in history["ops"])
    ops = [
        {"cql": _shifted(op["cql"], shift), "timestamp": op["timestamp"] + shift}
        for op in history["ops"]
    ]
    with _keyspace(session, made) as keyspace:
        for cql in (*history["types"], history["table"]):
            session.execute(cql.replace("{ks}", keyspace))
        try:
            for op in ops:
                timestamps.next = op["timestamp"]
                cql = re.sub(r"\{(\d{16})\}", r"\1", op["cql"])
                session.execute(cql.replace("{ks}", keyspace))
        finally:
            timestamps.next = None
        parts = {
            "log": raw_select(session, _PARTS["log"].format(ks=keyspace)),
            "base": raw_select(session, _PARTS["base"].format(ks=keyspace)),
            "writetimes": raw_select(session, history["writetimes_cql"].replace("{ks}", keyspace)),
        }
    return {
        **{name: history[name] for name in ("seed", "types", "table", "writetimes_cql")},
        "ops": ops,
        **{name: part.recording() for name, part in parts.items()},
    }


def raw_select(session: Session, cql: str, fetch_size: int = 1000) -> Result:
    """Return all rows of a query, with their cells as the server sent them."""
    profile = session.execution_profile_clone_update(
        session.get_execution_profile(EXEC_PROFILE_DEFAULT), row_factory=lambda _, rows: rows
    )
    handler, session.client_protocol_handler = session.client_protocol_handler, RawHandler
    try:
        page = session.execute(
            SimpleStatement(cql, fetch_size=fetch_size), execution_profile=profile
        )
        types = [cql_type.cql_parameterized_type() for cql_type in page.column_types]
        columns = tuple(zip(page.column_names, types, strict=True))
        return Result(columns, list(page))
    finally:
        session.client_protocol_handler = handler


class RawRows(ResultMessage):  # type: ignore[misc]  # the driver ships no types
    """A ROWS result whose cells are not decoded."""

    def recv_results_rows(
        self, body: Any, _version: int, user_types: Any, known: Any, _encryption: Any
    ) -> None:
        self.recv_results_metadata(body, user_types)
        columns = self.column_metadata or known
        count = read_int(body)
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [self.recv_row(body, len(columns)) for _ in range(count)]


class RawHandler(_ProtocolHandler):  # type: ignore[misc]  # the driver ships no types
    """A protocol handler that does not decode the cells of results."""

    message_types_by_opcode: ClassVar = {
        **_ProtocolHandler.message_types_by_opcode,
        RawRows.opcode: RawRows,
    }


@contextmanager
def _keyspace(session: Session, made: str = MADE) -> Iterator[str]:
    """Create a keyspace for the replay, and drop it at the end."""
    name = f"replay_{uuid.uuid4().hex[:12]}"
    session.execute(f"CREATE KEYSPACE {name} WITH {made}")
    try:
        yield name
    finally:
        session.execute(f"DROP KEYSPACE IF EXISTS {name}")


def _refusal(
    session: Session, statement: str | Recording, keyspace: str, base_ts: int
) -> dict[str, str] | None:
    """Run a statement, and return the type and message of its error, or None."""
    try:
        _run(session, statement, keyspace, base_ts)
    except (DriverException, ErrorMessage, NoHostAvailable) as error:
        return {"type": type(error).__name__, "message": str(error)}
    return None


def _run(session: Session, statement: str | Recording, keyspace: str, base_ts: int) -> None:
    if isinstance(statement, str):
        session.execute(_placed(statement, keyspace, base_ts))
    elif "prepare" in statement:
        prepared = session.prepare(_placed(statement["prepare"], keyspace, base_ts))
        values = [UNSET_VALUE if v == "__unset__" else v for v in statement["values"]]
        session.execute(prepared, values)
    else:
        session.execute(_placed(statement["cql"], keyspace, base_ts))


def _placed(cql: str, keyspace: str, base_ts: int) -> str:
    cql = cql.replace("{ks}", keyspace)
    return re.sub(r"\{T(?:\+(\d+))?\}", lambda m: str(base_ts + int(m.group(1) or 0)), cql)


def _shifted(cql: str, shift: int) -> str:
    """Return the statement with the timestamps in braces increased by `shift`."""
    return re.sub(r"\{(\d{16})\}", lambda m: f"{{{int(m.group(1)) + shift}}}", cql)


_PARTS = {
    "log": "SELECT * FROM {ks}.t_scylla_cdc_log",
    "base": "SELECT * FROM {ks}.t",
    "schema": _SCHEMA,
    "tables": _TABLES,
    "extensions": _EXTENSIONS,
}


def _outcome(
    keyspace: str, errors: Sequence[str | None], parts: Mapping[str, Result], shift: int
) -> Outcome:
    log = parts["log"]
    return Outcome(
        errors=tuple(error and _without_chance(error, keyspace) for error in errors),
        log_columns=tuple(sorted(log.columns)),
        log=comparable(log, _partition_key(parts.get("schema"))),
        base=_texts(parts["base"], keyspace),
        schema=_texts(parts["schema"], keyspace) if "schema" in parts else [],
        tables=_texts(parts["tables"], keyspace) if "tables" in parts else [],
        writetimes=_writetimes(parts["writetimes"], shift) if "writetimes" in parts else [],
    )


def _without_chance(error: str, keyspace: str) -> str:
    """Return an error message without the keyspace's name, dates and ids, which are random."""
    if (of_host := _OF_HOST.search(error)) is not None:
        error = of_host.group(1)
    error = _ID.sub("<id>", error)
    return _DATE.sub("<date>", error.replace(keyspace, "{ks}") if keyspace else error)


def _partition_key(schema: Result | None) -> list[str]:
    """Return the base table's partition key, which is `pk` in all histories."""
    if schema is None:
        return ["pk"]
    return [
        (name or b"").decode()
        for table, name, _, kind, *_ in schema.rows
        if table == b"t" and kind == b"partition_key"
    ]


def _texts(result: Result, keyspace: str) -> list[str]:
    name = keyspace.encode().hex() if keyspace else ""
    rows = (" ".join("null" if c is None else f"[{c.hex()}]" for c in row) for row in result.rows)
    return sorted(row.replace(name, "{ks}") if name else row for row in rows)


def _writetimes(result: Result, shift: int) -> list[str]:
    def cell(name: str, value: bytes | None) -> str:
        if value is None:
            return "null"
        if name.startswith("writetime"):
            return str(int.from_bytes(value, "big") - shift)
        return value.hex()

    names = [name for name, _ in result.columns]
    return sorted(" ".join(map(cell, names, row)) for row in result.rows)

"""Runs single statements on a server, and records errors, columns, rows and warnings."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from cassandra.cluster import Session
from cassandra.query import UNSET_VALUE, SimpleStatement

from tests.recordings.replay import RawHandler

Answer = dict[str, Any]
_ABSENT = "nonexist"
"""The name of a keyspace that recorded statements expect not to exist."""


def answers(session: Session, properties: str, ops: list[Any]) -> list[Answer]:
    """Return the server's responses to statements, run in a new keyspace with `properties`.

    No existing keyspace is affected: the name that stands for a missing keyspace is random too. The
    session's row factory must return lists.
    """
    keyspace = f"d_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH {properties}")
    try:
        return [answer(session, each["op"], keyspace) for each in ops]
    finally:
        # Some statements create further keyspaces, whose names begin with this keyspace's name.
        for (name,) in session.execute("SELECT keyspace_name FROM system_schema.keyspaces"):
            if name.startswith(keyspace):
                session.execute(f"DROP KEYSPACE {name}")


def answer(session: Session, op: Any, keyspace: str) -> Answer:
    """Run a statement. Return its error, or columns, rows and warnings, without random names."""
    try:
        future = execute(session, op, keyspace)
        result = future.result()
    except Exception as error:  # noqa: BLE001 - any error is the response
        return {"error": refusal(str(error), type(error).__name__, keyspace)}
    found: Answer = {"warnings": [_general(text, keyspace) for text in future.warnings or ()]}
    if names := getattr(result, "column_names", None):
        types = (of_type.cql_parameterized_type() for of_type in result.column_types)
        found["columns"] = [list(column) for column in zip(names, types, strict=True)]
        written, mark = keyspace.encode(), b"{ks}"
        cells = [
            [None if c is None else c.replace(written, mark).hex() for c in row]
            for row in result.current_rows
        ]
        found["rows"] = sorted(cells, key=json.dumps)
    return found


def execute(session: Session, op: Any, keyspace: str) -> Any:
    """Execute a statement: a text, or a dict with a statement to prepare and its values."""
    if isinstance(op, dict):
        statement = session.prepare(_own(op["prepare"], keyspace))
        values = [UNSET_VALUE if value == "__unset__" else value for value in op["values"]]
    else:
        statement, values = SimpleStatement(_own(op, keyspace), fetch_size=1000), None
    handler, session.client_protocol_handler = session.client_protocol_handler, RawHandler
    try:
        future = session.execute_async(statement, values)
        future.result()
    finally:
        session.client_protocol_handler = handler
    return future


def refusal(text: str, kind: str, keyspace: str) -> list[str]:
    """Return [code, message] of an error, as in recordings."""
    text = _general(text, keyspace)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?= for timestamp)", "{id}", text)
    code, message = (
        re.search(r"code=([0-9a-f]{4})", text),
        re.search(r'message="(.*)"', text, re.DOTALL),
    )
    return [code.group(1) if code else kind, message.group(1) if message else text]


def _own(cql: str, keyspace: str) -> str:
    """Replace the recording's keyspace names with the names of this run."""
    return cql.replace("{ks}", keyspace).replace(_ABSENT, f"{keyspace}_{_ABSENT}")


def _general(text: str, keyspace: str) -> str:
    """Replace the keyspace names of this run with the names in the recording."""
    return text.replace(f"{keyspace}_{_ABSENT}", _ABSENT).replace(keyspace, "{ks}")

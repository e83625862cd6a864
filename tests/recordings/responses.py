"""Sends the requests of a recording again, and records the raw responses and events."""

from __future__ import annotations

import base64
import random
import socket
import string
from typing import Any

from cassandra.cluster import Session

from tests.recordings.bare_client import EVENT, Answer, Client, ask

_WAIT = 2.0  # seconds to wait for the last events


def record_responses(session: Session, address: tuple[str, int], recorded: Any) -> Any:
    """Send the requests in `recorded`, and return a new recording. `session` drops the keyspace."""
    keyspace = _free_name(session)
    try:
        with socket.create_connection(address, timeout=60) as connection:
            client = Client(connection, keyspace=keyspace.encode())
            answers = [
                {"request": each["request"], **_answer(ask(client, each["request"]), each)}
                for each in recorded["responses"]
            ]
            connection.settimeout(_WAIT)
            events = [*client.events, *_events(client)]
    finally:
        session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    return {
        "responses": answers,
        "events": [{"opcode": EVENT, "body": base64.b64encode(e).decode()} for e in events],
    }


def _free_name(session: Session) -> str:
    """Return an unused keyspace name of the same length as `resp`."""
    rows = session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    taken = {name for (name,) in rows}
    while (name := "z" + "".join(random.choices(string.ascii_lowercase, k=3))) in taken:
        pass
    return name


def _answer(answer: Answer, recorded: Any) -> dict[str, Any]:
    body = base64.b64encode(answer.body).decode()
    if "header" in recorded:  # the recording includes the header, for its protocol version
        header = bytes((answer.version, answer.flags, 0, 0, answer.opcode))
        return {"header": (header + len(answer.body).to_bytes(4, "big")).hex(), "body": body}
    return {"opcode": answer.opcode, "flags": answer.flags, "body": body}


def _events(client: Client) -> list[bytes]:
    found: list[bytes] = []
    try:
        while (frame := client.receive()).opcode == EVENT:
            found.append(frame.body)
    except TimeoutError:
        pass
    return found

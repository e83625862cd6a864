"""Single statements are answered as by real servers of all recorded versions.

Answers that differ in wording are counted, and statements refused as not supported are listed here.
No other answer may differ.
"""

import gzip
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.query import UNSET_VALUE, SimpleStatement

from cdc_reader.testing import EmbeddedScylla
from tests.recordings.replay import RawHandler

DATA = Path(__file__).parents[3] / "data"
VERSIONS = sorted(path.name.split("-")[1] for path in DATA.glob("scylla-*-dialect.json.gz"))
REFUSED = ("GROUP BY", "SELECT JSON count(*)", " LIKE 'x%'", "COMPACT STORAGE")
"""The statements that this server refuses as not supported, by words in them."""
LEAST_EQUAL = 0.98

Answer = dict[str, Any]


def recorded(version: str) -> Any:
    """Return a version's recording: the creation of its keyspaces, and its cases."""
    with gzip.open(DATA / f"scylla-{version}-dialect.json.gz", "rt") as file:
        return json.load(file)


def cases() -> Iterator[Any]:
    """Yield each case of each version."""
    for version in VERSIONS:
        recording = recorded(version)
        for case in recording["cases"]:
            name = f"{version}-{case['name']}"
            yield pytest.param(version, recording["keyspace"], case["ops"], id=name)


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    """Sessions with a server of each version."""
    servers = {version: EmbeddedScylla(version=version).start() for version in VERSIONS}
    clusters = {
        version: Cluster(
            [server.host],
            port=server.port,
            protocol_version=4,
            execution_profiles={
                EXEC_PROFILE_DEFAULT: ExecutionProfile(row_factory=lambda _, rows: rows)
            },
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
            connect_timeout=60,
        )
        for version, server in servers.items()
    }
    try:
        yield {version: cluster.connect() for version, cluster in clusters.items()}
    finally:
        for cluster in clusters.values():
            cluster.shutdown()
        for server in servers.values():
            server.stop()


def replay(session: Session, replication: str, ops: list[Any]) -> list[Answer]:
    """Return the server's answers to the statements, in a separate keyspace."""
    keyspace = f"d_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH {replication}")
    try:
        return [answer(session, each["op"], keyspace) for each in ops]
    finally:
        session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")


def answer(session: Session, op: Any, keyspace: str) -> Answer:
    """Return the error, or the columns, rows and warnings; random names and ids are replaced."""
    try:
        future = execute(session, op, keyspace)
        result = future.result()
    except Exception as error:  # noqa: BLE001 - whatever the server refused is the answer
        return {"error": refusal(str(error), type(error).__name__, keyspace)}
    found: Answer = {"warnings": [text.replace(keyspace, "{ks}") for text in future.warnings or ()]}
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
    """Send a statement: text, or a dictionary with a statement to prepare and its values."""
    if isinstance(op, dict):
        statement = session.prepare(op["prepare"].replace("{ks}", keyspace))
        values = [UNSET_VALUE if value == "__unset__" else value for value in op["values"]]
    else:
        statement, values = SimpleStatement(op.replace("{ks}", keyspace), fetch_size=1000), None
    handler, session.client_protocol_handler = session.client_protocol_handler, RawHandler
    try:
        future = session.execute_async(statement, values)
        future.result()
    finally:
        session.client_protocol_handler = handler
    return future


def refusal(text: str, kind: str, keyspace: str) -> list[str]:
    """Return [code, message], in the form of the recording."""
    text = text.replace(keyspace, "{ks}")
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?= for timestamp)", "{id}", text)
    code, message = (
        re.search(r"code=([0-9a-f]{4})", text),
        re.search(r'message="(.*)"', text, re.DOTALL),
    )
    return [code.group(1) if code else kind, message.group(1) if message else text]


def is_unsupported(found: Answer, op: Any) -> bool:
    """True if the answer refuses a listed statement as not supported."""
    message = found.get("error", ["", ""])[1]
    return "is not supported by this server" in message and any(w in str(op) for w in REFUSED)


@pytest.mark.parametrize(("version", "replication", "ops"), list(cases()))
def test_a_recorded_case_repeats(
    sessions: dict[str, Session], version: str, replication: str, ops: list[Any]
) -> None:
    """No refused statement is accepted, and columns and rows are equal."""
    wrong = []
    for expected, found in zip(ops, replay(sessions[version], replication, ops), strict=True):
        if is_unsupported(found, expected["op"]):
            continue
        if "error" in expected:
            is_right = "error" in found and (found["error"][0] == expected["error"][0])
        else:
            is_right = all(found.get(part) == expected.get(part) for part in ("columns", "rows"))
        if not is_right:
            wrong.append(f"{expected}\n  found {found}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("version", VERSIONS)
def test_nearly_all_answers_are_equal_to_the_letter(
    sessions: dict[str, Session], version: str
) -> None:
    """This includes messages and warnings."""
    recording = recorded(version)
    ops = [op for case in recording["cases"] for op in case["ops"]]
    found = [
        {"op": op["op"], **answered}
        for case in recording["cases"]
        for op, answered in zip(
            case["ops"],
            replay(sessions[version], recording["keyspace"], case["ops"]),
            strict=True,
        )
    ]
    equal = sum(a == b for a, b in zip(ops, found, strict=True))
    assert equal >= LEAST_EQUAL * len(ops)

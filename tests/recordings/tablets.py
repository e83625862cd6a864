"""Records a table's streams while its tablets split and merge, and CDC is disabled and enabled."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from attrs import define, field
from cassandra.cluster import Session
from cassandra.protocol import ErrorMessage

from tests.recordings.replay import raw_select

_NAME = "tb"
_PROPERTIES = (
    "replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
    "AND tablets = {'initial': 2}"
)
_TABLES = (
    "CREATE TABLE {ks}.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'ttl': 120}",
    "CREATE TABLE {ks}.u (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
)
_MANY, _FEW = 8, 2  # Tablets are not merged to fewer than the keyspace's initial number.
_SPLIT = f"ALTER TABLE {{ks}}.t WITH tablets = {{'min_tablet_count': {_MANY}}}"
_MERGE = "ALTER TABLE {ks}.t WITH tablets = {'min_tablet_count': 1}"
_DISABLE = "ALTER TABLE {ks}.t WITH cdc = {'enabled': false}"
_ENABLE = "ALTER TABLE {ks}.t WITH cdc = {'enabled': true}"
_PATIENCE, _PAUSE = 900.0, 0.5  # seconds; a server takes about a minute per step
_OF_TABLE = "WHERE keyspace_name = '{ks}' AND table_name = '{t}'"
_PARTS = {
    "timestamps": f"SELECT * FROM system.cdc_timestamps {_OF_TABLE}",
    "streams": f"SELECT * FROM system.cdc_streams {_OF_TABLE}",
}
_ONCE = {
    "columns": "SELECT * FROM system_schema.columns WHERE keyspace_name = '{ks}'",
    "scylla_tables": "SELECT * FROM system_schema.scylla_tables WHERE keyspace_name = '{ks}'",
    "scylla_keyspaces": "SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = '{ks}'",
    "log_t": "SELECT * FROM {ks}.t_scylla_cdc_log",
    "log_u": "SELECT * FROM {ks}.u_scylla_cdc_log",
}


def record_tablets(session: Session, release: str) -> Any:
    """Record a table that is split into eight tablets and merged again. This takes minutes."""
    keyspace = f"{_NAME}_{uuid.uuid4().hex[:8]}"
    session.execute(f"CREATE KEYSPACE {keyspace} WITH {_PROPERTIES}")
    life = _Life(session, keyspace)
    try:
        for table in _TABLES:
            life.execute(table)
        life.phase("created")
        life.execute(_SPLIT)
        life.phase("splitting", lambda: life.sets() > 1)
        life.phase("split", lambda: life.open_streams() >= _MANY)
        life.execute(_MERGE)
        life.phase("merging")
        life.phase("merged", lambda: life.open_streams() <= _FEW)
        life.execute(_DISABLE)
        life.phase("disabled")
        life.execute(_ENABLE)
        life.phase("enabled again")
    finally:
        session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    return {"server": release, "ddl": life.ddl, "phases": life.phases}


@define
class _Life:
    session: Session
    keyspace: str
    ddl: list[dict[str, Any]] = field(factory=list)
    phases: list[dict[str, Any]] = field(factory=list)
    written: int = 0

    def execute(self, cql: str) -> None:
        at = time.time_ns() // 1000
        self.session.execute(cql.replace("{ks}", self.keyspace))
        self.ddl.append({"at": at, "cql": cql.replace("{ks}", _NAME)})

    def phase(self, name: str, is_reached: Callable[[], bool] = lambda: True) -> None:
        """Write rows until the streams have reached a state, then record everything."""
        deadline = time.monotonic() + _PATIENCE
        self._write()
        while not is_reached():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name}: not reached within {_PATIENCE:g} s")
            time.sleep(_PAUSE)
            self._write()
        found: dict[str, Any] = {"name": name, "at": time.time_ns() // 1000}
        for part, cql in _PARTS.items():
            found[part] = self._of_tables(cql)
        for part, cql in _ONCE.items():
            found[part] = self._select(cql)
        self.phases.append(found)

    def sets(self) -> int:
        """Return the number of stream sets of `t`."""
        return len(self._select(_PARTS["timestamps"].replace("{t}", "t"))["rows"])

    def open_streams(self) -> int:
        """Return the number of current streams of `t`."""
        found = self._select(_PARTS["streams"].replace("{t}", "t"))
        state, at = (
            [name for name, _ in found["columns"]].index(column)
            for column in ("stream_state", "timestamp")
        )
        newest = max(row[at] for row in found["rows"])
        return sum(row[at] == newest and row[state] == "00" for row in found["rows"])

    def _write(self) -> None:
        self.written += 1
        for table in ("t", "u"):
            insert = f"INSERT INTO {self.keyspace}.{table} (pk, v) VALUES (%s, %s)"
            self.session.execute(insert, (self.written, self.written))

    def _of_tables(self, cql: str) -> Any:
        parts = [self._select(cql.replace("{t}", table)) for table in ("u", "t")]
        return {**parts[0], "rows": [row for part in parts for row in part["rows"]]}

    def _select(self, cql: str) -> Any:
        """Return a query's result with the recorded keyspace name.

        The result of a rejected query is empty.
        """
        try:
            found = raw_select(self.session, cql.replace("{ks}", self.keyspace)).recording()
        except ErrorMessage:
            return {"columns": [], "rows": []}
        own, name = self.keyspace.encode().hex(), _NAME.encode().hex()
        found["rows"] = [[name if cell == own else cell for cell in row] for row in found["rows"]]
        return found

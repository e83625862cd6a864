"""Keep a table in a DuckDB file equal to a ScyllaDB table.

    python examples/keep_duckdb_current.py HOST:PORT KEYSPACE.TABLE FILE [UNTIL]

The first run copies the existing rows. Each later run continues where the last one ended, even if
it was killed. UNTIL is a time such as ``now``. Without it, the program runs until Ctrl-C or
SIGTERM. It needs duckdb. The copy has one column more than the table: `_inserted` is true for rows
that an INSERT created, which remain when they lose their last value.
"""

from __future__ import annotations

import pickle
import signal
import sys
from pathlib import Path

import duckdb
import pyarrow as pa

from cdc_reader import (
    CdcReader,
    ChangeFormat,
    Checkpoint,
    RangeComplete,
    ReadConfig,
    RowsRead,
    SnapshotRows,
    TableName,
    TableSchema,
    WindowComplete,
    needed_partitions,
    row_updates,
)


class Copy:
    """A table in a DuckDB file. Each transaction writes rows together with their checkpoint.

    The file is attached as `copy` beside an empty database. Therefore, names without `copy` mean
    the tables and views of this class, whatever the file and its tables are called.
    """

    def __init__(self, path: Path, name: TableName) -> None:
        self._name, self._table = str(name), f"copy.main.{quoted(name.name)}"
        self._database = duckdb.connect()
        self._database.execute(f"ATTACH {text(str(path))} AS copy")
        self._database.execute("CREATE SCHEMA IF NOT EXISTS copy.cdc")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS copy.cdc.checkpoints (name TEXT, checkpoint BLOB)"
        )
        for (known,) in self._database.execute("SELECT name FROM copy.cdc.checkpoints").fetchall():
            if known != self._name and known.endswith(f".{name.name}"):
                raise SystemExit(f"{path} has a copy of {known}: give another file for {name}")
        self._database.begin()

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint, or None before the first one."""
        query = "SELECT checkpoint FROM copy.cdc.checkpoints WHERE name = ?"
        found = self._database.execute(query, [self._name]).fetchall()
        return pickle.loads(found[0][0]) if found else None

    def apply(self, table: TableSchema, changes: pa.RecordBatch) -> None:
        """Apply changes, in any order."""
        self._prepare(table, changes)
        partition = ", ".join(quoted(column.name) for column in table.partition_key)
        self._database.register("_cdc_needed", needed_partitions(table, changes))
        rows = self._database.sql(f"FROM {self._table} SEMI JOIN _cdc_needed USING ({partition})")
        updates = row_updates(table, changes, rows.to_arrow_table())
        self._database.register("_cdc_updates", updates)
        self._update(table)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Store the checkpoint and commit it with the changes that were applied before."""
        self._database.execute("DELETE FROM copy.cdc.checkpoints WHERE name = ?", [self._name])
        stored = [self._name, pickle.dumps(checkpoint)]
        self._database.execute("INSERT INTO copy.cdc.checkpoints VALUES (?, ?)", stored)
        self._database.commit()
        self._database.begin()

    def close(self) -> None:
        """Close the file without a commit."""
        self._database.close()

    def _prepare(self, table: TableSchema, changes: pa.RecordBatch) -> None:
        """Create the table, or add the columns that it lacks."""
        columns = [column.name for column in table.columns]
        if len({name.lower() for name in columns}) < len(columns):
            raise SystemExit(f"{table.name} has columns that DuckDB cannot tell apart: {columns}")
        columns.append("_inserted")
        self._database.register("_cdc_empty", changes.schema.empty_table().select(columns))
        self._database.execute(f"CREATE TABLE IF NOT EXISTS {self._table} AS FROM _cdc_empty")
        there = self._types(self._table)
        key = [column.name for column in table.columns if column.is_key]
        if renamed := [name for name in key if name not in there]:
            raise SystemExit(
                f"{table.name}: the copy lacks the key column {renamed[0]}, which was renamed: "
                "delete the copy to start over"
            )
        for name, kind in self._types("_cdc_empty").items():
            if name not in there:
                self._database.execute(
                    f"ALTER TABLE {self._table} ADD COLUMN {quoted(name)} {kind}"
                )
            elif there[name] != kind:
                raise SystemExit(
                    f"{table.name}: the copy's column {name} is {there[name]}, and the table's is "
                    f"{kind}: delete the copy to start over"
                )

    def _types(self, table: str) -> dict[str, str]:
        """Return the type of each column."""
        described = self._database.execute(f"DESCRIBE FROM {table}").fetchall()
        return {name: kind for name, kind, *_ in described}

    def _update(self, table: TableSchema) -> None:
        """Replace the rows that have updates, and remove those that are gone."""
        key = [quoted(column.name) for column in table.columns if column.is_key]
        values = {column.name: quoted(column.name) for column in table.values}
        same = " AND ".join(f"t.{column} IS NOT DISTINCT FROM s.{column}" for column in key)
        now = [
            f"CASE WHEN list_contains(s._modified_columns, {text(name)}) THEN s.{column} "
            f"WHEN s._change_type = 'upsert' THEN t.{column} END AS {column}"
            for name, column in values.items()
        ]
        self._database.execute(
            f"""CREATE OR REPLACE TEMP TABLE _cdc_rows AS
            SELECT {", ".join([*(f"s.{name}" for name in key), *now])}, s._change_type, s._inserted
            OR (s._change_type = 'upsert' AND coalesce(t._inserted, false)) AS _inserted
            FROM _cdc_updates s LEFT JOIN {self._table} t ON {same}"""
        )
        self._database.execute(f"DELETE FROM {self._table} t USING _cdc_rows s WHERE {same}")
        is_there = " OR ".join(["_inserted", *(f"{name} IS NOT NULL" for name in values.values())])
        self._database.execute(
            f"""INSERT INTO {self._table} BY NAME SELECT * EXCLUDE (_change_type) FROM _cdc_rows
            WHERE _change_type = 'replace' OR (_change_type = 'upsert' AND ({is_there}))"""
        )


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def keep_current(reader: CdcReader, copy: Copy, until: str | None = None) -> None:
    """Copy the existing rows if there is no checkpoint yet, then apply the changes."""
    wanted = ChangeFormat(include_delta=True, preimages="none", range_deletes="emit")
    for delivery in reader.follow_change_batches(
        copy.checkpoint(), until, format=wanted, snapshot="initial"
    ):
        match delivery:
            case SnapshotRows() | RowsRead():
                copy.apply(delivery.schema.base, delivery.batch)
            case RangeComplete() | WindowComplete():
                copy.commit(delivery.checkpoint)


def main(hosts: str, table: str, path: str, until: str | None = None) -> None:
    """Run until the end, or until Ctrl-C or SIGTERM."""
    copy = Copy(Path(path), TableName.parse(table))
    with CdcReader(hosts, table, config=ReadConfig(data_loss="fail")) as reader:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: reader.stop())
        keep_current(reader, copy, until)
    copy.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

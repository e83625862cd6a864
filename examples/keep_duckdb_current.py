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
    ColumnKind,
    RangeComplete,
    ReadConfig,
    RowsRead,
    SnapshotRows,
    TableName,
    TableSchema,
    WindowComplete,
    deleted_rows,
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
        self._database.begin()

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint, or None before the first one."""
        query = "SELECT checkpoint FROM copy.cdc.checkpoints WHERE name = ?"
        found = self._database.execute(query, [self._name]).fetchall()
        return pickle.loads(found[0][0]) if found else None

    def apply(self, table: TableSchema, changes: pa.RecordBatch) -> None:
        """Apply changes in order."""
        self._prepare(table, changes)
        count, first = changes.num_rows, 0
        places = pa.array(range(count), pa.int64())
        placed = pa.table(changes).append_column(own_name("place", table), places)
        self._database.register("_cdc_changes", placed)
        for number, kind in enumerate(changes["_change_type"].to_pylist()):
            if kind in ("delete_partition", "delete_range"):
                self._merge(table, first, number)
                self._delete(table, changes.slice(number, 1))
                first = number + 1
        self._merge(table, first, count)

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
        if table.of_kind(ColumnKind.STATIC):
            raise SystemExit(f"{table.name} has static columns, which this example does not copy")
        columns = [column.name for column in table.columns]
        if len({name.lower() for name in columns}) < len(columns):
            raise SystemExit(f"{table.name} has columns that DuckDB cannot tell apart: {columns}")
        columns.append("_inserted")
        self._database.register("_cdc_empty", changes.schema.empty_table().select(columns))
        self._database.execute(f"CREATE TABLE IF NOT EXISTS {self._table} AS FROM _cdc_empty")
        there = self._types(self._table)
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

    def _merge(self, table: TableSchema, first: int, end: int) -> None:
        """Apply changes of rows: each value becomes the one that was written last."""
        if first == end:
            return
        place, deleted = (quoted(own_name(name, table)) for name in ("place", "deleted"))
        keys = ", ".join(quoted(column.name) for column in table.columns if column.is_key)
        is_later = f"{place} > coalesce({deleted}, -1)"
        written = [
            f"""arg_max({{'value': {quoted(column.name)}}}, {place}) FILTER ({is_later} AND
            list_contains(_modified_columns, {text(column.name)})) AS {quoted(column.name)}"""
            for column in table.values
        ]
        self._database.execute(
            f"""CREATE OR REPLACE TEMP TABLE _cdc_written AS
            SELECT {", ".join([keys, *written])}, count({deleted}) > 0 AS {deleted},
            coalesce(bool_or(_inserted) FILTER ({is_later}), false) AS _inserted
            FROM (SELECT *, max({place}) FILTER (_change_type = 'delete')
            OVER (PARTITION BY {keys}) AS {deleted} FROM _cdc_changes
            WHERE {place} >= {first} AND {place} < {end}) GROUP BY {keys}"""
        )
        self._replace(table, deleted)

    def _replace(self, table: TableSchema, deleted: str) -> None:
        """Replace the rows that were written, and remove those without values."""
        key = [quoted(column.name) for column in table.columns if column.is_key]
        values = [quoted(column.name) for column in table.values]
        same = " AND ".join(f"t.{column} = s.{column}" for column in key)
        now = [
            f"CASE WHEN s.{name} IS NOT NULL THEN s.{name}.value "
            f"WHEN NOT s.{deleted} THEN t.{name} END AS {name}"
            for name in values
        ]
        self._database.execute(
            f"""CREATE OR REPLACE TEMP TABLE _cdc_rows AS
            SELECT {", ".join([*(f"s.{name}" for name in key), *now])},
            s._inserted OR (NOT s.{deleted} AND coalesce(t._inserted, false)) AS _inserted
            FROM _cdc_written s LEFT JOIN {self._table} t ON {same}"""
        )
        self._database.execute(f"DELETE FROM {self._table} t USING _cdc_rows s WHERE {same}")
        is_there = " OR ".join(["_inserted", *(f"{name} IS NOT NULL" for name in values)])
        self._database.execute(f"INSERT INTO {self._table} BY NAME FROM _cdc_rows WHERE {is_there}")

    def _delete(self, table: TableSchema, delete: pa.RecordBatch) -> None:
        """Delete a partition, or a range of its rows."""
        key = [quoted(column.name) for column in table.columns if column.is_key]
        partition = ", ".join(quoted(column.name) for column in table.partition_key)
        self._database.register("_cdc_removed", delete)
        rows = self._database.sql(
            f"SELECT {', '.join(key)} FROM {self._table} SEMI JOIN _cdc_removed USING ({partition})"
        ).to_arrow_table()
        self._database.register("_cdc_gone", rows.filter(deleted_rows(table, delete, rows)))
        same = " AND ".join(f"t.{column} = s.{column}" for column in key)
        self._database.execute(f"DELETE FROM {self._table} t USING _cdc_gone s WHERE {same}")


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def own_name(name: str, table: TableSchema) -> str:
    """Return a name for a column beside the table's: it begins with more underscores than they."""
    most = max(len(it.name) - len(it.name.lstrip("_")) for it in table.columns)
    return "_" * (most + 1) + name


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

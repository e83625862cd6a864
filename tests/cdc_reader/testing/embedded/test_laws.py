"""Tests, with random statements, that the log reproduces its table and has correct images.

Every example writes to a separate partition, through a real driver, with increasing timestamps.
"""

import itertools
import time
import uuid
from collections.abc import Iterator, Mapping
from uuid import UUID

import pytest
from attrs import frozen
from cassandra.cluster import Session
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_reader.cql.schema import Operation
from cdc_reader.cql.types import UserType, parse
from cdc_reader.testing.embedded.cdc.collection import encode
from cdc_reader.testing.embedded.codec.order import sort_key
from cdc_reader.testing.embedded.schema.table import Column, Kind, Table
from cdc_reader.testing.embedded.storage.cell import Cell
from cdc_reader.testing.target import Scylla
from tests.cdc_reader.testing.fold import Fold, select_all
from tests.recordings.replay import raw_select

LogRow = Mapping[str, bytes | None]
Log = list[list[LogRow]]

IMAGES = {
    "none": "{'enabled': true}",
    "both": "{'enabled': true, 'preimage': true, 'postimage': true}",
    "full": "{'enabled': true, 'preimage': 'full', 'postimage': true}",
}
BASE = Table(
    "ks",
    "t",
    UUID(int=1),
    (
        Column("pk", parse("int"), Kind.PARTITION_KEY, 0),
        Column("ck", parse("int"), Kind.CLUSTERING, 0),
        Column("a", parse("int")),
        Column("b", parse("text")),
        Column("l", parse("list<int>")),
        Column("m", parse("map<int, text>")),
        Column("s", parse("set<int>")),
        Column("u", UserType("ks", "u", (("x", parse("int")), ("y", parse("text"))))),
        Column("st", parse("int"), Kind.STATIC),
        Column("ss", parse("set<int>"), Kind.STATIC),
    ),
)
KEYS = itertools.count(1)

numbers = st.integers(0, 9).map(str)
atoms = st.one_of(st.just("null"), numbers)
sets = st.sets(st.integers(0, 3), max_size=3).map(lambda s: "{{{}}}".format(", ".join(map(str, s))))
maps = st.dictionaries(st.integers(0, 3), st.integers(0, 9), max_size=3).map(
    lambda m: "{{{}}}".format(", ".join(f"{k}: 'm{v}'" for k, v in m.items()))
)
lists = st.lists(st.integers(0, 3), max_size=3).map(lambda v: f"[{', '.join(map(str, v))}]")
tuples = st.sampled_from(["{x: 1, y: 'one'}", "{x: 2}", "{y: 'two'}", "null"])
full_sets = st.sets(st.integers(0, 3), min_size=1).map(
    lambda s: "{{{}}}".format(", ".join(map(str, s)))
)
assignments = {
    "a": atoms.map("a = {}".format),
    "b": numbers.map("b = 'b{}'".format),
    "l": st.one_of(
        lists.map("l = {}".format),
        lists.map("l = l + {}".format),
        lists.map("l = {} + l".format),
        lists.map("l = l - {}".format),
    ),
    "m": st.one_of(
        maps.map("m = {}".format),
        maps.map("m = m + {}".format),
        full_sets.map("m = m - {}".format),
        st.tuples(st.integers(0, 3), st.sampled_from(["null", "'v'"])).map(
            "m[{0[0]}] = {0[1]}".format
        ),
    ),
    "s": st.one_of(
        sets.map("s = {}".format), sets.map("s = s + {}".format), full_sets.map("s = s - {}".format)
    ),
    "u": st.one_of(tuples.map("u = {}".format), atoms.map("u.x = {}".format)),
}
static_assignments = st.one_of(atoms.map("st = {}".format), sets.map("ss = ss + {}".format))


@st.composite
def row_updates(draw: st.DrawFn) -> str:
    """Draw an UPDATE of one to three columns of a row."""
    columns = draw(st.sets(st.sampled_from(sorted(assignments)), min_size=1, max_size=3))
    changes = ", ".join(draw(assignments[column]) for column in sorted(columns))
    return f"UPDATE <t> SET {changes} WHERE pk = <pk> AND ck = {draw(st.integers(0, 3))}"


inserts = st.builds(
    "INSERT INTO <t> (pk, ck, a, m, s, u) VALUES (<pk>, {}, {}, {}, {}, {})".format,
    st.integers(0, 3), atoms, maps, sets, tuples,
)  # fmt: skip
deletes = st.one_of(
    st.integers(0, 3).map("DELETE FROM <t> WHERE pk = <pk> AND ck = {}".format),
    st.integers(0, 3).map("DELETE FROM <t> WHERE pk = <pk> AND ck > {}".format),
    st.integers(0, 3).map("DELETE FROM <t> WHERE pk = <pk> AND ck >= 1 AND ck <= {}".format),
    st.integers(0, 3).map("DELETE m, a FROM <t> WHERE pk = <pk> AND ck = {}".format),
    st.just("DELETE FROM <t> WHERE pk = <pk>"),
)
statics = static_assignments.map("UPDATE <t> SET {} WHERE pk = <pk>".format)
statements = st.one_of(row_updates(), row_updates(), inserts, deletes, statics)
batches = st.lists(statements, min_size=2, max_size=4).map(
    lambda batch: f"BEGIN BATCH {'; '.join(batch)}; APPLY BATCH"
)
histories = st.lists(st.one_of(statements, statements, batches), min_size=1, max_size=8)


@frozen
class Tables:
    """One table for each setting of preimages and postimages, all in one keyspace."""

    session: Session
    keyspace: str

    def run(self, images: str, history: list[str]) -> tuple[Log, list[list[bytes | None]]]:
        """Execute statements in a new partition, and return its log records and its rows."""
        key, table = next(KEYS), f"{self.keyspace}.t_{images}"
        for statement in history:
            self.session.execute(statement.replace("<t>", table).replace("<pk>", str(key)))
        where = f"WHERE pk = {key}"
        log = raw_select(
            self.session, f"SELECT * FROM {table}_scylla_cdc_log {where} ALLOW FILTERING"
        )
        names = [name for name, _ in log.columns]
        rows: list[LogRow] = [dict(zip(names, row, strict=True)) for row in log.rows]
        base = raw_select(self.session, f"SELECT * FROM {table} {where}")
        return records(rows), [list(row) for row in base.rows]


@pytest.fixture(scope="module")
def tables(scylla: Scylla) -> Iterator[Tables]:
    """Tables with the columns of BASE, one for each setting of preimages and postimages."""
    session, keyspace = scylla.session, f"laws_{uuid.uuid4().hex[:8]}"
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    session.execute(f"CREATE TYPE {keyspace}.u (x int, y text)")
    for name, images in IMAGES.items():
        session.execute(
            f"CREATE TABLE {keyspace}.t_{name} (pk int, ck int, a int, b text, l list<int>, "
            "m map<int, text>, s set<int>, u u, st int static, ss set<int> static, "
            f"PRIMARY KEY (pk, ck)) WITH cdc = {images}"
        )
    yield Tables(session, keyspace)
    session.execute(f"DROP KEYSPACE {keyspace}")


def records(rows: list[LogRow]) -> Log:
    """Group log rows into records by `cdc$time`, in order of time."""
    time_of = sort_key(parse("timeuuid"))
    rows = sorted(rows, key=lambda r: (time_of(r["cdc$time"] or b""), r["cdc$batch_seq_no"] or b""))
    return [list(group) for _, group in itertools.groupby(rows, lambda row: row["cdc$time"])]


def operation(row: LogRow) -> Operation:
    """Return the operation of a log row."""
    return Operation(int.from_bytes(row["cdc$operation"] or b"", "big", signed=True))


def no_null(value: bytes | None, column: Column) -> bytes | None:
    """Return the value, or None for an empty collection or an all-null UDT, which read as null."""
    if value is not None and column.is_multi_cell and not value.strip(b"\x00\xff"):
        is_empty = value == bytes(4) or column.is_user_type
        return None if is_empty else value
    return value


@settings(max_examples=60)
@given(history=histories, images=st.sampled_from(sorted(IMAGES)))
def test_the_fold_of_the_log_is_the_table(tables: Tables, history: list[str], images: str) -> None:
    """Applying the log to an empty table reproduces the base table, cell by cell."""
    log, base = tables.run(images, history)
    fold = Fold(BASE).apply(row for record in log for row in record)
    folded = [row for p in fold.partitions.values() for row in select_all(p, int(time.time()))]
    assert folded == base


@pytest.mark.slow
@settings(max_examples=60)
@given(history=histories, images=st.sampled_from(sorted(IMAGES)))
def test_every_record_is_numbered_and_ends_once(
    tables: Tables, history: list[str], images: str
) -> None:
    """Rows of a record are numbered from 0, and only the last has `cdc$end_of_batch` set."""
    for record in tables.run(images, history)[0]:
        numbers = [int.from_bytes(row["cdc$batch_seq_no"] or b"", "big") for row in record]
        assert numbers == list(range(len(record)))
        ends = [row["cdc$end_of_batch"] for row in record]
        assert ends == [None] * (len(record) - 1) + [b"\x01"]


@pytest.mark.slow
@settings(max_examples=100)
@given(history=histories, images=st.sampled_from(["both", "full"]))
def test_images_are_the_rows_before_and_after(
    tables: Tables, history: list[str], images: str
) -> None:
    """A preimage shows the row before its record, and a postimage shows the row after it."""
    log, _ = tables.run(images, history)
    fold = Fold(BASE)
    for record in log:
        check_images(fold, [r for r in record if operation(r) is Operation.PREIMAGE], images)
        fold.apply(record)
        after = [row for row in record if operation(row) is Operation.POSTIMAGE]
        if any(operation(row) is Operation.PARTITION_DELETE for row in record):
            # ScyllaDB's postimage keeps the static row when the same record deletes the partition.
            after = [row for row in after if row["ck"] is not None]
        check_images(fold, after, "full")


def check_images(fold: Fold, rows: list[LogRow], images: str) -> None:
    """Check that images match the rows rebuilt from the log. A full image shows all columns."""
    for image in rows:
        is_static = image["ck"] is None
        held = state(fold, image["pk"] or b"", image["ck"])
        for column in BASE.statics if is_static else BASE.regulars:
            value = image[column.name]
            is_shown = value is not None or image[f"cdc$deleted_{column.name}"] is not None
            if is_shown or images == "full":
                assert no_null(value, column) == no_null(held.get(column.name), column), column.name


def state(fold: Fold, pk: bytes, ck: bytes | None) -> dict[str, bytes | None]:
    """Return a row of the table that was rebuilt from the log, encoded as in the log.

    The row is the static row if `ck` is None.
    """
    partition = fold.partitions.get((pk,))
    if partition is None:
        return {}
    row = partition.live_static(0) if ck is None else partition.live_row((ck,), 0)
    return {
        name: live.value
        if isinstance(live, Cell)
        else encode(BASE.by_name[name].type, {k: c.value or b"" for k, c in live.items()})
        for name, live in row.cells.items()
    }

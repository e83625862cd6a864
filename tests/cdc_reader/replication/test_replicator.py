"""A replicated table equals its source, including write times and TTLs."""

from __future__ import annotations

import itertools
import random
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from attrs import evolve, frozen
from cassandra.cluster import Session
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_reader.changes.change import Change
from cdc_reader.changes.grouping import Grouping
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.cluster import Connection, Query, SchemaSource
from cdc_reader.cluster.write import CqlWriter
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.consumer import CdcConsumer
from cdc_reader.cql.names import TableName, bare_or_quoted
from cdc_reader.cql.schema import CdcOptions, Column, ColumnKind, LogSchema
from cdc_reader.cql.statement import Statement
from cdc_reader.cql.types import MapType, freeze
from cdc_reader.decoding import Page, decode, parse_metadata
from cdc_reader.errors import UnsupportedTableError
from cdc_reader.reader import CdcReader
from cdc_reader.replication.replicator import Expiry, Replicator
from cdc_reader.testing.clock import ManualClock
from tests.cdc_reader.changes.test_change import ALL_TYPES, change_of
from tests.cdc_reader.decoding.test_recorded_frames import BODIES
from tests.cdc_reader.support.recorded_logs import BASE, History, histories, log_schema
from tests.cdc_reader.testing.embedded.test_laws import statements
from tests.recordings.comparison import Result
from tests.recordings.replay import raw_select

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

IMAGES = {
    "none": "'enabled': true",
    "both": "'enabled': true, 'preimage': true, 'postimage': true",
    "images": "'enabled': true, 'preimage': 'full', 'postimage': true",
    "after": "'enabled': true, 'postimage': true",
}
COLUMNS = (
    "(pk int, ck int, a int, b text, l list<int>, m map<int, text>, s set<int>, u u, "
    "st int static, ss set<int> static, PRIMARY KEY (pk, ck))"
)
ROW_TIMES = "writetime(a), ttl(a), writetime(b), ttl(b)"
STATIC_TIMES = "writetime(st), ttl(st)"
TIMES = f"{ROW_TIMES}, {STATIC_TIMES}"
KEYS = itertools.count(1)


@pytest.fixture(scope="module")
def writer(connection: ConnectionConfig) -> Iterator[CqlWriter]:
    """A writer to the server under test."""
    writer = CqlWriter(connection)
    yield writer
    writer.close()


def rows_of(result: Result) -> list[str]:
    """Return the rows in a fixed order, with TTLs rounded to minutes."""
    ttls = [name.startswith("ttl(") for name, _ in result.columns]
    rows = [
        [_minutes(cell) if is_ttl else cell for is_ttl, cell in zip(ttls, row, strict=True)]
        for row in result.rows
    ]
    return sorted(map(repr, rows))


def _minutes(cell: bytes | None) -> int | None:
    """Round a TTL to minutes, because the TTL decreases while the test runs."""
    return None if cell is None else round(int.from_bytes(cell, "big") / 60)


@pytest.mark.slow
@pytest.mark.parametrize("history", histories(), ids=["plain", "both", "full"])
def test_replicating_a_recorded_log_gives_the_recorded_table(
    scylla: Scylla, keyspace: str, writer: CqlWriter, history: History
) -> None:
    """Replicating the log of 1,200 real statements reproduces each cell with its write time."""
    recorded = history.recorded
    for cql in [*recorded["types"], recorded["table"].split(" WITH cdc")[0]]:
        scylla.session.execute(cql.replace("{ks}", keyspace))
    replicator = Replicator(writer, {TableName("ks", "t"): TableName(keyspace, "t")})
    for change in history.changes():
        replicator.apply(change)
    base = raw_select(scylla.session, f"SELECT * FROM {keyspace}.t")
    times = raw_select(scylla.session, recorded["writetimes_cql"].replace("{ks}", keyspace))
    assert rows_of(base) == rows_of(Result.from_recording(recorded["base"]))
    assert rows_of(times) == rows_of(Result.from_recording(recorded["writetimes"]))


def test_recorded_pages_of_every_type_give_the_recorded_table(
    scylla: Scylla, keyspace: str, writer: CqlWriter, connection: ConnectionConfig
) -> None:
    """Replicating recorded pages of ScyllaDB 5.2, with every type, reproduces the recorded table.

    Some records span two pages.
    """
    log, base = BODIES["log_all_columns_unprepared"], BODIES["base_all_columns"]
    schema = log_schema(*map(_with_kind, parse_metadata(base[0]).columns or ()))
    grouping = Grouping(schema)
    batches = map(decode, map(Page.parse, log))
    changes = [change for batch in batches for change in grouping.feed(batch)]
    assert not grouping.finish()
    columns = ", ".join(
        f"{bare_or_quoted(c.name)} {c.type}{' static' * (c.kind is ColumnKind.STATIC)}"
        for c in schema.base.columns
    )
    scylla.session.execute(f"CREATE TYPE {keyspace}.u (x int, y text)")
    scylla.session.execute(f"CREATE TABLE {keyspace}.t ({columns}, PRIMARY KEY (pk, ck))")
    replicator = Replicator(writer, {schema.base.name: TableName(keyspace, "t")})
    for change in changes:
        replicator.apply(change)
    opened = Connection(connection, ReadConfig())
    found = list(opened.batches(Query(f"SELECT * FROM {keyspace}.t")))
    opened.close()
    assert contents(found) == contents(map(decode, map(Page.parse, base)))


def contents(batches: Iterable[pa.RecordBatch]) -> list[str]:
    """Return all rows in a fixed order."""
    return sorted(repr(row) for batch in batches for row in batch.to_pylist())


def _with_kind(column: Column) -> Column:
    """Return the column with its kind and frozen types, which the metadata of a result omits."""
    kinds = {
        "pk": (ColumnKind.PARTITION_KEY, 0),
        "ck": (ColumnKind.CLUSTERING, 0),
        "st": (ColumnKind.STATIC, -1),
    }
    cql_type = column.type
    if column.name == "fl":
        cql_type = freeze(cql_type)
    if isinstance(cql_type, MapType):
        cql_type = MapType(cql_type.key, freeze(cql_type.value))
    return Column(column.name, cql_type, *kinds.get(column.name, ()))


@frozen
class Tables:
    """Tables with the same columns: one for each choice of images, and a copy without CDC."""

    session: Session
    opened: Connection
    writer: CqlWriter
    keyspace: str
    schemas: dict[str, LogSchema]

    def execute(self, table: str, key: int, base: int, statement: str) -> None:
        """Execute a statement after replacing ``<t>``, ``<pk>`` and timestamps such as ``<+7>``."""
        text = statement.replace("<t>", f"{self.keyspace}.{table}").replace("<pk>", str(key))
        self.session.execute(re.sub(r"<\+(\d+)>", lambda m: str(base + int(m[1])), text))

    def write(self, table: str, key: int, statements: Iterable[str]) -> None:
        """Execute statements in which timestamps such as ``<+7>`` count from the current time."""
        now = time.time_ns() // 1_000
        for statement in statements:
            self.execute(table, key, now, statement)

    def changes(self, table: str, key: int) -> list[Change]:
        """Return all changes of the partition `key`."""
        schema = self.schemas[table]
        grouping = Grouping(schema)
        cql = f"SELECT * FROM {schema.name.cql} WHERE pk = {key} ALLOW FILTERING"
        pages = self.opened.batches(Query(cql))
        return [change for page in pages for change in grouping.feed(page)] + grouping.finish()

    def replicate(self, table: str, key: int) -> None:
        """Apply the log of the partition `key` to the copy, several changes at a time."""
        self._replicator(table).apply_all(self.changes(table, key))

    def replicate_each(self, table: str, key: int) -> None:
        """Apply the log of the partition `key` to the copy, one change at a time."""
        replicator = self._replicator(table)
        for change in self.changes(table, key):
            replicator.apply(change)

    def _replicator(self, table: str) -> Replicator:
        name = self.schemas[table].base.name
        return Replicator(self.writer, {name: TableName(self.keyspace, "copy")})

    def contents(self, table: str, key: int) -> list[list[str]]:
        """Return the rows, and the write times and TTLs of the columns `a`, `b` and `st`."""
        where = f"FROM {self.keyspace}.{table} WHERE pk = {key}"
        queries = (f"SELECT * {where}", f"SELECT ck, {TIMES} {where}")
        return [rows_of(raw_select(self.session, query)) for query in queries]

    def values(self, table: str, key: int) -> list[list[str]]:
        """Return the static cells and the rows that have cells, with write times and TTLs.

        Rows without cells are left out. Whether such a row exists depends on its row marker, and
        snapshots do not show row markers.
        """
        where = f"FROM {self.keyspace}.{table} WHERE pk = {key}"
        found = []
        for columns in (
            "ck, a, b, l, m, s, u",
            f"ck, {ROW_TIMES}",
            "DISTINCT pk, st, ss",
            f"DISTINCT pk, {STATIC_TIMES}",
        ):
            result = raw_select(self.session, f"SELECT {columns} {where}")
            rows = [row for row in result.rows if any(cell is not None for cell in row[1:])]
            found.append(rows_of(evolve(result, rows=rows)))
        return found


@pytest.fixture(scope="module")
def tables(scylla: Scylla, connection: ConnectionConfig, writer: CqlWriter) -> Iterator[Tables]:
    """Create empty tables in a new keyspace."""
    session, keyspace = scylla.session, f"replica_{uuid.uuid4().hex[:8]}"
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = "
        "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    )
    session.execute(f"CREATE TYPE {keyspace}.u (x int, y text)")
    session.execute(f"CREATE TABLE {keyspace}.copy {COLUMNS}")
    for name, options in IMAGES.items():
        session.execute(f"CREATE TABLE {keyspace}.{name} {COLUMNS} WITH cdc = {{{options}}}")
    opened = Connection(connection, ReadConfig())
    source = SchemaSource(opened)
    schemas = {name: source.log_schema(TableName(keyspace, name)) for name in IMAGES}
    yield Tables(session, opened, writer, keyspace, schemas)
    opened.close()
    session.execute(f"DROP KEYSPACE {keyspace}")


@st.composite
def timed(draw: st.DrawFn) -> str:
    """Draw a statement, sometimes with an explicit TTL or timestamp."""
    statement, options = draw(statements), []
    if statement.startswith("UPDATE"):  # few rows, so that each has several writes
        statement = statement.replace("ck = 2", "ck = 0").replace("ck = 3", "ck = 1")
    if not statement.startswith("DELETE"):
        options += draw(st.sampled_from([[], [], ["TTL 6000"], ["TTL 60000"]]))
    options += draw(st.sampled_from([[], ["TIMESTAMP <+{}>"]]))
    using = " AND ".join(options).format(draw(st.integers(0, 9))) if options else ""
    return _with_using(statement, f" USING {using}" if using else "")


def _with_using(statement: str, using: str) -> str:
    match statement.split(maxsplit=1)[0]:
        case "UPDATE":
            return statement.replace(" SET ", f"{using} SET ", 1)
        case "DELETE":
            return statement.replace(" WHERE ", f"{using} WHERE ", 1)
        case _:
            return statement + using


batches = st.lists(timed(), min_size=2, max_size=4).map(
    lambda batch: f"BEGIN BATCH {'; '.join(batch)}; APPLY BATCH"
)
_ELEMENTS_SET = (
    "INSERT INTO <t> (pk, ck, l, m, s, u) "
    "VALUES (<pk>, 1, [1, 2], {1: 'a', 2: 'b'}, {1, 2}, {x: 1, y: 'a'})"
)
_ROW_LISTS = [
    "UPDATE <t> SET l = l + [7] WHERE pk = <pk> AND ck = 1",
    "UPDATE <t> SET l = l - [1] WHERE pk = <pk> AND ck = 1",
    "UPDATE <t> SET l = [5, 6] WHERE pk = <pk> AND ck = 1",
]
_EMPTIED = [
    *(f"UPDATE <t> SET a = {value} WHERE pk = <pk> AND ck = 0" for value in ("null", "0", "null")),
    "UPDATE <t> SET st = 0 WHERE pk = <pk>",
]
writes = st.lists(st.one_of(timed(), timed(), batches), min_size=1, max_size=8)
_OTHERS = sorted(set(IMAGES) - {"both"})
_PARTIAL = sorted(set(IMAGES) - {"none", "both"})


@pytest.mark.slow
@pytest.mark.parametrize("images", ["both", *_OTHERS])
@settings(max_examples=25)
@given(history=writes, probe=st.integers(0, 9))
@example([_ELEMENTS_SET, "UPDATE <t> SET l = l - [1], u.x = null WHERE pk = <pk> AND ck = 1"], 9)
@example([_ELEMENTS_SET, "UPDATE <t> SET m[1] = null, s = s - {1} WHERE pk = <pk> AND ck = 1"], 9)
@example(["UPDATE <t> SET u = null, m = {} WHERE pk = <pk> AND ck = 1"], 0)
@example(["INSERT INTO <t> (pk, ck, a, m) VALUES (<pk>, 1, 1, {1: 'x'}) USING TTL 6000"], 5)
def test_the_replica_of_a_table_is_the_table(
    tables: Tables, images: str, history: list[str], probe: int
) -> None:
    """For any statements and images, applying the log once or twice produces an equal copy.

    The copy's cells also have the original write timestamps: a DELETE with an arbitrary timestamp,
    executed on both tables, removes the same cells from each.
    """
    key, base = next(KEYS), time.time_ns() // 1_000
    for statement in history:
        tables.execute(images, key, base, statement)
    tables.replicate(images, key)
    assert tables.contents("copy", key) == tables.contents(images, key)
    tables.replicate_each(images, key)  # applying changes again has no effect
    assert tables.contents("copy", key) == tables.contents(images, key)
    for ck in range(4):
        delete = f"DELETE FROM <t> USING TIMESTAMP <+{probe}> WHERE pk = <pk> AND ck = {ck}"
        for table in ("copy", images):
            tables.execute(table, key, base, delete)
    assert tables.contents("copy", key) == tables.contents(images, key)


@pytest.mark.parametrize(
    "images", ["both", *(pytest.param(images, marks=pytest.mark.slow) for images in _PARTIAL)]
)
@settings(max_examples=6)
@given(before=writes, during=writes, after=writes, order=st.randoms())
@example([_ELEMENTS_SET], [_ROW_LISTS[0]], [_ROW_LISTS[1]], random.Random(0))
@example([_ELEMENTS_SET], ["DELETE FROM <t> WHERE pk = <pk> AND ck = 1"], [], random.Random(1))
@example([], [_ROW_LISTS[2]], [_ROW_LISTS[0]], random.Random(2))
@example(_EMPTIED[:1], _EMPTIED[1:2], _EMPTIED[2:3], random.Random(3))
@example(_EMPTIED[:1], _EMPTIED[1:2], _EMPTIED[2:], random.Random(4))
def test_rows_and_log_make_the_table(
    tables: Tables,
    connection: ConnectionConfig,
    images: str,
    before: list[str],
    during: list[str],
    after: list[str],
    order: random.Random,
) -> None:
    """Applying a snapshot twice and the log's changes, in any order, reproduces the table."""
    key = next(KEYS)
    source = tables.schemas[images].base.name
    with CdcReader(connection, source, config=ReadConfig(confidence_window="0s")) as reader:
        tables.write(images, key, before)
        snapshot = reader.snapshot()
        found = _of_key(snapshot.changes(), key)
        tables.write(images, key, during)
        found += _of_key(snapshot.changes(), key)
        tables.write(images, key, after)
        position = snapshot.position
    found += [each for each in tables.changes(images, key) if each.timestamp >= position]
    order.shuffle(found)
    replicator = Replicator(tables.writer, {source: TableName(tables.keyspace, "copy")})
    for change in found:
        replicator.apply(change)
    assert tables.values("copy", key) == tables.values(images, key)


def _of_key(changes: Iterable[Change], key: int) -> list[Change]:
    return [change for change in changes if change.key["pk"] == key]


def test_writes_from_before_the_snapshot_may_arrive_after_it(
    tables: Tables, connection: ConnectionConfig
) -> None:
    """Writes with old timestamps that arrive after the snapshot replace only older cells."""
    key, step = next(KEYS), 1_000  # µs, so that all writes are after the first generation's start
    source = tables.schemas["both"].base.name
    base = time.time_ns() // 1_000 - 60 * step
    where = "WHERE pk = <pk> AND ck"
    for ck in (1, 2):
        written = f"(pk, ck, a, b) VALUES (<pk>, {ck}, 1, 'x') USING TIMESTAMP <+{10 * step}>"
        tables.execute("both", key, base, f"INSERT INTO <t> {written}")
    with CdcReader(connection, source, config=ReadConfig(confidence_window="0s")) as reader:
        found = _of_key(reader.snapshot().changes(), key)
    for late in (
        f"UPDATE <t> USING TIMESTAMP <+{20 * step}> SET a = 2 {where} = 1",
        f"UPDATE <t> USING TIMESTAMP <+{5 * step}> SET b = 'old' {where} = 1",
        f"DELETE FROM <t> USING TIMESTAMP <+{20 * step}> {where} = 2",
    ):
        tables.execute("both", key, base, late)
    inserts = {base + 10 * step}
    found += [each for each in tables.changes("both", key) if each.timestamp not in inserts]
    replicator = Replicator(tables.writer, {source: TableName(tables.keyspace, "copy")})
    for change in found:
        replicator.apply(change)
    assert tables.contents("copy", key) == tables.contents("both", key)
    assert len(tables.contents("copy", key)[0]) == 1


@pytest.mark.slow
@settings(max_examples=15)
@given(
    deletes=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "c1 = {0} AND c2 > {1} AND c2 <= {2}", "c1 = {0} AND c2 < {1}", "c1 >= {0}",
                    "(c1, c2) > ({0}, {1})", "c1 < {0}", "c1 = {0}", "c1 = {0} AND c2 = {1}",
                    "c1 = {0} AND c2 = {1} AND c3 > {2}",
                ]
            ),
            st.tuples(*[st.integers(0, 2)] * 3),
        ),
        min_size=1,
        max_size=3,
    )
)  # fmt: skip
def test_ranges_are_deleted_in_any_clustering_order(
    scylla: Scylla, tables: Tables, deletes: list[tuple[str, tuple[int, int, int]]]
) -> None:
    """A batch of range deletes is replicated for ascending and descending clustering columns."""
    key, keyspace = next(KEYS), tables.keyspace
    columns = "(pk int, c1 int, c2 int, c3 int, v int, PRIMARY KEY (pk, c1, c2, c3)) "
    order = "WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC, c3 ASC)"
    for table, cdc in (("ranges", " AND cdc = {'enabled': true}"), ("ranges_copy", "")):
        scylla.session.execute(
            f"CREATE TABLE IF NOT EXISTS {keyspace}.{table} {columns}{order}{cdc}"
        )
    name = TableName(keyspace, "ranges")
    schema = tables.schemas.setdefault("ranges", SchemaSource(tables.opened).log_schema(name))
    for row in itertools.product(range(3), repeat=3):
        values = ", ".join(map(str, row))
        insert = f"INSERT INTO <t> (pk, c1, c2, c3) VALUES (<pk>, {values})"
        tables.execute("ranges", key, 0, insert)
    texts = [f"DELETE FROM <t> WHERE pk = <pk> AND {text.format(*at)};" for text, at in deletes]
    tables.execute("ranges", key, 0, f"BEGIN BATCH {' '.join(texts)} APPLY BATCH")
    replicator = Replicator(tables.writer, {schema.base.name: TableName(keyspace, "ranges_copy")})
    for change in tables.changes("ranges", key):
        replicator.apply(change)
    found = [
        rows_of(raw_select(scylla.session, f"SELECT * FROM {keyspace}.{table} WHERE pk = {key}"))
        for table in ("ranges", "ranges_copy")
    ]
    assert found[0] == found[1]


def assert_copied(tables: Tables, keyspace: str) -> list[str]:
    """Apply the log of `t` to `copy`, check that both tables are equal, and return their rows."""
    schema = SchemaSource(tables.opened).log_schema(TableName(keyspace, "t"))
    grouping = Grouping(schema)
    replicator = Replicator(tables.writer, {schema.base.name: TableName(keyspace, "copy")})
    for page in tables.opened.batches(Query(f"SELECT * FROM {schema.name.cql}")):
        for change in grouping.feed(page):
            replicator.apply(change)
    source, copy = (
        rows_of(raw_select(tables.session, f"SELECT * FROM {keyspace}.{table}"))
        for table in ("t", "copy")
    )
    assert source == copy
    return source


def test_values_of_every_type_are_replicated(scylla: Scylla, tables: Tables, keyspace: str) -> None:
    """Values of every type are replicated byte for byte, as cells, list elements and map keys."""
    session, key_types = scylla.session, list(ALL_TYPES)
    session.execute(f"CREATE TYPE {keyspace}.u (x int, y text)")
    columns = "".join(f", c{at} {t}, l{at} list<{t}>" for at, t in enumerate(key_types))
    columns += "".join(
        f", m{at} map<{t}, {t}>" for at, t in enumerate(key_types) if t != "duration"
    )
    for table, cdc in (("t", " WITH cdc = {'enabled': true}"), ("copy", "")):
        session.execute(f"CREATE TABLE {keyspace}.{table} (pk int PRIMARY KEY{columns}){cdc}")
    for at, (cql_type, (text, _, _)) in enumerate(ALL_TYPES.items()):
        assigned = f"c{at} = {text}, l{at} = [{text}, {text}]"
        assigned += f", m{at} = {{{text}: {text}}}" if cql_type != "duration" else ""
        session.execute(f"UPDATE {keyspace}.t SET {assigned} WHERE pk = 1")
    rows = assert_copied(tables, keyspace)
    assert "None" not in rows[0]


def test_both_zeros_are_replicated(scylla: Scylla, tables: Tables, keyspace: str) -> None:
    """A set or map keeps 0.0 and -0.0, which are equal in Python, as two elements."""
    session = scylla.session
    columns = (
        "pk int PRIMARY KEY, s set<double>, m map<double, int>, "
        "f frozen<set<frozen<list<float>>>>, kept set<float>"
    )
    for table, cdc in (("t", " WITH cdc = {'enabled': true}"), ("copy", "")):
        session.execute(f"CREATE TABLE {keyspace}.{table} ({columns}){cdc}")
    for statement in (
        "INSERT INTO {t} (pk, s, m, f) VALUES (1, {-0.0, 0.0}, {-0.0: 1, 0.0: 2}, {[-0.0], [0.0]})",
        "UPDATE {t} SET kept = {-0.0, 0.0, 1.0} WHERE pk = 1",
        "UPDATE {t} SET s = s + {-0.0, 0.0}, m = m + {-0.0: 3, 0.0: 4} WHERE pk = 2",
        "UPDATE {t} SET kept = kept - {-0.0, 0.0} WHERE pk = 1",
    ):
        session.execute(statement.replace("{t}", f"{keyspace}.t"))
    assert_copied(tables, keyspace)


def test_a_consumer_keeps_a_replica(connection: ConnectionConfig, tables: Tables) -> None:
    """A consumer replicates a table's changes with several threads."""
    key, base = next(KEYS), time.time_ns() // 1_000
    row = "WHERE pk = <pk> AND ck = 1"
    for statement in (
        _ELEMENTS_SET,
        f"UPDATE <t> USING TTL 6000 SET a = 1, l = [0] + l, m = m - {{1}} {row}",
        f"UPDATE <t> SET b = 'b', u.y = null, s = {{7}} {row}",
        "UPDATE <t> SET st = 3, ss = ss + {1} WHERE pk = <pk>",
        "INSERT INTO <t> (pk, ck) VALUES (<pk>, 2)",
        "DELETE FROM <t> WHERE pk = <pk> AND ck >= 2",
    ):
        tables.execute("images", key, base, statement)
    source, copy = TableName(tables.keyspace, "images"), TableName(tables.keyspace, "copy")
    now = time.time_ns() // 1_000 + 1
    consumer = CdcConsumer(
        connection,
        [source],
        Replicator(tables.writer, {source: copy}).apply,
        application="replica",
        checkpoints=MemoryCheckpoints(),
        end=now,
        clock=ManualClock(now + 60_000_000),
    )
    consumer.run()
    assert tables.contents("copy", key) == tables.contents("images", key)
    assert len(tables.contents("copy", key)[0]) == 1


class Ledger:
    """A writer that only records its statements."""

    def __init__(self) -> None:
        self.statements: list[Sequence[Statement]] = []

    def write(self, statements: Sequence[Statement]) -> None:
        self.statements.append(statements)


class Rounds(Ledger):
    """A writer that records, for each round, the values of each partition's statements."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[list[list[tuple[object, ...]]]] = []

    def write_all(self, rounds: Iterable[list[list[Statement]]]) -> None:
        for partitions in rounds:
            self.rounds.append([[each.values for each in written] for written in partitions])


def test_the_changes_of_a_partition_are_one_write() -> None:
    """Changes are applied in rounds. Each round groups them by partition and keeps their order."""
    changes = [change_of({"op": 3, "pk": n % 7, "ck": n}) for n in range(1_200)]
    writer = Rounds()
    Replicator(writer).apply_all(iter(changes))
    assert [len(partitions) for partitions in writer.rounds] == [7, 7, 7]
    numbers: dict[object, list[object]] = {n: [] for n in range(7)}
    for partitions in writer.rounds:
        for written in partitions:
            [partition] = {values[1] for values in written}
            numbers[partition] += [values[2] for values in written]
    assert numbers == {n: list(range(n, 1_200, 7)) for n in range(7)}


def test_a_writer_of_single_partitions_suffices() -> None:
    """A writer without `write_all` gets the statements of one partition at a time."""
    changes = [change_of({"op": 3, "pk": n % 2, "ck": n}) for n in range(10)]
    ledger = Ledger()
    Replicator(ledger).apply_all(changes)
    assert [len(written) for written in ledger.statements] == [5, 5]


def test_changes_that_cannot_be_applied_are_refused() -> None:
    """Changes that cannot be applied are rejected.

    A change is rejected if it contains only keys, only one end of a range or no clustering key, or
    if its operation is unknown.
    """
    keys_only = log_schema(*BASE, cdc=CdcOptions(enabled=True, delta_keys_only=True))
    ledger = Ledger()
    for change, message in (
        (change_of({"op": 1, "ck": 1}, schema=keys_only), "has keys only"),
        (change_of({"op": 42, "ck": 1}), "operation unknown_42 is not known"),
        (change_of({"op": 5, "ck": 1}, complete=False), "expected both ends"),
        (change_of({"op": 3}), "does not show its clustering key"),
        (change_of({"op": 2, "a": 1}), "does not show its clustering key"),
        (change_of({"op": 1, "a": 1}), "does not show its clustering key"),
    ):
        with pytest.raises(UnsupportedTableError, match=message):
            Replicator(ledger).apply(change)
    Replicator(ledger).apply(change_of({"op": 0, "ck": 1, "a": 1}))
    assert ledger.statements == []


@pytest.mark.parametrize(("operation", "has_row"), [(-3, True), (-4, False)])
def test_deletions_are_replicated(operation: int, has_row: bool) -> None:
    """If the server deletes expired rows and partitions, the copy deletes them too."""
    row = {"ck": 1} if has_row else {}
    (statement,) = Replicator(Ledger()).statements(change_of({"op": operation, **row}))
    ends = 'WHERE "pk" = ? AND "ck" = ?' if has_row else 'WHERE "pk" = ?'
    assert statement.cql == f'DELETE FROM "ks"."t" USING TIMESTAMP ? {ends}'
    assert statement.values == (1_700_000_000_000_000, 1, 1)[: 3 if has_row else 2]


@pytest.mark.parametrize(
    ("expiry", "late", "ttl"),
    [
        (Expiry.WRITTEN, 0, 60),
        (Expiry.WRITTEN, 20_000_001, 40),
        (Expiry.WRITTEN, 90_000_000, 1),
        (Expiry.WRITTEN, -5_000_000, 60),
        (Expiry.APPLIED, 90_000_000, 60),
    ],
)
def test_a_cell_expires_when_its_original_does(expiry: Expiry, late: int, ttl: int) -> None:
    """A cell that is copied late expires when its original does.

    With `Expiry.APPLIED`, the copied cell gets the full TTL instead.
    """
    change = change_of({"op": 1, "ck": 1, "a": 1, "ttl": 60}, {"op": 1, "ck": 1, "b": "x"})
    clock = ManualClock(change.timestamp + late)
    first, other = Replicator(Ledger(), expiry=expiry, clock=clock).statements(change)
    assert first.values[:2] == (change.timestamp, ttl)
    assert other.values[:2] == (change.timestamp, 0)


def test_few_distinct_statements_are_prepared() -> None:
    """Replicating any recorded history uses fewer than 30 distinct prepared statements."""
    for history in histories():
        replicator = Replicator(Ledger())
        texts = {s.cql for change in history.changes() for s in replicator.statements(change)}
        assert len(texts) < 30

"""Tests that the server handles unusual requests as ScyllaDB does, or rejects them."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, Unauthorized, Unavailable
from cassandra.cluster import NoHostAvailable, Session
from cassandra.protocol import ConfigurationException, SyntaxException
from cassandra.query import SimpleStatement
from cassandra.util import Duration

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.cql_session import open_session
from cdc_reader.testing.embedded.errors import CqlError

REPLICATION = "WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A two-node server with a table that uses vnodes, and one that uses tablets."""
    with EmbeddedScylla(nodes=2) as server:
        server.execute(f"CREATE KEYSPACE ks {REPLICATION}")
        server.execute(f"CREATE KEYSPACE tb {REPLICATION} AND tablets = {{'initial': 2}}")
        for keyspace in ("ks", "tb"):
            server.execute(
                f"CREATE TABLE {keyspace}.t (pk int, ck int, v text, PRIMARY KEY (pk, ck)) "
                "WITH cdc = {'enabled': true}"
            )
            for number in range(10):
                server.execute(f"INSERT INTO {keyspace}.t (pk, ck, v) VALUES (1, {number}, 'x')")
        yield server


@pytest.fixture(scope="module")
def session(server: EmbeddedScylla) -> Iterator[Session]:
    """A driver session with the first node."""
    session = open_session(server.host, server.port)
    yield session
    session.cluster.shutdown()


def test_a_node_leaves_once() -> None:
    """A node that has left cannot leave again."""
    with EmbeddedScylla(nodes=2) as server:
        last = server.cluster.nodes[-1]
        server.leave(last)
        with pytest.raises(ValueError, match="expected one that is on the ring"):
            server.leave(last)


@pytest.fixture(scope="module")
def numbers(session: Session) -> Session:
    """A session with a table of two rows, with values that floats cannot represent exactly."""
    session.execute(
        "CREATE TABLE ks.n (pk int, ck int, d decimal, v varint, i int, f float, g double, "
        "u duration, ts timestamp, da date, tm time, m map<decimal, text>, s set<decimal>, "
        "fm frozen<map<decimal, text>>, l list<int>, PRIMARY KEY (pk, ck))"
    )
    session.execute(
        "INSERT INTO ks.n (pk, ck, d, v, i, f, g, u, ts) VALUES (1, 1, 0.10, "
        "123456789012345678901234567891, 2147483647, 16777216, 1e300, -1mo3d4h5ms, 37290752609340)"
    )
    session.execute(
        "INSERT INTO ks.n (pk, ck, d, v, i, f, g, u, da) VALUES "
        "(1, 2, 123456789012345678901234567890.123, -2, 2147483646, 1, 0.1, 14mo, '-9999-01-01')"
    )
    return session


@pytest.mark.parametrize(
    ("selected", "value"),
    [
        ("sum(d)", Decimal("123456789012345678901234567890.223")),
        ("avg(d)", Decimal("61728394506172839450617283945.112")),
        ("sum(v)", 123456789012345678901234567889),
        ("avg(v)", 61728394506172839450617283944),
        ("avg(i)", 2147483646),
        ("sum(f)", 16777216.0),
        ("CAST(d AS text)", "0.1"),
        ("CAST(v AS text)", "123456789012345678901234567891"),
        ("CAST(f AS text)", "16777216"),
        ("CAST(g AS text)", "1e+300"),
        ("CAST(g AS float)", float("inf")),
        ("CAST(i AS decimal)", Decimal("2147483647.0")),
        ("toJson(u)", '"-1mo3d4h5ms"'),
        ("toJson(ts)", '"3151-09-12T22:23:29.340Z"'),
    ],
)
def test_calculations_are_exact(numbers: Session, selected: str, value: object) -> None:
    """Results are not rounded to floats or to 28 digits."""
    found = numbers.execute(f"SELECT {selected} FROM ks.n WHERE pk = 1").one()[0]
    assert (found, str(found)) == (value, str(value))


@pytest.mark.parametrize(
    ("selected", "message"),
    [
        ("sum(i)", "Sum overflow. Values should be casted to a wider type."),
        ("CAST(g AS int)", "CAST of 1e\\+300 to int is not supported by this server"),
        ("CAST(da AS text)", "outside the years 1 to 9999"),
        ("toJson(da)", "outside the years 1 to 9999"),
        ("JSON da", "outside the years 1 to 9999"),
        ("CAST(u AS text)", "DurationType cannot be cast to .*UTF8Type"),
    ],
)
def test_what_cannot_be_calculated_is_refused(
    numbers: Session, selected: str, message: str
) -> None:
    """An impossible calculation is rejected with a message that states the reason."""
    with pytest.raises(InvalidRequest, match=message):
        numbers.execute(f"SELECT {selected} FROM ks.n WHERE pk = 1").all()


@pytest.mark.parametrize(
    ("column", "value", "selected"),
    [
        ("d", "1e2000000000", "CAST(d AS varint)"),
        ("d", "1e2000000000", "toJson(d)"),
        ("d", "1e-2000000000", "sum(d)"),
        ("g", "NaN", "CAST(g AS bigint)"),
        ("g", "Infinity", "CAST(g AS varint)"),
        ("g", "-Infinity", "CAST(g AS decimal)"),
        ("i", "blobAsInt(0x)", "CAST(i AS text)"),
        ("i", "blobAsInt(0x)", "sum(i)"),
        ("tm", "blobAsTime(0x7fffffffffffffff)", "toJson(tm)"),
        ("ts", "blobAsTimestamp(0x7fffffffffffffff)", "toDate(ts)"),
        ("ts", "blobAsTimestamp(0x7fffffffffffffff)", "JSON ts"),
    ],
)
def test_extreme_values_are_kept_but_not_converted(
    numbers: Session, column: str, value: str, selected: str
) -> None:
    """Extreme values can be stored. Converting them is rejected and does not crash the server."""
    numbers.execute(f"INSERT INTO ks.n (pk, ck, {column}) VALUES (2, 1, {value})")
    assert len(numbers.execute("SELECT pk, ck FROM ks.n WHERE pk = 2").all()) == 1
    with pytest.raises(InvalidRequest, match=r"not supported|out of bounds"):
        numbers.execute(f"SELECT {selected} FROM ks.n WHERE pk = 2").all()


def test_decimal_keys_are_equal_by_value(numbers: Session) -> None:
    """Decimal keys with equal values are equal, even if their scales differ."""
    row = "ks.n WHERE pk = 3 AND ck = 1"
    numbers.execute("INSERT INTO ks.n (pk, ck, m, s, fm) VALUES (3, 1, {1.0: 'a', 10: 'b'}, "
                    "{2, 1.0, 1.00}, {10: 'b', 9.5: 'c', 9.50: 'd'})")  # fmt: skip
    numbers.execute("UPDATE ks.n SET m[1.00] = 'c', s = s + {2.0} WHERE pk = 3 AND ck = 1")
    found = numbers.execute(f"SELECT toJson(m), toJson(s), toJson(fm), m[1] FROM {row}").one()
    assert found == ('{"1": "c", "10": "b"}', "[1, 2]", '{"9.5": "c", "10": "b"}', "c")
    numbers.execute(f"DELETE m[1.000] FROM {row}")
    assert numbers.execute(f"SELECT toJson(m) FROM {row}").one()[0] == '{"10": "b"}'


@pytest.mark.parametrize(
    "duration", ["2147483648d", "-178956971y", "9223372036854775808ns", "1d1y", "1h1h"]
)
def test_durations_have_limits(numbers: Session, duration: str) -> None:
    """Durations beyond 32-bit months or days, or 64-bit nanoseconds, are rejected.

    Durations with repeated units, or with smaller units before larger ones, are rejected too.
    """
    with pytest.raises(InvalidRequest, match="Invalid duration"):
        numbers.execute(f"UPDATE ks.n SET u = {duration} WHERE pk = 1 AND ck = 1")


@pytest.mark.parametrize(
    "deletion", ["DELETE FROM ks.deleted WHERE pk = 1", "DELETE c FROM ks.deleted WHERE pk = 1"]
)
def test_a_deleted_counter_does_not_count_on(session: Session, deletion: str) -> None:
    """Incrementing a deleted counter is rejected, because its value in ScyllaDB is undefined."""
    session.execute("DROP TABLE IF EXISTS ks.deleted")
    session.execute("CREATE TABLE ks.deleted (pk int PRIMARY KEY, c counter)")
    for _ in range(2):
        session.execute("UPDATE ks.deleted SET c = c + 1 WHERE pk = 1")
    session.execute(deletion)
    with pytest.raises(InvalidRequest, match="not supported by this server"):
        session.execute("UPDATE ks.deleted SET c = c + 1 WHERE pk = 1")
    assert not session.execute("SELECT c FROM ks.deleted WHERE pk = 1").all()


ALTER_SIMPLE = (
    "ALTER KEYSPACE tb WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
)
ORDER_OF_THE_LAST = (
    "CREATE TABLE ks.x (a int, b int, c int, PRIMARY KEY (a, b, c)) "
    "WITH CLUSTERING ORDER BY (c DESC)"
)
COUNT = "UPDATE ks.c SET n = n + 1 WHERE pk = 1; APPLY BATCH"
SMALLEST = "USING TIMESTAMP -9223372036854775808"
OUT_OF_BOUND = r"Out of bound timestamp, must be in \[-9223372036854775807, 9223372036854775807\]"
ELEMENTS = (
    "CREATE TABLE ks.e (pk int PRIMARY KEY, v int, m map<text, int>, s set<int>, "
    "l list<int>, fm frozen<map<text, int>>, d duration, td frozen<tuple<int, duration>>)"
)
FILTER = "SELECT pk FROM ks.e WHERE {} ALLOW FILTERING"
NEW_TABLE = "CREATE TABLE ks.x (a int PRIMARY KEY) WITH "
NEW_KEYSPACE = f"CREATE KEYSPACE x {REPLICATION} AND tablets = "
COMPACTION = "compaction = {{'class': 'SizeTieredCompactionStrategy', '{}_threshold': 0}}"
DICTIONARY = "unable to find class 'org.apache.cassandra.io.compress.LZ4WithDictsCompressor'"
ALTER_TB = "ALTER KEYSPACE tb WITH replication = {'class': 'NetworkTopologyStrategy', "


@pytest.fixture(scope="module")
def refusing(session: Session) -> Session:
    """A session with tables of several kinds, which no refused statement changes."""
    session.execute(
        "CREATE TABLE ks.two (a int, b int, c int, l list<int>, PRIMARY KEY ((a, b), c))"
    )
    session.execute(ELEMENTS)
    session.execute("CREATE TABLE ks.c (pk int PRIMARY KEY, n counter)")
    return session


@pytest.fixture(scope="module")
def refusing_5_2() -> Iterator[Session]:
    """A session with a server of version 5.2 that has such a table."""
    with EmbeddedScylla(version="5.2") as old:
        session = open_session(old.host, old.port)
        try:
            session.execute(f"CREATE KEYSPACE ks {REPLICATION}")
            session.execute(ELEMENTS)
            yield session
        finally:
            session.cluster.shutdown()


@pytest.mark.parametrize(
    ("cql", "message"),
    [
        ("CREATE TABLE ks.x (a frozen<int> PRIMARY KEY)", "frozen<> is only allowed on"),
        ("CREATE TABLE ks.x (a int PRIMARY KEY, b set<duration>)", "not allowed inside sets"),
        ("CREATE TABLE ks.x (a int PRIMARY KEY, b map<duration, int>)", "not allowed as map keys"),
        ("CREATE TABLE ks.x (a frozen<list<duration>> PRIMARY KEY)", "duration type is not"),
        ("CREATE TABLE ks.x (a int PRIMARY KEY, b vector<int, 0>)", "a dimension of 1 to 16000"),
        ("CREATE TABLE ks.x (a int PRIMARY KEY, b vector<int, 16001>)", "a dimension of 1 to 1600"),
        ("CREATE TABLE ks.x (a int PRIMARY KEY) WITH compaction = {'enabled': 'true'}", "Missing"),
        ("CREATE TABLE ks.x (a int PRIMARY KEY) WITH tombstone_gc = {'mode': 'x'}", "tombstone_gc"),
        ("CREATE TABLE ks.x (a int PRIMARY KEY) WITH id = 'x'", "Invalid table id"),
        (
            "ALTER TABLE ks.t WITH id = 5a1c395e-b41f-11e5-9f22-ba0be0483c18",
            "Cannot alter table id",
        ),
        ("ALTER TABLE ks.t WITH tablets = {'min_tablet_count': 2}", "tablets are disabled"),
        (ALTER_TB + "'datacenter1': 3}", "not by more than 1"),
        (ALTER_SIMPLE, "Cannot alter replication strategy"),
        ("SELECT DISTINCT a FROM ks.two", "must request all the partition key columns"),
        ("SELECT DISTINCT a, b FROM ks.two WHERE c = 1 ALLOW FILTERING", "by partition key"),
        ("SELECT JSON DISTINCT c FROM ks.two", "only request partition key columns"),
        ("SELECT * FROM ks.two WHERE l = [1] ALLOW FILTERING", "cannot be restricted by a '='"),
        ("UPDATE ks.t SET v = 'y' WHERE pk IN () AND ck = 1 IF v = 'x'", "Unrestricted partition"),
        (ORDER_OF_THE_LAST, "Missing CLUSTERING ORDER for column b"),
        ("BEGIN COUNTER BATCH USING TIMESTAMP 5 " + COUNT, "timestamp for counter BATCH"),
        ("BEGIN UNLOGGED BATCH USING TIMESTAMP 5 " + COUNT, "BATCH containing counters"),
        (FILTER.format("m['k'] > 0"), "Only EQ relations are supported on map/list entries"),
        (FILTER.format("fm['k'] = 1"), "predicates on frozen map column fm are not supported"),
        (FILTER.format("s[1] = 1"), "Column s cannot be subscripted"),
        ("UPDATE ks.e SET v = 1 WHERE pk = 1 IF v[1] = 1", "v is not a map/set/list, cannot be"),
        (FILTER.format("v CONTAINS 1"), 'CONTAINS on non-collection column "v"'),
        (FILTER.format("s CONTAINS KEY 1"), "CONTAINS KEY on non-map column s"),
        ("SELECT v[1] FROM ks.e", "Column v is not a map/set/list, cannot be subscripted"),
        (FILTER.format("d > 1h"), "Duration type is unordered for d"),
        (FILTER.format("td <= (1, 1h)"), "Duration type is unordered for td"),
        ("UPDATE ks.e SET v = 1 WHERE pk = 1 IF d > 1h", "Duration type is unordered for d"),
        (FILTER.format("v NOT IN (1)"), "NOT IN is not supported by this server"),
        ("INSERT INTO ks.e (pk, v) VALUES (1, fromJson('1'))", "fromJson is not supported"),
        (NEW_TABLE + "caching = {'nosuch': 'ALL'}", "Invalid caching option: nosuch"),
        (NEW_TABLE + "caching = {'keys': 'SOME'}", "Invalid key value: SOME"),
        (
            NEW_TABLE + "compression = {'chunk_length_in_kb': '4'}",
            "Missing sub-option 'sstable_",
        ),
        (NEW_TABLE + "paxos_grace_seconds = -1", "paxos_grace_seconds cannot be smaller than 0"),
        (NEW_TABLE + COMPACTION.format("min"), "Disabling compaction by setting compaction thresh"),
        (NEW_TABLE + COMPACTION.format("max"), "Disabling compaction by setting compaction thresh"),
        (NEW_KEYSPACE + "{'enabled': 'maybe'}", "must be true or false; found: maybe"),
        (NEW_KEYSPACE + "{'initial': 'x'}", "Initial tablets value should be numeric; found x"),
        ("TRUNCATE ks.t USING TIMEOUT 1d", "cannot be expressed in days/months"),
        (
            "ALTER KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy'}",
            "at least on",
        ),
        ("ALTER TABLE ks.t DROP v USING TIMESTAMP 9223372036854775808", "Invalid number format"),
        ("INSERT INTO ks.e (pk) VALUES (1) " + SMALLEST, OUT_OF_BOUND),
        ("BEGIN BATCH " + SMALLEST + " DELETE FROM ks.e WHERE pk = 1; APPLY BATCH", OUT_OF_BOUND),
        ("BEGIN BATCH DELETE FROM ks.t " + SMALLEST + " WHERE pk = 1; APPLY BATCH", OUT_OF_BOUND),
        (NEW_TABLE + "speculative_retry = '100.1PERCENTILE'", "must be between .0.0 and 100.0."),
        (
            NEW_TABLE + "speculative_retry = '-1percentile'",
            "Invalid value -1PERCENTILE for PERCENT",
        ),
        (NEW_TABLE + "speculative_retry = 'nanpercentile'", "Invalid value NANPERCENTILE"),
        (NEW_TABLE + "speculative_retry = '-5ms'", "must be non-negative and finite"),
        (NEW_TABLE + "speculative_retry = '1e400ms'", "must be non-negative and finite"),
        (NEW_TABLE + "speculative_retry = 'xms'", "cannot convert XMS to speculative_retry"),
        (NEW_TABLE + "speculative_retry = 'xpercentile'", "cannot convert XPERCENTILE to"),
    ],
)
def test_what_a_real_server_refuses(refusing: Session, cql: str, message: str) -> None:
    """Statements that ScyllaDB rejects are rejected, not ignored."""
    with pytest.raises((InvalidRequest, ConfigurationException), match=message):
        refusing.execute(cql)


@pytest.mark.parametrize(
    ("cql", "message"),
    [
        (FILTER.format("d > 1h"), "Slice restrictions are not supported on duration columns"),
        (FILTER.format("td > (1, 1h)"), "Slice restrictions .* on tuples containing durations"),
        ("UPDATE ks.e SET v = 1 WHERE pk = 1 IF d > 1h", "Slice conditions .* on durations"),
        ("UPDATE ks.e SET v = 1 WHERE pk = 1 IF s[1] = 1", "access syntax for set column s"),
        ("UPDATE ks.e SET v = 1 WHERE pk = 1 IF v[1] = 1", "syntax for non-collection column v"),
        ("SELECT m['k'] FROM ks.e", "no viable alternative at input '\\['"),
        (NEW_TABLE.replace("a int", "b vector<int, 2>, a int"), "no viable alternative"),
        ("ALTER TABLE ks.e DROP v USING TIMESTAMP 1", "no viable alternative at input 'USING'"),
        (NEW_TABLE + "compression = {'sstable_compression': 'LZ4WithDictsCompressor'}", DICTIONARY),
    ],
)
def test_what_a_real_5_2_refuses(refusing_5_2: Session, cql: str, message: str) -> None:
    """Version 5.2 has other error messages, and rejects the syntax of newer versions."""
    with pytest.raises((InvalidRequest, SyntaxException, NoHostAvailable), match=message):
        refusing_5_2.execute(cql)


@pytest.mark.parametrize(
    "cql", ["ALTER KEYSPACE system WITH durable_writes = true", "CREATE TYPE system.x (a int)"]
)
def test_system_keyspaces_stay(session: Session, cql: str) -> None:
    """Statements that would change a system keyspace are not authorized."""
    with pytest.raises(Unauthorized, match="system keyspace is not user-modifiable"):
        session.execute(cql)


@pytest.mark.parametrize("level", ["ANY", "EACH_QUORUM"])
def test_some_consistencies_are_for_writes(session: Session, level: str) -> None:
    """A read at a consistency level that is only for writes is rejected."""
    statement = SimpleStatement(
        "SELECT ck FROM ks.t", consistency_level=getattr(ConsistencyLevel, level)
    )
    with pytest.raises(InvalidRequest, match=f"{level} ConsistencyLevel is only supported for wri"):
        session.execute(statement)


def test_a_bound_timestamp_out_of_bounds_is_refused(refusing: Session) -> None:
    """The smallest timestamp, by which ScyllaDB means that there is none, cannot be bound."""
    prepared = refusing.prepare("INSERT INTO ks.e (pk) VALUES (1) USING TIMESTAMP ?")
    with pytest.raises(InvalidRequest, match=OUT_OF_BOUND):
        refusing.execute(prepared, [-(2**63)])
    refusing.execute(prepared, [-(2**63) + 1])


def test_truncating_in_5_2_may_have_a_timeout(refusing_5_2: Session) -> None:
    """Version 5.2 is the first in which TRUNCATE accepts USING TIMEOUT; 5.1 rejects it."""
    refusing_5_2.execute("TRUNCATE ks.e USING TIMEOUT 5s")
    old = EmbeddedScylla(version="5.1")
    old.execute(f"CREATE KEYSPACE ks {REPLICATION}")
    old.execute(ELEMENTS)
    with pytest.raises(CqlError, match="no viable alternative at input 'USING'"):
        old.execute("TRUNCATE ks.e USING TIMEOUT 5s")


def test_truncating_may_have_a_timeout(session: Session) -> None:
    """TRUNCATE accepts USING TIMEOUT, which may be a bind variable."""
    session.execute("TRUNCATE ks.t USING TIMEOUT 5s")
    assert not session.execute("SELECT ck FROM ks.t").all()
    prepared = session.prepare("TRUNCATE TABLE ks.t USING TIMEOUT ?")
    session.execute(prepared, [Duration(0, 0, 5_000_000)])


@pytest.mark.parametrize(
    ("condition", "message"),
    [("", "conditional updates for serializable writes"), ("IF NOT EXISTS", "commit consistency")],
)
def test_serial_consistencies_are_for_reads(session: Session, condition: str, message: str) -> None:
    """A write with a serial consistency is rejected, even with a condition."""
    statement = SimpleStatement(
        f"INSERT INTO ks.t (pk, ck) VALUES (5, 5) {condition}",
        consistency_level=ConsistencyLevel.SERIAL,
    )
    with pytest.raises(InvalidRequest, match=message):
        session.execute(statement)


@pytest.mark.parametrize(
    ("replication", "level", "required"),
    [("3", "QUORUM", 2), ("3", "LOCAL_QUORUM", 2), ("3", "ALL", 3), ("2", "TWO", 2)],
)
def test_replicas_that_do_not_exist_are_unavailable(
    session: Session, replication: str, level: str, required: int
) -> None:
    """A level that needs more replicas than there are nodes is unavailable; two nodes are there."""
    with EmbeddedScylla() as alone:
        own = open_session(alone.host, alone.port)
        factor = f"'replication_factor': {replication}"
        own.execute(f"CREATE KEYSPACE r WITH replication = {{'class': 'SimpleStrategy', {factor}}}")
        own.execute("CREATE TABLE r.t (pk int PRIMARY KEY)")
        for cql in ("SELECT pk FROM r.t", "INSERT INTO r.t (pk) VALUES (1)"):
            statement = SimpleStatement(cql, consistency_level=getattr(ConsistencyLevel, level))
            with pytest.raises(NoHostAvailable) as error:
                own.execute(statement)
            (found,) = error.value.errors.values()
            assert isinstance(found, Unavailable)
            assert (found.required_replicas, found.alive_replicas) == (required, 1)
        own.cluster.shutdown()
    quorum = SimpleStatement(
        "SELECT time FROM system_distributed.cdc_generation_timestamps",
        consistency_level=ConsistencyLevel.QUORUM,
    )
    assert session.execute(quorum).all()  # two of three replicas are enough


def test_a_table_on_tablets_needs_a_node_for_each_replica() -> None:
    """Tables that use tablets are refused while there are fewer nodes than replicas."""
    with EmbeddedScylla(nodes=2) as few:
        three = REPLICATION.replace(": 1", ": 3")
        few.execute(f"CREATE KEYSPACE vnodes {three} AND tablets = {{'enabled': false}}")
        few.execute(f"CREATE KEYSPACE tablets {three} AND tablets = {{'enabled': true}}")
        few.execute("CREATE TABLE vnodes.t (pk int PRIMARY KEY)")
        message = "datacenter1 doesn't have enough token-owning nodes for replication_factor=3"
        with pytest.raises(CqlError, match=message):
            few.execute("CREATE TABLE tablets.t (pk int PRIMARY KEY)")
        few.join()
        few.execute("CREATE TABLE tablets.t (pk int PRIMARY KEY)")

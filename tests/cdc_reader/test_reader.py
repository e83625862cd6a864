"""`CdcReader` with a real driver and server."""

from __future__ import annotations

import pickle
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader import CdcReader, ChangeFormat, ConnectionConfig, ReadConfig, Window
from cdc_reader._time import BEGINNING, FOREVER, datetime_micros, format_timestamp
from cdc_reader.changes.delta import Assigned
from cdc_reader.cluster import Connection
from cdc_reader.cql.names import TableName
from cdc_reader.errors import (
    AuthenticationFailedError,
    ConfigurationError,
    DecodeError,
    RetriesExhaustedError,
    TableNotFoundError,
)
from cdc_reader.reading.delivery import RowsRead, WindowComplete
from cdc_reader.table_reader import TableReader
from cdc_reader.testing.clock import ManualClock
from tests.cdc_reader.support.tuned import tuning_of_module

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

TABLE = "CREATE TABLE {ks}.t (p int, c int, v text, m map<int, text>, PRIMARY KEY (p, c))"
SMALL_PAGES = ReadConfig(fetch_size=7)

small_chunks = tuning_of_module(streams_per_query=3, in_flight=2)
COUNT = 200


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """A keyspace whose table `t` has 200 rows."""
    scylla.session.execute(TABLE.format(ks=keyspace) + " WITH cdc = {'enabled': true}")
    insert = scylla.session.prepare(f"INSERT INTO {keyspace}.t (p, c, v, m) VALUES (?, ?, ?, ?)")
    for number in range(COUNT):
        scylla.session.execute(insert, (number % 20, number, f"v{number}", {number: "x"}))
    return keyspace


def rows_of(batches: Any) -> list[dict[str, Any]]:
    """Return all rows of the batches."""
    return [row for batch in batches for row in batch.to_pylist()]


def test_a_bounded_read_has_every_row_once_in_order(
    connection: ConnectionConfig, table: str
) -> None:
    """A read of several pages and chunks, with several queries in flight, returns each row once."""
    with CdcReader(connection, f"{table}.t", config=SMALL_PAGES) as reader:
        rows = rows_of(reader.batches())
        assert reader.table.arrow_schema.names == [
            column.name for column in reader.table.schema.columns
        ]
    assert sorted(row["c"] for row in rows) == list(range(COUNT))
    assert all(row["v"] == f"v{row['c']}" and row["m"] == [(row["c"], "x")] for row in rows)
    for p in range(20):
        numbers = [row["c"] for row in rows if row["p"] == p]
        assert numbers == sorted(numbers)


def test_tasks_are_read_by_other_readers_from_pickles(
    connection: ConnectionConfig, table: str
) -> None:
    """Workers can read pickled tasks with the planner's pickled connection settings and schema."""
    with CdcReader(connection, f"{table}.t", config=SMALL_PAGES) as planner:
        tasks = planner.table.plan(Window(BEGINNING, FOREVER))
        luggage = pickle.dumps(
            (connection, planner.table.schema, [tasks[at::3] for at in range(3)])
        )
    connection, schema, runs = pickle.loads(luggage)
    found: Counter[int] = Counter()
    for run in runs:
        session = Connection(connection, SMALL_PAGES)
        worker = TableReader(session, TableName(table, "t"), schema=schema)
        found.update(row["c"] for row in rows_of(worker.read(run)))
        session.close()
    assert found == Counter(range(COUNT))


def test_bounds_cut_at_the_microsecond(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str
) -> None:
    """The bounds [start, end) are exact to the microsecond, as datetimes, strings or integers."""
    scylla.session.execute(TABLE.format(ks=keyspace) + " WITH cdc = {'enabled': true}")
    now = datetime.now(UTC)
    micros = datetime_micros(now)
    for c in range(4):
        scylla.session.execute(
            f"INSERT INTO {keyspace}.t (p, c) VALUES (1, {c}) USING TIMESTAMP {micros + c}"
        )
    with CdcReader(connection, f"{keyspace}.t") as reader:
        found = [row["c"] for row in rows_of(reader.batches(micros + 1, micros + 3))]
        until = [row["c"] for row in rows_of(reader.batches(None, now + timedelta(microseconds=2)))]
        assert (found, until) == ([1, 2], [0, 1])
        assert rows_of(reader.batches(micros, micros)) == []
        assert len(rows_of(reader.batches("-1h", format_timestamp(micros + 4)))) == 4
        assert rows_of(reader.batches("earliest", "-1h")) == []
        for ask in (reader.batches, reader.changes, reader.follow):
            with pytest.raises(ConfigurationError, match=r"^start is '20.*it has no time zone"):
                ask(now.replace(tzinfo=None))
            with pytest.raises(ConfigurationError, match=r"^end is .*seconds since 1970, but mic"):
                ask("-1h", micros // 1_000_000)


def test_a_start_after_the_end_is_refused(connection: ConnectionConfig) -> None:
    """Each read method rejects a start after the end as soon as it is called."""
    micros = datetime_micros(datetime.now(UTC))
    refused = "^start is '20.*': it is after end, 20.*: give an earlier start or a later end$"
    for tables in (["ks.t"], ["ks.t", "ks.u"]):
        with CdcReader(connection, *tables) as reader:
            asks = [reader.batches, reader.changes, reader.follow, reader.follow_changes]
            for ask in asks if len(tables) > 1 else [*asks, reader.change_batches]:
                with pytest.raises(ConfigurationError, match=refused):
                    ask(micros, micros - 1)
                with pytest.raises(ConfigurationError, match=refused):
                    ask("now", "-1h")
                with pytest.raises(ConfigurationError, match=r"^end is 0: not a likely time"):
                    ask(None, 0)


def test_a_cluster_is_named_by_its_contact_points(
    scylla: Scylla, connection: ConnectionConfig, table: str
) -> None:
    """A cluster may be passed as a string of contact points instead of a ConnectionConfig."""
    if scylla.credentials:
        pytest.skip("this server wants a user: a ConnectionConfig names one")
    with CdcReader(scylla.contact_point, f"{table}.t") as reader:
        assert len(rows_of(reader.batches())) == COUNT
    assert ConnectionConfig(scylla.contact_point).endpoints() == connection.endpoints()


def test_following_reads_settled_rows_only(connection: ConnectionConfig, table: str) -> None:
    """With a manual clock, windows are contiguous and end at least one confidence window ago."""
    clock = ManualClock(time.time_ns() // 1_000 + 60_000_000)
    with CdcReader(connection, f"{table}.t", clock=clock) as reader:
        start = reader.table.first_timestamp()
        assert start is not None
        rows, position = [], start
        for delivery in reader.follow(start):
            assert delivery.window.start == position
            assert delivery.window.end <= clock.now() - 30_000_000
            match delivery:
                case RowsRead(batch=batch):
                    rows += batch.to_pylist()
                case WindowComplete():
                    position = delivery.position
                    if len(rows) == COUNT:
                        reader.stop()
    assert sorted(row["c"] for row in rows) == list(range(COUNT))


def test_a_read_has_the_columns_of_the_table_when_it_begins(
    scylla: Scylla, connection: ConnectionConfig, table: str
) -> None:
    """A read returns the columns that the table has when the read starts, not older ones."""
    with CdcReader(connection, f"{table}.t", config=SMALL_PAGES) as reader:
        before = reader.table.schema
        assert len(rows_of(reader.batches())) == COUNT
        assert reader.table.schema is before
        begun = reader.batches()
        next(begun)
        scylla.session.execute(f"ALTER TABLE {table}.t ADD added int")
        scylla.session.execute(f"INSERT INTO {table}.t (p, c, added) VALUES (0, 1000, 7)")
        assert [row["added"] for row in rows_of(reader.batches()) if row["c"] == 1000] == [7]
        assert "added" not in next(begun).schema.names
        changes = reader.changes()
        scylla.session.execute(f"ALTER TABLE {table}.t DROP v")
        found = [change for change in changes if change.key["c"] == 1000]
        assert [change.deltas["added"] for change in found] == [Assigned(7)]
        assert {"v", "added"} & set(reader.table.arrow_schema.names) == {"added"}
        frame = reader.change_batches(
            format=ChangeFormat(columns=["added"], include_delta=True)
        ).read_all()
        assert [row["added"] for row in frame.to_pylist() if row["c"] == 1000] == [7]
        assert "added" in reader.snapshot().arrow_schema.names


def test_a_type_altered_during_a_read_is_an_error(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str
) -> None:
    """If a type gets a field, a running read ends with an error, and new reads return the field."""
    scylla.session.execute(f"CREATE TYPE {keyspace}.u (x int)")
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY, u u) WITH cdc = {{'enabled': true}}"
    )
    with CdcReader(connection, f"{keyspace}.t") as reader:
        reader.table.schema  # noqa: B018 - reads the schema
        planned = reader.table.plan(Window(BEGINNING, FOREVER))
        scylla.session.execute(f"ALTER TYPE {keyspace}.u ADD y int")
        scylla.session.execute(f"INSERT INTO {keyspace}.t (p, u) VALUES (1, {{x: 1, y: 2}})")
        with pytest.raises(DecodeError, match=r"begin the read again|bytes too many"):
            rows_of(reader.table.read(planned))
        assert [row["u"] for row in rows_of(reader.batches())] == [{"x": 1, "y": 2}]


def test_a_closed_reader_opens_again(connection: ConnectionConfig, table: str) -> None:
    """Closing a reader releases its connection, and the next read opens another."""
    reader = CdcReader(connection, f"{table}.t")
    first = rows_of(reader.batches())
    reader.close()
    assert rows_of(reader.batches()) == first
    reader.close()


@pytest.mark.needs("faults")
def test_a_wrong_password_is_reported() -> None:
    """The error for a wrong password does not show the password."""
    from cdc_reader.testing import EmbeddedScylla

    with EmbeddedScylla(credentials=("reader", "right")) as server:
        for username, password in ((None, None), ("reader", "wr0ng")):
            config = ConnectionConfig(server.contact_point, username=username, password=password)
            with CdcReader(config, "ks.t") as reader:
                with pytest.raises(AuthenticationFailedError, match="refused the login") as caught:
                    _ = reader.table.schema
                assert "wr0ng" not in str(caught.value)


@pytest.mark.needs("topology")
def test_an_error_about_an_unknown_datacenter_lists_the_known_ones() -> None:
    """The error for an unknown datacenter lists the known ones.

    It does not say that hosts are unreachable.
    """
    from cdc_reader.testing import EmbeddedScylla

    with EmbeddedScylla() as server:
        config = ConnectionConfig(server.contact_point, local_dc="nonesuch")
        with (
            CdcReader(config, "ks.t") as reader,
            pytest.raises(ConfigurationError, match=r"^local_dc is 'nonesuch': the cluster has"),
        ):
            _ = reader.table.schema


@pytest.mark.needs("faults")
def test_an_outage_is_raised_at_the_retry_deadline() -> None:
    """The error at the retry deadline says what was being read."""
    from cdc_reader.testing import EmbeddedScylla

    impatient = ReadConfig(retry_deadline=timedelta(seconds=1))
    with EmbeddedScylla() as server:
        config = ConnectionConfig(server.contact_point, request_timeout=timedelta(seconds=1))
        with CdcReader(config, "ks.t", config=impatient) as reader:
            assert reader.table._access.table.generations.timestamps()
            server.stop()
            with pytest.raises(RetriesExhaustedError, match=r"gave up after .* attempts: SELECT"):
                reader.table._access.table.generations.timestamps()


def test_an_error_about_a_missing_keyspace_names_the_hosts(
    scylla: Scylla, connection: ConnectionConfig
) -> None:
    """The error for a missing keyspace names the hosts, because the hosts may be wrong."""
    with CdcReader(connection, "nowhere.t") as reader, pytest.raises(TableNotFoundError) as caught:
        _ = reader.table.schema
    assert str(caught.value) == (
        f"keyspace nowhere of table nowhere.t was not found at {scylla.contact_point}; check its "
        "spelling (names are case-sensitive) and the hosts"
    )

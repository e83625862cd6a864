"""Changes as Arrow data, with a real driver and server."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cdc_reader import CdcReader, ChangeFormat, ConnectionConfig, ReadConfig
from cdc_reader.cql import timeuuid
from cdc_reader.errors import (
    CdcError,
    ConfigurationError,
    SchemaError,
    StoppedError,
    UnsupportedTableError,
)
from tests.cdc_reader.conftest import Execute
from tests.cdc_reader.support.tuned import tuning_of_module

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

FULL = "{'enabled': true, 'preimage': 'full', 'postimage': true}"
WITH_DELTA = ChangeFormat(include_delta=True)
SMALL_PAGES = ReadConfig(fetch_size=2)

small_chunks = tuning_of_module(streams_per_query=3, in_flight=2)
WRITES = (
    "INSERT INTO {t} (pk, ck, v, d) VALUES (1, 2, 3, 0.1)",
    "UPDATE {t} SET v = 4 WHERE pk = 1 AND ck = 2",
    "DELETE FROM {t} WHERE pk = 1 AND ck = 2",
)


@pytest.fixture
def reader(connection: ConnectionConfig, keyspace: str, execute: Execute) -> Iterator[CdcReader]:
    """A reader with small pages. The table's log has full preimages and postimages."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, v int, d decimal, PRIMARY KEY (pk, ck)) "
        f"WITH cdc = {FULL}"
    )
    with CdcReader(connection, f"{keyspace}.t", config=SMALL_PAGES) as reader:
        yield reader


def test_changed_rows(reader: CdcReader, execute: Execute) -> None:
    """By default, each change yields the rows before and after the change, in write order."""
    execute(*WRITES)
    table = reader.change_batches().read_all()
    found = table.select(["_change_type", "pk", "ck", "v", "d"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("insert", 1, 2, 3, "0.1"),
        ("update_preimage", 1, 2, 3, "0.1"),
        ("update_postimage", 1, 2, 4, "0.1"),
        ("delete", 1, 2, 4, "0.1"),
    ]


def test_the_log_with_the_time_of_each_write(reader: CdcReader, execute: Execute) -> None:
    """Format ``log`` adds the write time, as a timestamp, to the rows of `batches`."""
    execute(*WRITES)
    found = reader.change_batches(format="log").read_all()
    plain = pa.Table.from_batches(reader.batches(), reader.table.arrow_schema)
    *names, last = found.column_names
    assert found.select(names).equals(plain)
    assert (last, found.schema.field(last).type) == (
        "_commit_timestamp",
        pa.timestamp("us", tz="UTC"),
    )
    times = [timeuuid.micros(uuid.UUID(time).bytes) for time in plain["cdc$time"].to_pylist()]
    assert found[last].cast(pa.int64()).to_pylist() == times


def test_envelopes(reader: CdcReader, execute: Execute) -> None:
    """With format ``envelope``, each row is an envelope like that of the Spark source."""
    execute(*WRITES)
    found = reader.change_batches(format="envelope").read_all().to_pylist()
    assert [row["op"] for row in found] == ["c", "u", "d"]
    assert [row["after"] and row["after"]["v"] for row in found] == [3, 4, None]


@pytest.mark.parametrize("shape", ["log", "changes", "envelope"])
def test_the_schema_is_known_before_any_row(reader: CdcReader, shape: Any) -> None:
    """The schema is known in advance, and an empty window produces an empty table."""
    found = reader.change_batches(format=shape)
    assert found.schema.names
    table = found.read_all()
    assert (table.num_rows, table.schema) == (0, found.schema)


def test_options_shape_the_rows(reader: CdcReader, execute: Execute) -> None:
    """Options have the same effects as in the Spark source."""
    execute(*WRITES[:2], "DELETE FROM {t} WHERE pk = 1")
    found = reader.change_batches(
        format=ChangeFormat(
            columns=["d"],
            include_delta=True,
            range_deletes="emit",
            preimages="none",
            decimal_type="decimal(9, 2)",
        )
    )
    assert found.schema.field("d").type == pa.decimal128(9, 2)
    rows = found.read_all().to_pylist()
    assert [(row["_change_type"], row["_modified_columns"]) for row in rows] == [
        ("insert", ["d"]),
        ("update_postimage", []),
        ("delete_partition", None),
    ]
    assert "v" not in found.schema.names


@pytest.mark.parametrize("shape", ["log", "changes", "envelope"])
def test_types_of_decimals_by_column(reader: CdcReader, execute: Execute, shape: Any) -> None:
    """Each format has the types that were chosen for single columns."""
    execute("ALTER TABLE {t} ADD e varint", "INSERT INTO {t} (pk, ck, d, e) VALUES (1, 2, 1.5, 7)")
    wanted = ChangeFormat(shape, decimal_type="d: decimal(9, 2)", range_deletes="skip")
    *_, row = reader.change_batches(format=wanted).read_all().to_pylist()
    values = row["after"] if shape == "envelope" else row
    assert (values["d"], values["e"]) == (Decimal("1.50"), "7")


def test_bounds_are_those_of_batches(reader: CdcReader, execute: Execute) -> None:
    """The start is inclusive and the end is exclusive, to the microsecond."""
    execute(*WRITES)
    times = reader.change_batches(format="log").read_all()["_commit_timestamp"]
    _, second, third = sorted(set(times.cast(pa.int64()).to_pylist()))
    (before, after) = reader.change_batches(second, third).read_all()["v"].to_pylist()
    assert (before, after) == (3, 4)
    with pytest.raises(ConfigurationError, match="give an earlier start or a later end"):
        reader.change_batches(third, second)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "rows"}, "format is 'rows': give one of log, changes, envelope"),
        ({"range_deletes": True}, "range_deletes is True: give one of fail, emit, skip"),
        ({"preimages": "all"}, "preimages is 'all': give one of auto, none, require"),
        ({"include_delta": "yes"}, "include_delta is 'yes': give True or False"),
        ({"name": "log", "include_delta": True}, "include_delta is True: log rows already"),
        ({"name": "envelope", "range_deletes": "emit"}, "cannot hold the bounds"),
        ({"columns": ["w"]}, "columns is 'w': .* has no such column"),
        ({"columns": "v"}, "columns is 'v': give a list of names"),
        ({"decimal_type": "w: decimal(9, 2)"}, "decimal_type is 'w': of the .*only in d"),
        ({"decimal_type": "v: decimal(9, 2)"}, "decimal_type is 'v': of the .*only in d"),
        ({"decimal_type": "decimal(39, 2)"}, "decimal_type is .*: give 'string', or"),
    ],
)
def test_options_that_cannot_be_used(reader: CdcReader, options: Any, message: str) -> None:
    """An unusable argument is rejected at once with a one-line error that names the argument."""
    with pytest.raises(ConfigurationError, match=message) as told:
        reader.change_batches(format=ChangeFormat(**options))
    assert "\n" not in str(told.value)


def test_a_log_without_the_images_is_refused(
    connection: ConnectionConfig, keyspace: str, execute: Execute
) -> None:
    """The error for a log without images contains the statement that enables them."""
    execute(
        "CREATE TABLE {t} (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
        "INSERT INTO {t} (pk, v) VALUES (1, 2)",
    )
    with CdcReader(connection, f"{keyspace}.t") as reader:
        with pytest.raises(UnsupportedTableError, match=r"ALTER TABLE .* give include_delta"):
            reader.change_batches()
        (row,) = reader.change_batches(format=WITH_DELTA).read_all().to_pylist()
        assert (row["_change_type"], row["v"]) == ("insert", 2)


def test_an_error_while_iterating_is_one_of_this_package(
    reader: CdcReader, execute: Execute
) -> None:
    """A failed read raises this package's error in Python, and an Arrow error elsewhere.

    Both errors have the same message.
    """
    execute(*WRITES[:2], "DELETE FROM {t} WHERE pk = 1")
    batches = reader.change_batches()
    with pytest.raises(ConfigurationError, match=r"^range_deletes is 'fail': at .* give 'emit'"):
        batches.read_all()
    with pytest.raises(pa.ArrowInvalid, match="range_deletes is 'fail': at"):
        pa.RecordBatchReader.from_stream(reader.change_batches()).read_all()


@pytest.mark.parametrize(
    ("options", "offers"),
    [
        ("{'enabled': true}", True),
        ("{'enabled': true, 'delta': 'keys'}", False),
    ],
)
def test_the_delta_is_offered_only_where_it_helps(
    reader: CdcReader, execute: Execute, options: str, offers: bool
) -> None:
    """A log without postimages can be read with `include_delta` if it has deltas."""
    execute(f"ALTER TABLE {{t}} WITH cdc = {options}")
    with pytest.raises(UnsupportedTableError, match="has no postimages; change") as refused:
        reader.change_batches()
    assert str(refused.value).endswith("; or give include_delta to see what each change set") is (
        offers
    )
    if offers:
        reader.change_batches(format=ChangeFormat(include_delta=True)).read_all()


def test_a_change_without_its_postimage_is_reported(reader: CdcReader, execute: Execute) -> None:
    """The error for a missing postimage suggests arguments of this API, such as a later start."""
    execute(
        "ALTER TABLE {t} WITH cdc = {'enabled': true}",
        WRITES[0],
        f"ALTER TABLE {{t}} WITH cdc = {FULL}",
    )
    with pytest.raises(SchemaError, match="give a later start, or read with format 'log'"):
        reader.change_batches().read_all()


def test_other_libraries_take_the_stream(reader: CdcReader, execute: Execute) -> None:
    """A table that is passed through Arrow's C interface is unchanged."""
    execute(*WRITES)
    expected = reader.change_batches().read_all()
    assert pa.table(reader.change_batches()).equals(expected)
    assert pa.RecordBatchReader.from_stream(reader.change_batches()).read_all().equals(expected)
    assert pa.Table.from_pandas(reader.change_batches().read_pandas())["v"].to_pylist() == (
        expected["v"].to_pylist()
    )


def test_any_thread_may_read(reader: CdcReader, execute: Execute) -> None:
    """Any thread may read a stream, and `stop` ends reads in all threads."""
    execute(*WRITES)
    batches, stopped = reader.change_batches(), reader.change_batches()
    with ThreadPoolExecutor() as threads:
        assert threads.submit(batches.read_all).result().num_rows == 4
        reader.stop()
        with pytest.raises(StoppedError):
            threads.submit(stopped.read_all).result()


def test_dropping_the_result_ends_the_read(
    connection: ConnectionConfig, keyspace: str, execute: Execute, scylla: Scylla
) -> None:
    """Dropping the result leaves no thread or connection, and a stopped read raises an error."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, v int, d decimal, PRIMARY KEY (pk, ck)) "
        f"WITH cdc = {FULL}"
    )
    execute(*[f"INSERT INTO {{t}} (pk, ck) VALUES ({n}, {n})" for n in range(40)])
    before = set(threading.enumerate())
    with CdcReader(connection, f"{keyspace}.t", config=SMALL_PAGES) as reader:
        with reader.change_batches() as left:
            assert left.read_next_batch().num_rows
        del left
        stopped, again = reader.change_batches(), reader.change_batches()
        assert stopped.read_next_batch().num_rows
        reader.stop()
        for batches in (stopped, again):
            with pytest.raises(StoppedError):
                batches.read_next_batch()
        assert reader.change_batches().read_all().num_rows == 40
        closed = reader.change_batches()
    with pytest.raises(CdcError):
        closed.read_next_batch()
    started = set(threading.enumerate()) - before - scylla.session.cluster.executor._threads
    for thread in started:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in started)


def test_tables_are_read_one_by_one(connection: ConnectionConfig) -> None:
    """Several tables are rejected, because a stream has one schema and their columns may differ."""
    reader = CdcReader(connection, "ks.a", "ks.b")
    with closing(reader), pytest.raises(ConfigurationError, match="use `tables`"):
        reader.change_batches()

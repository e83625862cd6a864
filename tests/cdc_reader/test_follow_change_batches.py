"""Arrow batches of changes from a table that is followed, with a real driver and server."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader import (
    CdcReader,
    ChangeFormat,
    ConnectionConfig,
    RangeComplete,
    ReadConfig,
    RowsRead,
    SnapshotRows,
    Window,
    WindowComplete,
)
from cdc_reader.changes.formatting import Formatting
from cdc_reader.errors import ColumnDecodeError, ConfigurationError, UnsupportedTableError
from tests.cdc_reader.conftest import Execute
from tests.cdc_reader.support.tuned import tuning_of_module

FULL = "{'enabled': true, 'preimage': 'full', 'postimage': true}"
SMALL_PAGES = ReadConfig(fetch_size=3, confidence_window="0s")

small_chunks = tuning_of_module(streams_per_query=3, in_flight=2)
ROWS = 20
BATCH = (
    "BEGIN BATCH UPDATE {t} SET v = 5 WHERE pk = 4 AND ck = 4; "
    "UPDATE {t} SET v = 6 WHERE pk = 4 AND ck = 9; APPLY BATCH"
)
WRITES = (
    "UPDATE {t} SET v = 100 WHERE pk = 1 AND ck = 1",
    "UPDATE {t} SET s = 9 WHERE pk = 2",
    "DELETE FROM {t} WHERE pk = 3 AND ck = 3",
    "INSERT INTO {t} (pk, ck, v, d) VALUES (7, 7, 7, 0.5)",
    BATCH,
)

Deliveries = Iterable[Any]


@pytest.fixture
def reader(connection: ConnectionConfig, keyspace: str, execute: Execute) -> Iterator[CdcReader]:
    """A reader with small pages, of a table with static rows. The first rows are not logged."""
    execute(
        "CREATE TABLE {t} (pk int, ck int, s int static, v int, d decimal, PRIMARY KEY (pk, ck))",
        *[f"INSERT INTO {{t}} (pk, ck, v, d) VALUES ({n % 5}, {n}, {n}, 0.1)" for n in range(ROWS)],
        "UPDATE {t} SET s = 8 WHERE pk = 50",
        f"ALTER TABLE {{t}} WITH cdc = {FULL}",
    )
    with CdcReader(connection, f"{keyspace}.t", config=SMALL_PAGES) as reader:
        yield reader


def followed(reader: CdcReader, start: Any = None, **options: Any) -> Iterator[Any]:
    """Yield the deliveries up to now."""
    return reader.follow_change_batches(start, "now", **options)


def rows(deliveries: Deliveries) -> list[dict[str, Any]]:
    """Return the rows of all batches."""
    return [row for each in deliveries if hasattr(each, "batch") for row in each.batch.to_pylist()]


def copied(deliveries: Deliveries) -> dict[tuple[Any, Any], tuple[Any, ...]]:
    """Return the rows that result from applying the deliveries in order."""
    copy: dict[tuple[Any, Any], tuple[Any, ...]] = {}
    for row in rows(deliveries):
        if row["_change_type"] == "delete":
            copy.pop((row["pk"], row["ck"]), None)
        elif row["_change_type"] != "update_preimage":
            copy[row["pk"], row["ck"]] = row["s"], row["v"], row["d"]
    return copy


def test_the_log_in_the_format_of_a_bounded_read(reader: CdcReader, execute: Execute) -> None:
    """Rows and schema equal those of `change_batches`, and each window ends with its checkpoint."""
    execute(*WRITES)
    expected = reader.change_batches()
    found = list(followed(reader))
    table = pa.Table.from_batches([each.batch for each in found if isinstance(each, RowsRead)])
    order = [("_commit_version", "ascending"), ("_sequence", "ascending")]
    assert table.sort_by(order).equals(expected.read_all().sort_by(order))
    assert isinstance(found[-1], WindowComplete)
    assert rows(followed(reader, found[-1].checkpoint)) == []


def test_the_rows_first_and_then_their_changes(reader: CdcReader, execute: Execute) -> None:
    """A copy equals the table, although rows change while the snapshot is read."""
    found = list[Any]()
    for delivery in followed(reader, snapshot="initial"):
        if not found:
            execute(*WRITES)
        found.append(delivery)
    kinds = [type(each) for each in found]
    assert {SnapshotRows, RangeComplete, RowsRead, WindowComplete} == set(kinds)
    last = max(at for at, kind in enumerate(kinds) if kind is RangeComplete)
    assert not {RowsRead, WindowComplete} & set(kinds[:last])
    expected: dict[Any, Any] = {(n % 5, n): (None, n, "0.1") for n in range(ROWS) if n != 3}
    expected |= {(1, 1): (None, 100, "0.1"), (4, 4): (None, 5, "0.1"), (4, 9): (None, 6, "0.1")}
    expected |= {(7, 7): (None, 7, "0.5"), (50, None): (8, None, None), (2, None): (9, None, None)}
    assert copied(found) == expected


def test_each_checkpoint_resumes(reader: CdcReader, execute: Execute) -> None:
    """A read that resumes from any checkpoint completes the copy as if it had not stopped."""
    found = list[Any]()
    for delivery in followed(reader, snapshot="initial"):
        if not found:
            execute(*WRITES)
        found.append(delivery)
    ends = [at for at, each in enumerate(found) if hasattr(each, "checkpoint")]
    assert len(ends) > 2
    for at in ends:
        stored = pickle.loads(pickle.dumps(found[at].checkpoint))
        rest = list(followed(reader, stored))
        assert copied([*found[: at + 1], *rest]) == copied(found), found[at]
        done = {each.tokens for each in found[: at + 1] if isinstance(each, RangeComplete)}
        assert not done & {each.tokens for each in rest if isinstance(each, RangeComplete)}


def test_later_batches_have_new_columns(reader: CdcReader, execute: Execute) -> None:
    """If a column is added while the log is followed, later batches contain the column."""
    execute(WRITES[0])
    batches = (each.batch for each in reader.follow_change_batches() if isinstance(each, RowsRead))
    assert "w" not in next(batches).schema.names
    execute("ALTER TABLE {t} ADD w int", "UPDATE {t} SET w = 1 WHERE pk = 1 AND ck = 1")
    assert next(batches)["w"].to_pylist() == [None, 1]


def test_options_shape_the_rows(reader: CdcReader, execute: Execute) -> None:
    """Options apply to rows of the snapshot and of the log."""
    execute(*WRITES[:3])
    chosen = ChangeFormat(
        columns=["d"], include_delta=True, preimages="none", decimal_type="decimal(9, 2)"
    )
    for start in (None, reader.table.begin_snapshot()):
        found = list(followed(reader, start, format=chosen))
        batches = [each.batch for each in found if hasattr(each, "batch")]
        assert batches
        assert {batch.schema for batch in batches} == {reader.change_batches(format=chosen).schema}


def test_bad_records(reader: CdcReader, execute: Execute) -> None:
    """Rows that cannot be converted are left out or marked, in the snapshot and in the log."""
    execute(
        "UPDATE {t} SET d = 1e20 WHERE pk = 1 AND ck = 1",
        "ALTER TABLE {t} ADD at timestamp",
        f"UPDATE {{t}} SET at = {1 << 62} WHERE pk = 2 AND ck = 2",
    )
    for start in (None, reader.table.begin_snapshot()):
        with pytest.raises((ConfigurationError, ColumnDecodeError)):
            list(followed(reader, start, format=ChangeFormat(decimal_type="decimal(9, 2)")))
        marked = ChangeFormat(decimal_type="decimal(9, 2)", on_bad_record="quarantine")
        found = rows(followed(reader, start, format=marked))
        bad = {row["ck"]: row["_bad_record"]["columns"] for row in found if row["_bad_record"]}
        assert bad == {1: ["d"], 2: ["at"]}
        skipping = evolve(marked, on_bad_record="skip")
        kept = rows(followed(reader, start, format=skipping))
        assert len(kept) == len([row for row in found if not row["_bad_record"]])


def test_stop_ends_it_without_an_error(reader: CdcReader) -> None:
    """`stop` ends the iterator without an error, both in the snapshot and in the log."""
    for start in (None, reader.table.begin_snapshot()):
        found = reader.follow_change_batches(start)
        next(found)
        threading.Timer(0, reader.stop).start()
        for _ in found:
            pass


@pytest.mark.parametrize(
    ("start", "options", "message"),
    [
        ("-1h", {"snapshot": "initial"}, "snapshot is 'initial': leave out start"),
        (None, {"snapshot": "all"}, "snapshot is 'all': give one of none, initial"),
        (None, {"snapshot": "initial", "format": "log"}, "a row of the table is no row of its log"),
        (None, {"format": ChangeFormat(columns=["x"])}, "has no such column"),
        (None, {"format": "rows"}, "format is 'rows': give one of log, changes, envelope"),
    ],
)
def test_options_that_cannot_be_used(
    reader: CdcReader, start: str | None, options: dict[str, Any], message: str
) -> None:
    """Unusable options are rejected as soon as the method is called."""
    with pytest.raises(ConfigurationError, match=message):
        reader.follow_change_batches(start, **options)


def test_a_log_without_the_images_is_rejected(reader: CdcReader, execute: Execute) -> None:
    """The error for a log without images contains the statement that enables them."""
    execute("ALTER TABLE {t} WITH cdc = {'enabled': true}")
    with pytest.raises(UnsupportedTableError, match="ALTER TABLE"):
        reader.follow_change_batches()


@pytest.mark.slow
def test_pages_may_end_anywhere(reader: CdcReader, execute: Execute) -> None:
    """Changes do not depend on where pages end or where late rows are interspersed."""
    execute(*WRITES)
    schema, window = reader.table.schema, Window(0, 1)
    logged = pa.Table.from_batches(reader.batches()).combine_chunks().to_batches()[0]

    def converted(*reads: RowsRead) -> list[RowsRead]:
        return [
            each for each in Formatting(ChangeFormat()).log(reads) if isinstance(each, RowsRead)
        ]

    whole = rows(converted(RowsRead(schema, window, logged)))
    assert len(whole) > len(WRITES)

    @given(st.sets(st.integers(1, logged.num_rows - 1)), st.integers(0, logged.num_rows))
    def check(cuts: set[int], place: int) -> None:
        pages = [logged.slice(a, b - a) for a, b in pairwise([0, *sorted(cuts), logged.num_rows])]
        reads = [RowsRead(schema, window, page) for page in pages]
        reads.insert(place, RowsRead(schema, window, logged, late=True))
        found = converted(*reads)
        assert rows(each for each in found if not each.late) == whole
        assert rows(each for each in found if each.late) == whole

    check()

"""Tests limits on valid statements, and conflicting writes."""

from typing import Any

import pytest

SERVER, SYNTAX, INVALID = 0x0000, 0x2000, 0x2200
LONG = b"x" * 65_536
DAY_US = 86_400_000_000
NANO = 1


@pytest.fixture
def table(shell: Any) -> Any:
    """A table with text columns, and a counter table."""
    shell.run("CREATE TABLE t (pk text, ck text, v text, PRIMARY KEY (pk, ck))")
    shell.run("CREATE TABLE c (pk int PRIMARY KEY, n counter)")
    return shell


def vint_duration(nanoseconds: int) -> bytes:
    """Serialize a duration of a few nanoseconds as three zigzag vints."""
    return bytes((0, 0, nanoseconds * 2))


def test_keys_have_at_most_65535_bytes(table: Any) -> None:
    """Partition keys and clustering keys longer than 65,535 bytes are rejected."""
    insert = "INSERT INTO t (pk, ck, v) VALUES (?, ?, 'v')"
    table.run(insert, LONG[1:], LONG[1:])
    message = "Key length of 65536 is longer than maximum of 65535"
    assert table.refusal(insert, LONG, b"c") == (INVALID, message)
    assert table.refusal(insert, b"p", LONG) == (SERVER, "Key size too large: 65536 > 65535")


@pytest.mark.parametrize(
    "cql",
    [
        "INSERT INTO t (pk, ck) VALUES ('p', 'c') USING TIMESTAMP {}",
        "DELETE FROM t USING TIMESTAMP {} WHERE pk = 'p'",
        "BEGIN BATCH USING TIMESTAMP {} INSERT INTO t (pk, ck) VALUES ('p', 'c'); APPLY BATCH",
    ],
)
def test_timestamps_are_at_most_three_days_ahead(table: Any, cql: str) -> None:
    """A timestamp more than three days ahead is rejected, because it is probably in nanoseconds."""
    table.run(cql.format(table.now_us + 3 * DAY_US))
    code, message = table.refusal(cql.format(table.now_us + 4 * DAY_US))
    assert (code, message[:58]) == (
        INVALID,
        "Cannot provide a timestamp more than 3 days into the futur",
    )


def test_a_batch_of_several_partitions_has_at_most_a_mebibyte(table: Any) -> None:
    """A batch is limited to 1 MiB if it writes more than one partition."""
    insert = "INSERT INTO t (pk, ck, v) VALUES ('{}', '{}', ?); "
    value = b"v" * 600_000
    table.run(f"BEGIN BATCH {insert.format(1, 1)}{insert.format(1, 2)} APPLY BATCH", value, value)
    two = f"BEGIN BATCH {insert.format(1, 1)}{insert.format(2, 2)} APPLY BATCH"
    assert table.refusal(two, value, value) == (INVALID, "Batch too large")


@pytest.mark.parametrize(
    "cql",
    [
        "SELECT * FROM t USING TIMEOUT ?",
        "INSERT INTO t (pk, ck) VALUES ('p', 'c') USING TTL 5 AND TIMEOUT ?",
        "DELETE FROM t USING TIMEOUT ? WHERE pk = 'p'",
        "UPDATE t USING TIMEOUT ? SET v = 'v' WHERE pk = 'p' AND ck = 'c'",
    ],
)
def test_timeouts_may_be_bound(table: Any, cql: str) -> None:
    """USING TIMEOUT accepts bind variables, but only values in whole milliseconds."""
    table.run(cql.replace("?", "5ms"))
    message = "Timeout values must be expressed in millisecond granularity"
    assert table.refusal(cql, vint_duration(NANO)) == (INVALID, message)
    assert table.refusal(cql.replace("?", "1d")) == (
        INVALID,
        "Timeout values cannot be expressed in days/months",
    )
    assert table.refusal(cql, None) == (INVALID, "Timeout value cannot be null")


def test_limits_are_not_null(table: Any) -> None:
    """A bound LIMIT must not be null."""
    assert table.refusal("SELECT * FROM t LIMIT ?", None) == (
        INVALID,
        "Invalid null value of limit",
    )


@pytest.mark.parametrize("name", ["cdc$time", "cdc$deleted_a"])
def test_a_base_table_has_no_column_of_the_log_s(table: Any, name: str) -> None:
    """A base table cannot have a column named like a log column. ScyllaDB 5.2 would crash."""
    with_cdc = "WITH cdc = {'enabled': true}"
    refused = f'CREATE TABLE b (pk int PRIMARY KEY, a int, "{name}" int) {with_cdc}'
    assert table.refusal(refused)[0] == INVALID
    table.run(f"CREATE TABLE b (pk int PRIMARY KEY, a int) {with_cdc}")
    assert table.refusal(f'ALTER TABLE b ADD "{name}" int')[0] == INVALID

"""Copies of all tables of a keyspace, also of tables that appear later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc import Mirror
from pyspark_scylla_cdc.mirroring import capacity, found
from tests.connectors.pyspark_scylla_cdc.support.copied_rows import wait_until

if TYPE_CHECKING:
    from cdc_reader.testing import Scylla

pytestmark = pytest.mark.spark

Start = Callable[..., Mirror]
COLUMNS = "(pk int PRIMARY KEY, v int)"
WITH_LOG = "WITH cdc = {'enabled': true}"
DELTALAKE = pytest.mark.parametrize("place", ["deltalake"], indirect=True)


@pytest.fixture
def run(scylla: Scylla, keyspace: str) -> Callable[..., None]:
    """Executes statements; ``{k}`` stands for the keyspace."""

    def run(*statements: str) -> None:
        for statement in statements:
            scylla.session.execute(statement.replace("{k}", keyspace))

    return run


@pytest.mark.slow
@DELTALAKE
def test_a_pattern_copies_what_exists_and_what_comes_later(
    keyspace: str,
    run: Callable[..., None],
    start: Start,
    place: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Later tables join, and a table that is dropped, or cannot be copied, stops no others.

    Another call continues where the copies stopped.
    """
    monkeypatch.setattr(found, "_LOOK", 0.2)
    pattern: dict[str, Any] = {**place, "tables": f'{keyspace}."*"'}
    running = start(**pattern, trigger={"processingTime": "0 seconds"})
    try:
        run(
            f"CREATE TABLE {{k}}.plain {COLUMNS}",
            'CREATE TABLE {k}.bad (p int PRIMARY KEY, "cdc$time" int)',
            'CREATE TABLE {k}.bad_scylla_cdc_log ("cdc$stream_id" blob PRIMARY KEY)',
            f'CREATE TABLE {{k}}."Odd" {COLUMNS} {WITH_LOG}',
            'INSERT INTO {k}."Odd" (pk) VALUES (1)',
        )
        wait_until(lambda: len(running.queries) == 1)
        wait_until(lambda: running.read(0).count() == 1)
        run("INSERT INTO {k}.plain (pk) VALUES (2)", f"ALTER TABLE {{k}}.plain {WITH_LOG}")
        wait_until(lambda: len(running.queries) == 2)
        wait_until(lambda: running.read(1).count() == 1)
        monkeypatch.setattr(capacity, "most_copies", lambda _spark: 2)
        run(f"CREATE TABLE {{k}}.third {COLUMNS} {WITH_LOG}")
        wait_until(lambda: f"{keyspace}.third" in caplog.text)
        run('DROP TABLE {k}."Odd"')
        wait_until(lambda: not running.queries[0].isActive)
        run("INSERT INTO {k}.plain (pk) VALUES (3)")
        wait_until(lambda: running.read(1).count() == 2)
        assert not running.awaitTermination(timeout=0)
    finally:
        running.stop()
    bad, third = [text for text in caplog.messages if "table_left_out" in text]
    assert f"table='{keyspace}.bad' reason='column cdc$time of table {keyspace}.bad " in bad
    assert "found 3 tables, and this driver has memory for about 2: give it more" in third
    run("DROP TABLE {k}.third", "INSERT INTO {k}.plain (pk) VALUES (4)")
    rest = start(**pattern)
    assert rest.awaitTermination()
    assert rest.read().count() == 3


def test_what_a_pattern_cannot_copy_is_told_at_the_start(
    keyspace: str, run: Callable[..., None], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many tables are refused. Without a table, a run that ends by itself ends at once."""
    assert start(tables=f"{keyspace}.*").awaitTermination()
    run(f"CREATE TABLE {{k}}.a {COLUMNS} {WITH_LOG}", f"CREATE TABLE {{k}}.b {COLUMNS} {WITH_LOG}")
    monkeypatch.setattr(capacity, "most_copies", lambda _spark: 1)
    for tables in (f"{keyspace}.*", [f"{keyspace}.a", f"{keyspace}.*"], [f"{keyspace}.a", "x.y"]):
        with pytest.raises(
            ConfigurationError, match=r"found 2 tables, .* memory for about 1: give"
        ):
            start(tables=tables)
    with pytest.raises(ConfigurationError, match="name one keyspace"):
        start(tables="*.a")


def test_the_memory_of_a_driver_limits_its_copies(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heap and the rest of the machine's memory limit the copies; the smaller number counts."""
    heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()
    monkeypatch.setattr(capacity, "_machine", lambda: heap + 10**12)
    assert capacity.most_copies(spark) == heap // capacity._HEAP > 10
    monkeypatch.setattr(capacity, "_machine", lambda: heap + 3 * capacity._OUTSIDE)
    assert capacity.most_copies(spark) == 3
    monkeypatch.undo()
    assert capacity._machine() > heap
    connect: Any = object()  # which has no JVM
    assert capacity.most_copies(connect) == 50

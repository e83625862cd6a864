"""A streaming query whose processes are killed while it reads its snapshot."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_reader.testing import EmbeddedScylla, Fault
from pyspark_scylla_cdc import fold
from tests.connectors.pyspark_scylla_cdc.support.followed_query import (
    SHORT_STEPS,
    FollowedQuery,
    Role,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = int(os.environ.get("KILLS", "4"))
ROWS, PARTITIONS, LIMIT = 50_000, 5_000, 2_000
LONGEST = 1.0  # seconds from a micro-batch's start to the latest kill: about one micro-batch
KILLED = (Role.DRIVER, Role.TASKS, Role.DRIVER, Role.SOURCE)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.needs("faults")]

Key = tuple[int, int]


@pytest.fixture
def cluster() -> Iterator[EmbeddedScylla]:
    """A separate cluster with a table whose rows are older than its log."""
    with EmbeddedScylla(vnodes=4, ring_delay_ms=0) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', "
            "'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c))")
        insert = "INSERT INTO ks.t (p, c, v) VALUES (?, ?, ?)"
        for number in range(ROWS):
            cells = (number % PARTITIONS, number, number)
            server.execute(insert, [cell.to_bytes(4, "big") for cell in cells])
        server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'postimage': true}")
        yield server


@pytest.fixture
def query(cluster: EmbeddedScylla, tmp_path: Path) -> FollowedQuery:
    """A query that must survive the kills. The test starts it."""
    options = {
        "hosts": cluster.contact_point,
        "path": "ks.t",
        "format": "changes",
        "includeDelta": "true",
        "snapshot": "initial",
        "maxRowsPerTrigger": str(LIMIT),
        **SHORT_STEPS,
        "fetchSize": "500",
    }
    return FollowedQuery(tmp_path, options)


@pytest.mark.nightly
@pytest.mark.timeout(480 + 60 * KILLS)  # on a busy machine Spark takes a minute to start
def test_each_row_comes_once(
    spark: SparkSession, cluster: EmbeddedScylla, query: FollowedQuery
) -> None:
    """Each row of the snapshot is delivered once, and the copy equals the table.

    The driver and its workers are killed while rows are written.
    """
    seed = int(os.environ.get("KILL_SEED") or random.randrange(10**6))
    print(f"KILL_SEED={seed}")
    chance, before = random.Random(seed), rows_of(cluster)
    with query:
        with writing(cluster, random.Random(seed)):
            for number in range(KILLS):
                cluster.faults.add(Fault("drop", "ks.t", times=1, after=chance.randrange(9)))
                run_and_kill(query, KILLED[number % len(KILLED)], chance)
            offsets = offsets_of(query.folder)
            while offsets_of(query.folder)[-1]["snapshot"] != "done":
                query.next_batch()
        last = f"INSERT INTO ks.t (p, c, v) VALUES (0, {ROWS}, 1) USING TIMESTAMP"
        query.await_written(lambda at: cluster.execute(f"{last} {at}"))
    cluster.faults.clear()  # faults that have not occurred yet

    assert len({each["position"] for each in offsets if each["snapshot"] == "pending"}) == 1
    changes = spark.read.parquet(str(query.folder / "rows"))
    [[position]] = changes.selectExpr("min(_commit_version)").collect()
    snapshot = [
        (p, c)
        for p, c in changes.where(f"_commit_version = '{position}'").select("p", "c").collect()
    ]
    print(f"{len(snapshot)} rows of the snapshot, killed after {len(offsets)} micro-batches")
    assert len(set(snapshot)) == len(snapshot), "a row came twice"
    after = rows_of(cluster)
    assert {key for key, _ in before.items() & after.items()} <= set(snapshot)
    copy = {(row.p, row.c): row.v for row in fold(changes).collect()}
    assert copy == after


def run_and_kill(query: FollowedQuery, role: Role, chance: random.Random) -> None:
    """Wait for a few micro-batches, then kill processes with this role during the next one."""
    for _ in range(chance.randint(1, 3)):
        query.next_batch()
    query.kill_within(LONGEST, role, chance)


def offsets_of(folder: Path) -> list[dict[str, object]]:
    """Return the offsets in the checkpoint, in order."""
    files = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda f: int(f.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def rows_of(cluster: EmbeddedScylla) -> dict[Key, int | None]:
    """Return the rows of the table."""
    rows = cluster.execute("SELECT p, c, v FROM ks.t")
    numbers = ([int.from_bytes(cell or b"", "big", signed=True) for cell in row] for row in rows)
    return {(p, c): v for p, c, v in numbers}


@contextmanager
def writing(cluster: EmbeddedScylla, draw: random.Random) -> Iterator[None]:
    """Update, delete and insert rows in the background.

    Some rows are in partitions that the query has read, and others in partitions not yet read.
    """
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            number = draw.randrange(ROWS)
            where = f"p = {number % PARTITIONS} AND c = {number}"
            cluster.execute(
                draw.choice(
                    [
                        f"UPDATE ks.t SET v = {number + 1} WHERE {where}",
                        f"DELETE FROM ks.t WHERE {where}",
                        f"INSERT INTO ks.t (p, c, v) VALUES ({number % PARTITIONS}, {ROWS}, 1)",
                    ]
                )
            )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()

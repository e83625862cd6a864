"""Applying changes to a copy, compared with the driver's concurrent inserts of the same cells.

The time of the replicator includes reading the log and making the changes, while the driver inserts
rows that it has in memory. `replicate` writes 100 rows to each partition. `replicate_scattered`
writes a single row to each, so that no two changes can be combined into one write.
`replicate_scattered` has no target, because the replicator also reads, groups and converts each
change.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial

from cassandra.cluster import Cluster, Session
from cassandra.concurrent import execute_concurrent_with_args

from cdc_reader.cluster import CqlWriter
from cdc_reader.reader import CdcReader
from cdc_reader.replication.replicator import Replicator
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.turns import take_turns

CHANGES = 10_000
PARTITIONS = {"replicate": CHANGES // 100, "replicate_scattered": CHANGES}
_COLUMNS = "(pk int, ck int, name text, amount bigint, PRIMARY KEY (pk, ck))"


def figures(times: int) -> Iterator[Figure]:
    """Measure copying the inserts of 10,000 rows."""
    with serving() as served, Cluster(["127.0.0.1"], port=served.port) as cluster:
        session = cluster.connect()
        for name, partitions in PARTITIONS.items():
            yield from _figures(name, partitions, served, session, times)


def _figures(
    name: str, partitions: int, served: Served, session: Session, times: int
) -> Iterator[Figure]:
    source, copy, rival = (f"{KEYSPACE}.{name}_{kind}" for kind in ("source", "copy", "rival"))
    served.execute(f"CREATE TABLE {source} {_COLUMNS} WITH cdc = {{'enabled': true}}")
    for table in (copy, rival):
        served.execute(f"CREATE TABLE {table} {_COLUMNS}")
    rows = [(n % partitions, n, f"name {n}", n << 20) for n in range(CHANGES)]
    served.execute(_insert(source), map(_cells, rows))
    writer = CqlWriter(served.config)
    replicator = Replicator(writer, {source: copy})
    statement = session.prepare(_insert(rival))
    with CdcReader(served.config, source) as reader:
        ways: dict[str, Callable[[], object]] = {
            "ours": lambda: replicator.apply_all(reader.changes()),
            "driver": partial(execute_concurrent_with_args, session, statement, rows),
        }
        found = take_turns(ways, times)
    writer.close()
    for table in (copy, rival):
        [[count]] = session.execute(f"SELECT count(*) FROM {table}")
        assert count == CHANGES, f"expected {CHANGES} rows in {table}, found {count}"
    ours, theirs = (found[way] for way in ("ours", "driver"))
    against = "the driver's execute_concurrent_with_args"
    note = f"{CHANGES:,} inserts into {partitions:,} partitions"
    rates = CHANGES / ours.wall, "changes/s", CHANGES / theirs.wall
    at_least = 0.9 if partitions < CHANGES else None
    yield Figure(name, *rates, against, at_least=at_least, note=note)
    cost, rivals = (turn.cpu / CHANGES * 1e6 for turn in (ours, theirs))
    yield Figure(f"{name}_cpu", cost, "µs/change", rivals, against)


def _insert(table: str) -> str:
    return f"INSERT INTO {table} (pk, ck, name, amount) VALUES (?, ?, ?, ?)"


def _cells(row: tuple[int, int, str, int]) -> tuple[bytes, ...]:
    pk, ck, name, amount = row
    return struct.pack(">i", pk), struct.pack(">i", ck), name.encode(), struct.pack(">q", amount)

"""Reading a table's rows: a snapshot's batches and changes, compared with the driver's paging.

The server replays pages in a separate process, so that the client is the bottleneck. Each token
range returns the same pages, so the number of rows depends on the number of ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, pairwise

from cassandra.cluster import Cluster, ExecutionProfile
from cassandra.query import tuple_factory

from cdc_reader.cluster.rows import rows_query
from cdc_reader.config import ConnectionConfig
from cdc_reader.reader import CdcReader
from cdc_reader.reading.ports import TTLS_AND_TIMES
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from tests.benchmarks.apart import apart, peak_mb
from tests.benchmarks.figure import Figure
from tests.benchmarks.logs import FLAT, PAGE_ROWS, fill
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.turns import take_turns

PAGES, RANGES = 5, 40
"""Pages per range, and the number of ranges that the driver reads.

A snapshot reads about as many ranges as the driver.
"""
FEW, MANY = 50_000, 5_000_000
LARGE = MANY // (RANGES * PAGE_ROWS)
"""Pages per range when memory is measured, so that the driver's ranges contain `MANY` rows."""


def figures(times: int) -> Iterator[Figure]:
    """Measure rows per second, and how memory grows with the number of rows."""
    with serving() as served:
        fill(served)
        yield from _rates(served, times)
        served.replay(FLAT, LARGE, PAGE_ROWS)
        few, many = (apart(_reading, served.config, rows) for rows in (FEW, MANY))
        note = f"{many:.0f} MB for {MANY:,} rows, {few:.0f} MB for {FEW:,}"
        yield Figure("snapshot_memory", many - few, "MB more", at_most=100, note=note)
        driver = apart(_paging, served.port, MANY)
        yield Figure("snapshot_peak", many, "MB", driver, "the driver's rows as tuples", note=note)


def _rates(served: Served, times: int) -> Iterator[Figure]:
    with CdcReader(served.config, f"{KEYSPACE}.{FLAT}") as reader:
        base = reader.table.schema.base
        for name, cells, read, target in (
            ("snapshot", (), _batches, 2),
            ("snapshot_changes", TTLS_AND_TIMES, _changes, None),
        ):
            selected, _, _ = rows_query(base, cells=cells, tokens=False).cql.partition(" FROM ")
            selected = selected.removeprefix("SELECT ")
            served.replay(FLAT, PAGES, PAGE_ROWS, selected=selected)
            yield _rate(served, times, name, partial(read, reader), selected, target)


def _rate(
    served: Served,
    times: int,
    name: str,
    read: Callable[[], int],
    selected: str,
    target: float | None,
) -> Figure:
    rows: dict[str, int] = {}

    def counting(way: str, read: Callable[[], int]) -> Callable[[], None]:
        def run() -> None:
            rows[way] = read()

        return run

    with _driver(served.port, selected) as tuples:
        ways = {"tuples": counting("tuples", lambda: _count(tuples())), name: counting(name, read)}
        found = take_turns(ways, times)
    rates = {way: rows[way] / turn.wall for way, turn in found.items()}
    return Figure(
        name,
        rates[name],
        "rows/s",
        rates["tuples"],
        "the driver's rows as tuples, by ranges of tokens",
        at_least=target,
        note=f"{found[name].cpu / rows[name] * 1e9:,.0f} ns of CPU a row; {rows[name]:,} rows, "
        f"the driver's {rows['tuples']:,}",
    )


def _batches(reader: CdcReader) -> int:
    """Read all rows as batches, and return their number."""
    return sum(batch.num_rows for batch in reader.snapshot().batches())


def _changes(reader: CdcReader) -> int:
    """Read the key and the row of all changes, and return their number."""
    count = 0
    for change in reader.snapshot().changes():
        _ = change.operation, change.key, change.after
        count += 1
    return count


def _reading(config: ConnectionConfig, rows: int) -> float:
    """Read at least this many rows of a snapshot, and return the peak memory, in MB."""
    found = 0
    with CdcReader(config, f"{KEYSPACE}.{FLAT}") as reader:
        for batch in reader.snapshot().batches():
            found += batch.num_rows
            if found >= rows:
                break
    assert found >= rows, f"expected {rows} rows, found {found}"
    return peak_mb()


def _paging(port: int, rows: int) -> float:
    """Read this many rows with the driver alone, and return the peak memory, in MB."""
    with _driver(port, "*") as tuples:
        found = _count(islice(tuples(), rows))
    assert found == rows, f"expected {rows} rows, found {found}"
    return peak_mb()


def _count(rows: Iterable[object]) -> int:
    return sum(1 for _ in rows)


@contextmanager
def _driver(port: int, selected: str) -> Iterator[Callable[[], Iterator[object]]]:
    """Yield a function that reads the table with the driver alone, one range after another."""
    edges = [MIN_TOKEN + (MAX_TOKEN - MIN_TOKEN) * n // RANGES for n in range(RANGES + 1)]
    with Cluster(["127.0.0.1"], port=port, protocol_version=4) as cluster:
        cluster.add_execution_profile("tuples", ExecutionProfile(row_factory=tuple_factory))
        session = cluster.connect()
        statement = session.prepare(
            f"SELECT {selected} FROM {KEYSPACE}.{FLAT} WHERE token(pk) > ? AND token(pk) <= ?"
        )
        yield lambda: (
            row
            for tokens in pairwise(edges)
            for row in session.execute(statement, tokens, execution_profile="tuples")
        )

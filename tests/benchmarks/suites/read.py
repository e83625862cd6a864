"""Reading a log from a server: batches and changes, compared with the driver's rows.

The server replays pages in a separate process, so that the client is the bottleneck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cassandra.cluster import Cluster, ExecutionProfile
from cassandra.query import named_tuple_factory, tuple_factory

from cdc_reader.reader import CdcReader
from tests.benchmarks.figure import Figure
from tests.benchmarks.logs import FLAT, IMAGES, PAGE_ROWS, fill, log_of
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.suites.changes import data, used
from tests.benchmarks.turns import take_turns

PAGES = 200
ROWS = PAGES * PAGE_ROWS


def figures(times: int) -> Iterator[Figure]:
    """Measure rows per second, until the client has read all rows."""
    with serving() as served:
        fill(served)
        yield from _figures(served, FLAT, times, targets=True)
        yield from _figures(served, IMAGES, times, targets=False)


def _figures(served: Served, table: str, times: int, *, targets: bool) -> Iterator[Figure]:
    served.replay_on(log_of(table), PAGES, PAGE_ROWS)
    with CdcReader(served.config, f"{KEYSPACE}.{table}") as reader, driver(served) as rows_of:
        _check(sum(len(change.seqs) for change in reader.changes()))
        found = take_turns(
            {
                "tuples": rows_of(table, tuple_factory),
                "rows": rows_of(table, named_tuple_factory),
                "batches": lambda: batches(reader),
                "changes": lambda: changes(reader),
                "used": lambda: everything(reader),
            },
            times,
        )
    rates = {way: ROWS / turn.wall for way, turn in found.items()}
    cpu = {way: f"{turn.cpu / ROWS * 1e9:,.0f} ns of CPU a row" for way, turn in found.items()}
    suffix = "" if targets else f"_{table}"
    yield Figure(
        f"read_batches{suffix}",
        rates["batches"],
        "rows/s",
        rates["tuples"],
        "the driver's rows as tuples",
        at_least=6 if targets else None,
        note=cpu["batches"],
    )
    yield Figure(
        f"read_changes{suffix}",
        rates["changes"],
        "rows/s",
        rates["rows"],
        "the driver's plain rows",
        at_least=2 if targets else None,
        note=f"{cpu['changes']}; {rates['changes'] / rates['tuples']:.2f} of tuples",
    )
    yield Figure(
        f"read_changes_used{suffix}",
        rates["used"],
        "rows/s",
        rates["rows"],
        "the driver's plain rows",
        note=cpu["used"],
    )


def batches(reader: CdcReader) -> None:
    """Read all batches."""
    _check(sum(batch.num_rows for batch in reader.batches()))


def changes(reader: CdcReader) -> None:
    """Read the operation, the key, the deltas and the images of each change."""
    for change in reader.changes():
        data(change)


def everything(reader: CdcReader) -> None:
    """Read everything that the log contains about each change."""
    for change in reader.changes():
        used(change)


@contextmanager
def driver(served: Served) -> Iterator[Callable[[str, object], Callable[[], None]]]:
    """Yield a function that returns a reader of all rows of a log, with the driver alone."""
    with Cluster(["127.0.0.1"], port=served.port, protocol_version=4) as cluster:
        profiles = {
            factory: ExecutionProfile(row_factory=factory)
            for factory in (tuple_factory, named_tuple_factory)
        }
        for factory, profile in profiles.items():
            cluster.add_execution_profile(factory, profile)
        session = cluster.connect()

        def rows_of(table: str, factory: object) -> Callable[[], None]:
            statement = session.prepare(f"SELECT * FROM {KEYSPACE}.{log_of(table)}")
            return lambda: _check(
                sum(1 for _ in session.execute(statement, execution_profile=factory))
            )

        yield rows_of


def _check(rows: int) -> None:
    assert rows == ROWS, f"expected {ROWS} rows, found {rows}"

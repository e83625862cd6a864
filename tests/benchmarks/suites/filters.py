"""Options that limit a batch read, compared with the same condition on the DataFrame.

Spark applies a condition after the source has read all rows. The options limit the rows that the
source reads.
"""

from __future__ import annotations

import json
import struct
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from attrs import frozen
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from cdc_reader._time import SystemClock, format_timestamp
from pyspark_scylla_cdc.local_session import local_session
from tests.benchmarks.figure import Figure
from tests.benchmarks.serving import KEYSPACE, Row, Served, serving
from tests.benchmarks.turns import take_turns

ROWS, LATER, KEYS = 50_000, 5_000, 100
"""Number of rows in the log, number of rows after the start of the filtered read, number of keys.
"""
TABLE = "filtered"


@frozen
class _Case:
    """An option, the DataFrame operation with the same result, and the result's number of rows."""

    name: str
    option: dict[str, str]
    rival: str
    frame: DataFrame
    rows: int


def figures(times: int) -> Iterator[Figure]:
    """Measure reads with row filters and with column pruning."""
    with tempfile.TemporaryDirectory() as name, serving(vnodes=16) as served:
        spark = local_session("benchmarks", Path(name) / "spark.log")
        try:
            moment = _fill(served)
            options = {
                "hosts": f"127.0.0.1:{served.port}",
                "path": f"{KEYSPACE}.{TABLE}",
                "consistencyLevel": "ONE",
            }

            def load(**more: str) -> DataFrame:
                return spark.read.format("scylla_cdc").options(**options, **more).load()

            for case in _cases(load(), moment):
                yield _figure(case, load(**case.option), times)
        finally:
            spark.stop()


def _cases(whole: DataFrame, moment: int) -> Iterator[_Case]:
    start = format_timestamp(moment)
    later = whole.where(sf.col("_commit_timestamp") >= sf.lit(start).cast("timestamp"))
    of_key = whole.where("pk = 7")
    some = whole.select("pk", "ck", "name")
    yield _Case("filter_time", {"startingTimestamp": start}, ".where on the time", later, LATER)
    key = json.dumps({"pk": 7})
    yield _Case("filter_key", {"partitionKey": key}, ".where on the key", of_key, ROWS // KEYS)
    yield _Case("filter_columns", {"columns": "name"}, ".select", some, ROWS)


def _figure(case: _Case, bounded: DataFrame, times: int) -> Figure:
    assert bounded.count() == case.frame.count() == case.rows
    ways = {"ours": partial(_drain, bounded), "theirs": partial(_drain, case.frame)}
    found = take_turns(ways, times)
    option, value = next(iter(case.option.items()))
    share = f"{case.rows:,} of {ROWS:,} rows" if case.rows < ROWS else value
    return Figure(
        case.name,
        found["ours"].wall,
        "s",
        found["theirs"].wall,
        case.rival,
        at_most=1,
        note=f"option {option}: {share}",
    )


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _fill(served: Served) -> int:
    """Write the rows in two parts, and return a time between the two, in µs."""
    columns = "pk int, ck int, name text, amount bigint, ratio double, note text"
    served.execute(
        f"CREATE TABLE {KEYSPACE}.{TABLE} ({columns}, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true}"
    )
    cql = f"INSERT INTO {KEYSPACE}.{TABLE} (pk, ck, name, amount, ratio, note) "
    cql += "VALUES (?, ?, ?, ?, ?, ?)"
    served.execute(cql, _rows(0, ROWS - LATER))
    time.sleep(0.01)
    moment = SystemClock().now() // 1_000 * 1_000
    time.sleep(0.01)
    served.execute(cql, _rows(ROWS - LATER, ROWS))
    return moment


def _rows(first: int, end: int) -> Iterator[Row]:
    for n in range(first, end):
        key = struct.pack(">i", n % KEYS), struct.pack(">i", n)
        amount, ratio = struct.pack(">q", n << 20), struct.pack(">d", n / 7)
        yield (*key, b"name %d" % n, amount, ratio, b"%d" % n * 20)

"""Measures the time and memory to read the streams of 100 nodes (256 vnodes, 64 shards each).

Run it as ``python -m tests.benchmarks.generations``. The server runs in a separate process.
Creating its 1,638,400 streams takes longer than reading them.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cdc_reader.cluster import Connection, TableGenerations
from cdc_reader.config import ReadConfig
from cdc_reader.cql.names import TableName
from tests.benchmarks.serving import KEYSPACE, serving

VNODES, SHARDS = 25_600, 64
SECONDS, MEGABYTES = 20.0, 400.0
"""Limits on the time (s) and memory (MB) for reading the streams."""


def main() -> None:
    """Print the results. The exit status is 1 if a result exceeds its limit."""
    with serving(vnodes=VNODES, shards=SHARDS) as served:
        connection = Connection(served.config, ReadConfig())
        generations = TableGenerations(connection, TableName(KEYSPACE, "t"))
        [start] = generations.timestamps()
        before, began = _peak(), time.perf_counter()
        groups = generations.groups(start)
        seconds, megabytes = time.perf_counter() - began, _peak() - before
        connection.close()
    streams = sum(len(group.streams) for group in groups)
    print(f"{streams:,} streams in {len(groups):,} groups: {seconds:.1f} s, +{megabytes:.0f} MB")
    sys.exit(seconds > SECONDS or megabytes > MEGABYTES)


def _peak() -> float:
    """Return this process's peak memory so far, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1_000


if __name__ == "__main__":
    main()

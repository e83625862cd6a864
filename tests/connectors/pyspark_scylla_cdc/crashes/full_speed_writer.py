"""Writes to a table as fast as the server accepts rows, until standard input ends.

Arguments: HOST PORT. Rows are numbered in order. At the end, the program prints the number of rows.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator

from cassandra.concurrent import execute_concurrent_with_args

from cdc_reader.testing.cql_session import open_session

KEYS = 10_000  # number of rows in the base table; only the log grows
NOTE = "a text as long as a short note in a row of a real table may be"
IN_FLIGHT = 100


def rows(stop: threading.Event) -> Iterator[tuple[int, int, str]]:
    """Yield rows until `stop` is set."""
    for number in itertools.count():
        if stop.is_set():
            return
        yield number % KEYS, number, NOTE


def stopping() -> threading.Event:
    """Return an event that is set when standard input ends."""
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return stop


def main(host: str, port: int) -> None:
    """Write rows, and print how many the server accepted."""
    session = open_session(host, port)
    session.use_client_timestamp = False  # the server sets the timestamp when it accepts the write
    insert = session.prepare("INSERT INTO ks.t (pk, number, note) VALUES (?, ?, ?)")
    taken = execute_concurrent_with_args(
        session, insert, rows(stopping()), concurrency=IN_FLIGHT, results_generator=True
    )
    print(sum(1 for _ in taken))
    session.cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

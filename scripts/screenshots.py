"""Draws the pictures of commands in docs/images.

``python -m scripts.screenshots [NAME...]`` runs each command in a terminal, on an embedded server,
and draws the terminal's screen. The names are those of `PICTURES`; the default is all of them.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

from attrs import define

from cdc_reader import CdcConsumer, ConsumerConfig, SqliteCheckpoints
from cdc_reader._time import Micros, SystemClock, duration_micros
from cdc_reader.cli.demo.orders import TABLE, Orders, Writer, schema
from cdc_reader.testing import EmbeddedScylla
from scripts.terminal import Terminal

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS, LINES = 100, 60
PATIENCE = 300.0
"""Seconds after which a command counts as stuck."""

KEYSPACE = "shop"
CHECKPOINTS = "orders.db"
PAST = timedelta(minutes=20)
"""The time for which the watched table has been written to before the watch begins."""
PAUSE = timedelta(milliseconds=200)
"""The pause between two statements."""
READERS = "billing +1/1 .*steady.*search +1/2 .*steady.*search +2/2 .*catching up.*left"
"""A pattern that the screen matches when each reader's lag has been observed long enough."""


@define
class LateClock:
    """A clock that is slow: it is behind the system clock by `behind` µs."""

    behind: int

    def now(self) -> Micros:
        """See `Clock.now`."""
        return SystemClock().now() - self.behind

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """See `Clock.sleep`."""
        SystemClock().sleep(micros, wake)


def demo() -> Terminal:
    """Run the demo to its end."""
    with Terminal("scylla-cdc demo --seed 7".split(), COLUMNS, LINES, PATIENCE) as terminal:
        terminal.until_end()
    return terminal


def watch() -> Terminal:
    """Watch a table that is written to, and three consumers, one of which is slow."""
    command = f"scylla-cdc status {KEYSPACE}.{TABLE} --checkpoint {CHECKPOINTS} --watch".split()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scylla-cdc-")))
        server = stack.enter_context(shop())
        for consumer in consumers(server.contact_point, folder / CHECKPOINTS):
            stack.enter_context(running(consumer))
        where = {"SCYLLA_CDC_HOSTS": server.contact_point}
        with Terminal(command, COLUMNS, LINES, PATIENCE, folder, where) as terminal:
            terminal.until(READERS)
            return terminal


@contextmanager
def shop() -> Iterator[EmbeddedScylla]:
    """Start a server with a table of orders that has old changes and is still written to."""
    clock = LateClock(duration_micros(PAST))
    statements = iter(Orders(KEYSPACE, random.Random(7)))  # noqa: S311 - sample data
    with EmbeddedScylla(clock=clock) as server:
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        server.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}")
        for statement in schema(KEYSPACE):
            server.execute(statement)
        while clock.behind > 0:
            server.execute(next(statements))
            clock.behind -= duration_micros(PAUSE)
        writer = Writer(server.execute, statements, PAUSE.total_seconds())
        writer.start()
        try:
            yield server
        finally:
            writer.stop()


def consumers(hosts: str, checkpoints: Path) -> Iterator[CdcConsumer]:
    """Yield two consumers that keep up, and one that starts in the past and is slow."""
    for application, shard, start, handler in (
        ("billing", None, "-30s", lambda _: None),
        ("search", "1/2", "-30s", lambda _: None),
        ("search", "2/2", f"-{PAST.seconds}s", lambda _: time.sleep(0.02)),
    ):
        yield CdcConsumer(
            hosts,
            f"{KEYSPACE}.{TABLE}",
            handler,
            application=application,
            shard=shard,
            start=start,
            checkpoints=SqliteCheckpoints(checkpoints),
            config=ConsumerConfig(max_bytes=1),
        )


@contextmanager
def running(consumer: CdcConsumer) -> Iterator[None]:
    """Run a consumer in a separate thread."""
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield
    finally:
        consumer.stop()
        thread.join()


PICTURES = {"demo": demo, "status-watch": watch}


def main(names: Sequence[str]) -> None:
    """Draw the named pictures, or all."""
    parser = argparse.ArgumentParser(description="Draws the pictures of commands in docs/images.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=" or ".join(PICTURES))
    wanted = parser.parse_args(names).names or list(PICTURES)
    if unknown := sorted(set(wanted) - PICTURES.keys()):
        parser.error(f"found {' '.join(unknown)}: expected {' or '.join(PICTURES)}")
    IMAGES.mkdir(exist_ok=True)
    for name in wanted:
        target = IMAGES / f"{name}.svg"
        target.write_text(PICTURES[name]().svg(name))
        sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

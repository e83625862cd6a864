"""`CdcConsumer` over a real socket: delivery, acknowledgment and checkpoints."""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from traceback import format_exception
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from prometheus_client import CollectorRegistry

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints, ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig, handling, runtime
from cdc_reader.consumer.events import ConsumerEvent, WindowHandled
from cdc_reader.cql.names import TableName
from cdc_reader.errors import (
    CheckpointError,
    ConfigurationError,
    HandlerError,
    TableNotFoundError,
    TransientError,
)
from cdc_reader.metrics import (
    CHANGES,
    CHECKPOINT_RETRIES,
    CHECKPOINTS,
    GENERATION,
    HANDLER_ERRORS,
    HANDLER_RETRIES,
    HEADROOM,
    LAG,
    QUERIES,
    RETRIES,
    ROWS,
    WINDOWS,
    MemoryMetrics,
    PrometheusMetrics,
)
from cdc_reader.reading.cursor import Checkpoint
from cdc_reader.streams.window import Window
from cdc_reader.testing import EmbeddedScylla, ManualClock
from tests.cdc_reader.consumer.conftest import PATIENCE, READ, now

if TYPE_CHECKING:
    from cdc_reader.checkpoints.store import CheckpointStore
    from cdc_reader.testing import Scylla

Write = Callable[..., None]
KEYSPACE = (
    "CREATE KEYSPACE ks WITH replication = "
    "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
)


class Seen:
    """A handler that records the changes and the threads that call it."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.by_partition: defaultdict[int, list[int]] = defaultdict(list)
        self.threads: set[str] = set()

    def __call__(self, change: Change) -> None:
        self.numbers.append(change.key["c"])
        self.by_partition[change.key["p"]].append(change.key["c"])
        self.threads.add(threading.current_thread().name)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a failing handler again almost at once."""
    monkeypatch.setattr(handling, "_PAUSES", (0.001, 0.001))


@pytest.fixture(autouse=True)
def no_threads_are_left() -> Any:
    """Check that no thread is left after the consumer ends."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("cdc-")]
    assert [name for name in left if name != "cdc-connect"] == []


def consumer(
    connection: ConnectionConfig, tables: Any, handler: Callable[[Change], object], **options: Any
) -> CdcConsumer:
    """Return a consumer that reads up to the current time."""
    settings: dict[str, Any] = {
        "application": "app",
        "end": now(),
        "read": READ,
        "checkpoints": MemoryCheckpoints(),
    }
    return CdcConsumer(connection, tables, handler, **(settings | options))


def test_the_default_store_is_a_file_named_after_the_application(
    connection: ConnectionConfig,
    table: str,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without a store, a later consumer with the application's name resumes from a file.

    If the file cannot be written, the consumer says so, and does not begin.
    """
    monkeypatch.chdir(tmp_path)
    write(table, 20)
    seen = Seen()
    named: dict[str, Any] = {"application": "the app/é", "checkpoints": None}
    for _ in range(2):
        consumer(connection, table, seen, **named).run()
    assert Counter(seen.numbers) == Counter(range(20))
    assert {path.name for path in tmp_path.iterdir()} == {"the-app--.db", "the-app--.db-lock"}
    begun = [text for text in caplog.messages if text.startswith("event='started'")]
    file = tmp_path / "the-app--.db"
    assert "begins='without a checkpoint, at " in begun[0]
    assert "begins='at its checkpoint, " in begun[1]
    assert all(f"checkpoints='<SqliteCheckpoints {file}>'" in text for text in begun)
    stopped = [text for text in caplog.messages if text.startswith("event='stopped'")]
    assert len(begun) == len(stopped) == 2
    assert len(caplog.messages) == 4
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(CheckpointError, match=r"cannot write checkpoints to /.*/the-app--\.db: "):
        consumer(connection, table, seen, **named).run()
    assert len(seen.numbers) == 20


def test_order_is_kept_by_partition_key_among_several_workers(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """With several workers, each change is handled once, and each partition's changes in order."""
    write(table, 200)
    seen = Seen()
    consumer(connection, table, seen, config=ConsumerConfig(workers=3)).run()
    assert Counter(seen.numbers) == Counter(range(200))
    assert all(numbers == sorted(numbers) for numbers in seen.by_partition.values())
    assert len(seen.threads) > 1


@pytest.mark.needs("topology")
def test_order_is_kept_across_generations() -> None:
    """A base row's changes stay with one worker even when they move to another stream."""
    clock = ManualClock(1_700_000_000_000_000)
    with EmbeddedScylla(clock=clock) as server:
        server.execute(KEYSPACE)
        columns = "p int, c int, v int, PRIMARY KEY (p, c)"
        server.execute(f"CREATE TABLE ks.t ({columns}) WITH cdc = {{'enabled': true}}")
        for number in range(120):
            if number in (40, 80):
                server.join()
                clock.advance(120_000_000)
            clock.advance(1_000)
            server.execute(f"INSERT INTO ks.t (p, c) VALUES ({number % 3}, {number})")
        clock.advance(1_000)
        seen: Seen = Seen()
        streams: set[bytes] = set()

        def handler(change: Change) -> None:
            streams.add(change.stream)
            seen(change)

        connection = ConnectionConfig(server.contact_point)
        consumer(connection, "ks.t", handler, end=clock.now(), clock=clock).run()
    assert Counter(seen.numbers) == Counter(range(120))
    assert all(numbers == sorted(numbers) for numbers in seen.by_partition.values())
    assert len(streams) > 3


def test_reading_waits_for_a_slow_handler(
    connection: ConnectionConfig, table: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a handler is slow, at most a limited number of changes and one page are read.

    No change is lost.
    """
    write(table, 100)
    go, metrics, seen = threading.Event(), MemoryMetrics(), Seen()

    def handler(change: Change) -> None:
        go.wait()
        seen(change)

    monkeypatch.setattr(runtime, "_MOST_CHANGES", 5)
    slow = consumer(connection, table, handler, config=ConsumerConfig(workers=2), metrics=metrics)
    running = threading.Thread(target=slow.run)
    running.start()
    while not slow._running._runtime._limit.is_awaited:
        running.join(0.001)
    assert metrics[ROWS, TableName.parse(table)] <= 20  # one page is in flight and one is waiting
    go.set()
    running.join()
    assert sorted(seen.numbers) == list(range(100))


def test_a_page_above_the_byte_limit_is_handled(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A page above the byte limit is handled while nothing else is in flight."""
    write(table, 60)
    seen = Seen()
    consumer(connection, table, seen, config=ConsumerConfig(max_bytes=1)).run()
    assert sorted(seen.numbers) == list(range(60))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "scylla"])
def test_a_run_resumes_where_the_last_one_ended(
    connection: ConnectionConfig, keyspace: str, table: str, write: Write, tmp_path: Path, kind: str
) -> None:
    """A run resumes at the end of the previous run. `start` applies only to the first run."""
    stores: dict[str, Callable[[], CheckpointStore]] = {
        "memory": MemoryCheckpoints,
        "sqlite": lambda: SqliteCheckpoints(tmp_path / "c.db"),
        "scylla": lambda: ScyllaCheckpoints(connection, keyspace),
    }
    store = stores[kind]()
    runs = []
    for first in (0, 40, 80):
        write(table, 40, first=first)
        seen = Seen()
        consumer(connection, table, seen, checkpoints=store).run()
        store.close()
        runs.append(sorted(seen.numbers))
    assert runs == [list(range(first, first + 40)) for first in (0, 40, 80)]


def test_applications_have_separate_positions(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Each application has its own position in a shared store."""
    write(table, 20)
    store = MemoryCheckpoints()
    for application in ("one", "other"):
        seen = Seen()
        consumer(connection, table, seen, checkpoints=store, application=application).run()
        assert sorted(seen.numbers) == list(range(20))


def test_start_now_delivers_later_writes_only(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """With `start="now"`, only later writes are delivered.

    The start is saved even if no change is handled.
    """
    write(table, 10)
    store = MemoryCheckpoints()
    first = consumer(connection, table, Seen(), start="now", checkpoints=store, end=None)
    first.stop()
    first.run()
    write(table, 10, first=10)
    seen = Seen()
    consumer(connection, table, seen, start="now", checkpoints=store).run()
    assert sorted(seen.numbers) == list(range(10, 20))


def test_end_now_stops_at_the_present(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """With `end="now"`, the run handles the existing changes and then ends."""
    write(table, 5)
    seen = Seen()
    consumer(connection, table, seen, end="now").run()
    assert sorted(seen.numbers) == list(range(5))


def test_several_tables_are_followed_at_once(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str, table: str, write: Write
) -> None:
    """With several tables, each change names its table, and each table has a checkpoint."""
    other = f"{keyspace}.u"
    scylla.session.execute(
        f"CREATE TABLE {other} (p int, c int, v int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true}"
    )
    write(table, 30)
    write(other, 50)
    found: Counter[str] = Counter()
    store, end = MemoryCheckpoints(), now()
    consumer(
        connection,
        [table, other],
        lambda change: found.update([str(change.table)]),
        checkpoints=store,
        end=end,
    ).run()
    assert found == {table: 30, other: 50}
    for name in (table, other):
        saved = store.load(CheckpointName("app", TableName.parse(name)))
        assert saved is not None
        assert (saved.position, saved.marks) == (end, {})


def test_shards_cover_everything_once(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Together, the shards handle each change once. Their checkpoints can be in one store."""
    write(table, 100, partitions=50)
    store, shares = MemoryCheckpoints(), []
    for number in (1, 2, 3):
        seen = Seen()
        consumer(connection, table, seen, checkpoints=store, shard=f"{number}/3").run()
        shares.append(seen.numbers)
    assert Counter(number for share in shares for number in share) == Counter(range(100))
    assert all(shares)


def test_a_window_is_reported_when_all_changes_are_handled(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Windows without gaps are reported, each after all of its changes are handled."""
    write(table, 30)
    handled: list[int] = []
    windows: list[Window] = []
    ahead: list[int] = []

    def on_event(event: ConsumerEvent) -> None:
        assert isinstance(event, WindowHandled)
        assert str(event.table) == table
        windows.append(event.window)
        if len([window for window in windows if handled and window.start > max(handled)]) == 3:
            running.stop()

    def handler(change: Change) -> None:
        if windows and change.timestamp < windows[-1].end:
            ahead.append(change.timestamp)
        handled.append(change.timestamp)

    running = consumer(connection, table, handler, on_event=on_event, end=None)
    running.run()
    assert len(handled) == 30
    assert ahead == []
    assert all(a.end == b.start for a, b in pairwise(windows))


def test_a_failing_on_event_stops_the_consumer(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """An error in `on_event` stops the consumer, after the changes of the window are handled."""
    write(table, 10)
    seen, store = Seen(), MemoryCheckpoints()

    def on_event(event: ConsumerEvent) -> None:
        raise OSError(f"no room for {event.table}")

    with pytest.raises(HandlerError, match=r"on_event of .*\.t failed: .*no room"):
        consumer(connection, table, seen, checkpoints=store, on_event=on_event).run()
    consumer(connection, table, seen, checkpoints=store).run()
    assert Counter(seen.numbers) == Counter(range(10))


def test_stop_leaves_queued_changes_to_the_next_run(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A handler can stop its own consumer. Later runs handle each remaining change once."""
    write(table, 100)
    seen, store, runs = Seen(), MemoryCheckpoints(), 0
    running: list[CdcConsumer] = []

    def handler(change: Change) -> None:
        seen(change)
        if len(seen.numbers) >= 30 * runs:
            running[-1].stop()

    end = now()
    while len(seen.numbers) < 100:
        runs += 1
        running.append(consumer(connection, table, handler, checkpoints=store, end=end))
        running[-1].run()
    assert Counter(seen.numbers) == Counter(range(100))
    assert all(numbers == sorted(numbers) for numbers in seen.by_partition.values())
    assert 3 <= runs <= 4


def test_a_consumer_runs_once(connection: ConnectionConfig, table: str) -> None:
    """A consumer that is stopped before `run` does not start. `run` cannot be called twice."""
    stopped = consumer(connection, table, Seen(), end=None)
    stopped.stop()
    stopped.run()
    with pytest.raises(RuntimeError, match="has already run"):
        stopped.run()


class Failing:
    """A handler that fails on one change a given number of times."""

    def __init__(self, number: int, times: int) -> None:
        self.seen = Seen()
        self._number, self._times = number, times

    def __call__(self, change: Change) -> None:
        if change.key["c"] == self._number and self._times:
            self._times -= 1
            raise LookupError("no such thing")
        self.seen(change)


QUICK = ConsumerConfig(workers=4)


def test_a_handler_that_fails_is_called_again(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A failed handler is retried without changing the order within the partition."""
    write(table, 40)
    handler, metrics = Failing(13, 2), MemoryMetrics()
    consumer(connection, table, handler, config=QUICK, metrics=metrics).run()
    assert sorted(handler.seen.numbers) == list(range(40))
    assert all(numbers == sorted(numbers) for numbers in handler.seen.by_partition.values())
    assert metrics[HANDLER_RETRIES, TableName.parse(table)] == 2
    assert metrics[HANDLER_ERRORS, TableName.parse(table)] == 0


def test_counters_that_alerts_use_begin_at_zero(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Losses, failed changes and retries are exported as 0 before anything is handled.

    Prometheus therefore sees the first of each as an increase.
    """
    write(table, 1)
    registry = CollectorRegistry()
    found: list[float | None] = []
    name = TableName.parse(table)
    labels = {"keyspace": name.keyspace, "table": name.name}

    def handle(_change: Change) -> None:
        names = ("losses", "handler_errors", "checkpoint_retries")
        totals = (f"scylla_cdc_{name}_total" for name in names)
        found.extend(registry.get_sample_value(total, labels) for total in totals)

    consumer(connection, table, handle, metrics=PrometheusMetrics(registry)).run()
    assert found == [0, 0, 0]


def test_a_handler_that_fails_for_good_stops_the_consumer(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A failing handler ends the run with an error that names the change.

    The next run repeats this change, but no earlier one.
    """
    write(table, 40)
    handler, store = Failing(13, 3), MemoryCheckpoints()
    with pytest.raises(HandlerError, match=r"failed 3 times on insert of .*'c': 13.*no such") as e:
        consumer(connection, table, handler, config=QUICK, checkpoints=store).run()
    assert isinstance(e.value.__cause__, LookupError)
    assert 13 not in handler.seen.numbers
    consumer(connection, table, handler, config=QUICK, checkpoints=store).run()
    assert Counter(handler.seen.numbers) == Counter(range(40))
    assert all(numbers == sorted(numbers) for numbers in handler.seen.by_partition.values())


@pytest.mark.parametrize(("on_error", "attempts"), [("stop", 2), ("skip", 1), ("bury", 1)])
def test_a_handlers_failure_is_logged_with_its_traceback(
    connection: ConnectionConfig,
    table: str,
    write: Write,
    caplog: pytest.LogCaptureFixture,
    on_error: str,
    attempts: int,
) -> None:
    """A handler's failure is logged with its traceback, whether or not it is retried."""
    write(table, 14)
    config = evolve(QUICK, attempts=attempts, on_error="skip" if on_error == "skip" else "stop")
    letters: Any = (lambda _change, _error: None) if on_error == "bury" else None
    handler = Failing(13, 1)
    consumer(connection, table, handler, config=config, dead_letter=letters).run()
    failures = [record for record in caplog.records if "no such thing" in record.getMessage()]
    assert len(failures) == 1
    assert failures[0].exc_info is not None
    _, error, traceback = failures[0].exc_info
    assert isinstance(error, LookupError)
    assert traceback is not None
    assert "exc_info" not in failures[0].getMessage()


@pytest.mark.parametrize("attempts", [1, 3])
@pytest.mark.parametrize("workers", [1, 2])
def test_one_traceback_of_the_users_frames(
    connection: ConnectionConfig,
    table: str,
    write: Write,
    caplog: pytest.LogCaptureFixture,
    attempts: int,
    workers: int,
) -> None:
    """A handler's mistake is shown once, from the handler on; each further attempt is one line."""
    write(table, 1)
    config = evolve(QUICK, attempts=attempts, workers=workers)
    with pytest.raises(HandlerError, match=r"give dead_letter, .*, or on_error 'skip'$") as raised:
        consumer(connection, table, _mistaken, config=config).run()
    logged = "".join(
        logging.Formatter("%(message)s").format(each) + "\n" for each in caplog.records
    )
    printed = logged + "".join(format_exception(raised.value))
    assert printed.count("in _mistaken\n") == 1
    assert printed.count("event='handler_retry'") == attempts - 1
    assert "tenacity" not in printed
    assert "handling.py" not in printed
    assert "another exception" not in printed


def _mistaken(_change: Change) -> None:
    raise LookupError("no such thing")


def test_a_change_may_be_skipped(connection: ConnectionConfig, table: str, write: Write) -> None:
    """If a change is skipped, all others are handled and the position advances past it."""
    write(table, 40)
    handler, store, metrics = Failing(13, 3), MemoryCheckpoints(), MemoryMetrics()
    skipping = evolve(QUICK, on_error="skip")
    options: Any = {"config": skipping, "checkpoints": store, "metrics": metrics}
    consumer(connection, table, handler, **options).run()
    consumer(connection, table, handler, **options).run()
    assert Counter(handler.seen.numbers) == Counter(set(range(40)) - {13})
    assert metrics[HANDLER_ERRORS, TableName.parse(table)] == 1


def test_a_change_may_go_to_the_dead_letters(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """`dead_letter` gets the handler's last error. The consumer stops if `dead_letter` fails."""
    write(table, 40)
    letters: list[tuple[int, str]] = []
    consumer(
        connection,
        table,
        Failing(13, 3),
        config=QUICK,
        dead_letter=lambda change, error: letters.append((change.key["c"], str(error))),
    ).run()
    assert letters == [(13, "no such thing")]
    with pytest.raises(HandlerError, match=r"dead_letter failed on insert of .*full"):
        consumer(connection, table, Failing(13, 3), config=QUICK, dead_letter=_full).run()


def _refuse(_change: Change) -> None:
    raise OSError("full")


def _full(_change: Change, _error: Exception) -> None:
    raise OSError("full")


async def _later(*_: object) -> None:
    """Do nothing when awaited."""


def _unawaited(*given: object) -> object:
    return _later(*given)


class _Later:
    async def __call__(self, *_: object) -> None:
        """Do nothing when awaited."""


def test_a_handler_that_returns_a_coroutine_is_refused(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A handler that returns a coroutine is rejected, because nothing would await the coroutine."""
    write(table, 5)
    store, seen = MemoryCheckpoints(), Seen()
    for unawaited in (_later, _Later()):
        with pytest.raises(ConfigurationError, match="AsyncCdcConsumer"):
            consumer(connection, table, unawaited, checkpoints=store)
    given: list[dict[str, Any]] = [
        {"handler": _unawaited},
        {"handler": Failing(3, 3), "dead_letter": _unawaited, "config": QUICK},
        {"handler": Seen(), "on_event": _later},
        {"handler": _unawaited, "checkpoints": store},
    ]
    for settings in given:
        with pytest.raises(ConfigurationError, match="a function that returns a coroutine"):
            consumer(connection, table, settings.pop("handler"), **settings).run()
    consumer(connection, table, seen, checkpoints=store).run()
    assert Counter(seen.numbers) == Counter(range(5))


def test_a_handler_that_is_a_generator_is_refused(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A generator is rejected as a handler, because none of its code would run."""

    def generator(change: Change) -> Iterator[Change]:
        yield change

    async def asynchronous(change: Change) -> AsyncIterator[Change]:
        yield change

    write(table, 5)
    store, seen = MemoryCheckpoints(), Seen()
    for handler in (generator, asynchronous):
        with pytest.raises(ConfigurationError, match=r"returns a generator.*leave out `yield`"):
            consumer(connection, table, handler, checkpoints=store).run()
    consumer(connection, table, seen, checkpoints=store).run()
    assert Counter(seen.numbers) == Counter(range(5))


class Store(MemoryCheckpoints):
    """A store whose saves fail as scripted."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)
        self.saves = 0

    def save(self, name: CheckpointName, checkpoint: Checkpoint) -> None:
        self.saves += 1
        if self.saves > 1 and self.errors:
            raise self.errors.pop()
        super().save(name, checkpoint)


def test_transient_errors_of_a_store_are_retried(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Handling continues during transient errors of a store, and saving is retried."""
    write(table, 40)
    store = Store(*[TransientError("busy")] * 4)
    seen, metrics = Seen(), MemoryMetrics()
    consumer(connection, table, seen, checkpoints=store, metrics=metrics).run()
    assert sorted(seen.numbers) == list(range(40))
    assert metrics[CHECKPOINT_RETRIES, TableName.parse(table)] == 4
    again = Seen()
    consumer(connection, table, again, checkpoints=store).run()
    assert again.numbers == []


def test_a_store_that_fails_for_good_stops_the_consumer(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A store that fails permanently stops the consumer with the store's error.

    The consumer cannot release its lease, which expires later.
    """
    write(table, 40)
    seen, store = Seen(), Store(CheckpointError("disk full"))
    short = ConsumerConfig(lease=timedelta(seconds=1))
    with pytest.raises(CheckpointError, match="disk full"):
        consumer(connection, table, seen, checkpoints=store, config=short, end=None).run()
    consumer(connection, table, seen, checkpoints=store).run()
    assert set(seen.numbers) == set(range(40))


def test_a_store_that_cannot_be_read_is_raised_at_once(
    connection: ConnectionConfig, table: str, tmp_path: Path
) -> None:
    """If a checkpoint cannot be loaded, the error is raised before anything is read."""
    store = SqliteCheckpoints(tmp_path / "nowhere" / "c.db")
    with pytest.raises(CheckpointError, match="unable to open"):
        consumer(connection, table, Seen(), checkpoints=store, end=None).run()


def test_each_change_is_saved_if_configured(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """With an interval of zero, each change is saved. With a long interval, there are few saves."""
    write(table, 40)
    store = Store()
    each = ConsumerConfig(workers=1, checkpoint_interval=timedelta(0))  # workers may share a save
    consumer(connection, table, Seen(), checkpoints=store, config=each).run()
    assert store.saves >= 40
    rare = Store()
    seldom = ConsumerConfig(workers=2, checkpoint_interval=timedelta(hours=1))
    consumer(connection, table, Seen(), checkpoints=rare, config=seldom).run()
    assert rare.saves <= 4


@pytest.mark.needs("faults")
def test_transient_errors_of_a_read_are_retried(
    scylla: Scylla,
    connection: ConnectionConfig,
    table: str,
    write: Write,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Transient read errors are retried, the retries are counted, and their end is told once."""
    from cdc_reader.testing import Fault

    server: Any = scylla.server
    write(table, 40)
    seen, metrics = Seen(), MemoryMetrics()
    fault = Fault("overloaded", f"{table}_scylla_cdc_log", times=2)
    with server.faults.during(fault):
        consumer(connection, table, seen, metrics=metrics).run()
    assert Counter(seen.numbers) == Counter(range(40))
    assert metrics[RETRIES, TableName.parse(table)] == 2
    told = [text for text in caplog.messages if text.startswith("event='recovered'")]
    assert len(told) == 1
    assert f"tables='{table}' seconds=" in told[0]


@pytest.mark.needs("faults")
def test_an_outage_does_not_keep_a_consumer_from_stopping(
    scylla: Scylla, connection: ConnectionConfig, table: str
) -> None:
    """A consumer stops during an outage, however long the retry deadline is."""
    from cdc_reader.testing import Fault

    server: Any = scylla.server
    patient = evolve(READ, retry_deadline=timedelta(hours=1))
    metrics = MemoryMetrics()
    stuck = consumer(connection, table, Seen(), read=patient, metrics=metrics, end=None)
    running = threading.Thread(target=stuck.run)
    with server.faults.during(Fault("unavailable", f"{table}_scylla_cdc_log", times=None)):
        running.start()
        while not metrics[RETRIES, TableName.parse(table)]:
            running.join(0.001)
        stuck.stop()
        running.join(PATIENCE)
    assert not running.is_alive()


@pytest.mark.needs("faults")
def test_an_idle_window_costs_one_write(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str, table: str, write: Write
) -> None:
    """An idle window costs one write, however many streams had rows before."""
    from cdc_reader.testing import Fault

    server: Any = scylla.server
    store = ScyllaCheckpoints(connection, keyspace)
    write(table, 100, partitions=50)
    consumer(connection, table, Seen(), checkpoints=store).run()
    saves = Fault("delay", f"{keyspace}.cdc_checkpoints", times=None, seconds=0.000_001)
    windows: list[Window] = []

    def on_event(event: ConsumerEvent) -> None:
        assert isinstance(event, WindowHandled)
        windows.append(event.window)
        if len(windows) == 5:
            idle.stop()

    each = ConsumerConfig(checkpoint_interval=timedelta(0))
    options: Any = {"checkpoints": store, "on_event": on_event, "end": None, "config": each}
    idle = consumer(connection, table, Seen(), **options)
    with server.faults.during(saves):
        idle.run()
        lease = 4  # acquiring and releasing each include a read of the lease's state
        assert server.faults.struck(saves) <= len(windows) + lease
    store.close()


def test_eager_rows_are_delivered_at_once_and_only_once(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """With eager delivery, each run uses marks to skip rows that earlier runs acknowledged.

    Each run stops before any row has settled, so the position does not move.
    """
    eager = evolve(
        READ,
        delivery="eager",
        poll_interval=timedelta(milliseconds=10),
        confidence_window=timedelta(hours=1),
    )
    seen, store = Seen(), MemoryCheckpoints()

    def handler(change: Change) -> None:
        seen(change)
        if len(seen.numbers) in (25, 60, 90):
            running.stop()

    write(table, 60)
    for more in (0, 0, 30):
        write(table, more, first=60)
        options: Any = {"read": eager, "checkpoints": store, "end": None}
        running = consumer(connection, table, handler, **options)
        running.run()
    assert Counter(seen.numbers) == Counter(range(90))
    assert all(numbers == sorted(numbers) for numbers in seen.by_partition.values())


def test_metrics_are_recorded(connection: ConnectionConfig, table: str, write: Write) -> None:
    """Metrics cover rows, changes, windows, queries, checkpoints, lag and generation."""
    write(table, 40)
    metrics, name = MemoryMetrics(), TableName.parse(table)
    consumer(connection, table, Seen(), metrics=metrics).run()
    assert metrics[ROWS, name] == metrics[CHANGES, name] == 40
    assert metrics[WINDOWS, name] >= 1
    assert metrics[QUERIES, name] >= 1
    assert metrics[CHECKPOINTS, name] >= 1
    assert 0 <= metrics[LAG, name] < 10
    assert metrics[GENERATION, name] > 1_000_000


@pytest.mark.parametrize(("ttl", "left"), [(7_200, 3_600), (0, math.inf)])
@pytest.mark.needs("topology")
def test_lag_and_headroom_are_recorded_before_the_first_window_completes(
    ttl: int, left: float
) -> None:
    """Before the first window is complete, lag and headroom are those of the oldest possible row.

    In this test, the log is an hour old.
    """
    clock, metrics, name = ManualClock(1_700_000_000_000_000), MemoryMetrics(), TableName("ks", "t")
    told: list[tuple[float, float]] = []
    with EmbeddedScylla(clock=clock) as server:
        server.execute(KEYSPACE)
        server.execute(
            f"CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {{'enabled': true, 'ttl': {ttl}}}"
        )
        server.execute("INSERT INTO ks.t (p) VALUES (1)")
        clock.advance(3_600_000_000)

        def handler(_change: Change) -> None:
            told.append((metrics[LAG, name], metrics[HEADROOM, name]))

        connection, end = ConnectionConfig(server.contact_point), clock.now()
        consumer(connection, "ks.t", handler, end=end, clock=clock, metrics=metrics).run()
    [(lag, headroom)] = told
    assert lag == pytest.approx(3_600, abs=120)
    assert headroom == (left if math.isinf(left) else pytest.approx(left, abs=120))


def test_lag_counts_from_the_given_start(connection: ConnectionConfig, table: str) -> None:
    """Lag is measured from the given start, even if nothing has been read yet."""
    metrics, an_hour_ago = MemoryMetrics(), now() - 3_600_000_000
    following = consumer(
        connection, table, Seen(), start=an_hour_ago, end=an_hour_ago, metrics=metrics
    )
    following.run()
    assert metrics[LAG, TableName.parse(table)] == pytest.approx(3_600, abs=60)


def test_processes_that_a_handler_forks_do_not_keep_run(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """`run` returns although a process forked during the run lives on."""
    write(table, 3)
    found: list[int] = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:

        def handler(change: Change) -> None:
            found.append(pool.submit(abs, -change.key["c"]).result())

        consumer(connection, table, handler).run()
    assert sorted(found) == [0, 1, 2]


def test_a_table_that_is_not_there_is_an_error(connection: ConnectionConfig, keyspace: str) -> None:
    """If the table does not exist, `run` raises an error at once."""
    with pytest.raises(TableNotFoundError, match=r"table .*nosuch was not found"):
        consumer(connection, f"{keyspace}.nosuch", Seen(), end=None).run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"application": ""}, "application is ''"),
        ({"start": "yesterday"}, "start is 'yesterday'"),
        ({"start": 1.5}, "start is 1.5: give 'earliest', 'now', a datetime with a time zone"),
        ({"start": datetime(2026, 11, 22)}, "start is '2026-11-22T00:00:00': it has no time zone"),  # noqa: DTZ001 - invalid
        ({"end": 1_795_322_564}, "but microseconds are expected: give 1795322564000000"),
        ({"end": "earliest"}, "end is 'earliest': give 'now', a time ago such as"),
        ({"shard": "5/4"}, "shard is '5/4'"),
    ],
)
def test_values_that_cannot_be_used_are_refused(
    connection: ConnectionConfig, options: dict[str, Any], message: str
) -> None:
    """The constructor rejects unusable values."""
    with pytest.raises(ConfigurationError, match=message):
        consumer(connection, "ks.t", Seen(), **options)


@pytest.mark.parametrize(
    ("name", "value"),
    [("workers", 0), ("attempts", 0), ("on_error", "sulk")],
)
def test_settings_that_cannot_be_used_are_refused(name: str, value: Any) -> None:
    """The error for an unusable setting lists the valid values."""
    with pytest.raises(ConfigurationError, match=f"{name} is .*: give "):
        ConsumerConfig(**{name: value})


def test_tables_are_merged_by_write_time(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str, table: str, write: Write
) -> None:
    """Changes of both tables are handled in order of write time, even one page at a time."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.u (p int, c int, v int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true}"
    )
    other = f"{keyspace}.u"
    for number in range(60):
        write(other if number % 3 else table, 1, first=number)
    seen = Seen()
    consumer(
        connection,
        [table, other],
        seen,
        config=ConsumerConfig(max_bytes=1),
        read=evolve(READ, delivery="ordered"),
    ).run()
    assert seen.numbers == list(range(60))


def test_a_waiting_table_does_not_delay_the_end(
    scylla: Scylla, connection: ConnectionConfig, keyspace: str, table: str, write: Write
) -> None:
    """A consumer can stop at one table's change while another table's later change is waiting."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.u (p int, c int, v int, PRIMARY KEY (p, c)) "
        "WITH cdc = {'enabled': true}"
    )
    write(table, 1)
    write(f"{keyspace}.u", 50)
    seen = Seen()

    def handler(change: Change) -> None:
        seen(change)
        followed.stop()

    followed = consumer(
        connection,
        [f"{keyspace}.u", table],
        handler,
        end=None,
        config=ConsumerConfig(workers=1),
        read=evolve(READ, delivery="ordered"),
    )
    followed.run()
    assert seen.numbers == [0]


def test_a_long_key_is_shortened_in_messages(
    scylla: Scylla, keyspace: str, connection: ConnectionConfig
) -> None:
    """A message about a failed change shows only the first digits of a number with very many."""
    number = 10**5_000
    raw = number.to_bytes(number.bit_length() // 8 + 1, "big").hex()
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (k varint, c int, PRIMARY KEY (k, c)) "
        "WITH cdc = {'enabled': true}"
    )
    scylla.session.execute(f"INSERT INTO {keyspace}.t (k, c) VALUES (blobAsVarint(0x{raw}), 7)")
    with pytest.raises(HandlerError, match=r"\{'k': 10{39}\.\.\. \(5,001 characters\), 'c': 7\}"):
        consumer(connection, f"{keyspace}.t", _refuse, config=QUICK).run()

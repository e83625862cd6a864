"""Consumers in separate processes that are killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer import CdcConsumer, ConsumerConfig
from tests.cdc_reader.consumer.conftest import READ, now
from tests.cdc_reader.consumer.processes import Processes, await_some

KILLS = 20
ROWS_A_RUN = 25
EAGER = evolve(
    READ,
    delivery="eager",
    poll_interval=timedelta(milliseconds=10),
    confidence_window=timedelta(hours=1),
)

Write = Callable[..., None]


@pytest.mark.slow
def test_a_kill_loses_nothing_and_repeats_only_what_was_not_acknowledged(
    processes: Processes, write: Write
) -> None:
    """A kill loses no change, and each worker repeats at most the last change it handled.

    Each worker saves a change before it takes the next. Every second run is eager and ends before
    any row settles, so the position does not move and marks accumulate.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    moments, runs = random.Random(seed), range(KILLS + 1)
    for run in runs[:-1]:
        write(processes.table, ROWS_A_RUN, first=run * ROWS_A_RUN)
        process = processes.begin(run, read=EAGER if run % 2 else READ)
        if moments.random() < 0.8:
            await_some(processes, run, process, moments.randrange(1, 20))
        process.join(moments.uniform(0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    process = processes.begin(runs[-1], end=now())
    process.join()
    assert process.exitcode == 0

    handled = [processes.handled(run) for run in runs]
    assert len({row for lines in handled for _, row in lines}) == KILLS * ROWS_A_RUN
    may_repeat = {row for lines in handled for row in dict(lines).values()}
    times = Counter(row for lines in handled for _, row in lines)
    repeated = {row for row, count in times.items() if count > 1}
    assert repeated <= may_repeat
    assert all(max(Counter(lines).values(), default=1) == 1 for lines in handled)
    _assert_in_order(handled)


def _assert_in_order(handled: list[list[tuple[str, str]]]) -> None:
    for lines in handled:
        times: defaultdict[str, list[int]] = defaultdict(list)
        for _, row in lines:
            partition, micros, _ = row.split(" ", 2)
            times[partition].append(int(micros))
        assert all(rows == sorted(rows) for rows in times.values())


def test_sigterm_ends_a_consumer_in_order(processes: Processes, write: Write) -> None:
    """After SIGTERM, handled changes are saved, and no change is handled twice."""
    write(processes.table, 300)
    process = processes.begin(0, terminated_after=20)
    process.join()
    assert process.exitcode == 0
    assert 20 <= len(processes.handled(0)) < 300
    last = processes.begin(1, end=now())
    last.join()
    rows = Counter(row for run in (0, 1) for _, row in processes.handled(run))
    assert len(rows) == 300
    assert set(rows.values()) == {1}


def test_a_signal_stops_a_consumer_whichever_thread_receives_it(
    connection: ConnectionConfig, table: str
) -> None:
    """A signal that reaches another thread stops a consumer whose main thread waits for changes.

    Python does not wake the main thread then.
    """
    follows = threading.Event()

    def send() -> None:
        follows.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    consumer = CdcConsumer(
        connection,
        table,
        lambda _: None,
        application="app",
        checkpoints=MemoryCheckpoints(),
        config=ConsumerConfig(workers=1),
        read=READ,
        on_event=lambda _: follows.set(),
    )
    consumer.run()
    sender.join()


def test_signal_handlers_are_put_back(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """The first signal restores earlier signal handlers, so a second signal can end a hung run."""
    write(table, 10)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    during: list[object] = []

    def handler(_: Change) -> None:
        if not during:
            during.append(signal.getsignal(signal.SIGTERM))
            os.kill(os.getpid(), signal.SIGTERM)

    store = MemoryCheckpoints()
    CdcConsumer(connection, table, handler, application="app", checkpoints=store, read=READ).run()
    assert during[0] not in before
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before

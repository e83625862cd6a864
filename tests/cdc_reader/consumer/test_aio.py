"""The asyncio API over a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cdc_reader.changes.change import Change
from cdc_reader.checkpoints import MemoryCheckpoints
from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.consumer import ConsumerConfig
from cdc_reader.consumer.aio import AsyncCdcConsumer, AsyncChanges
from cdc_reader.errors import ConfigurationError, HandlerError, TableNotFoundError
from tests.cdc_reader.consumer.conftest import PATIENCE, READ, now, table, write

if TYPE_CHECKING:
    from cdc_reader.checkpoints.store import CheckpointStore

__all__ = ["table", "write"]  # fixtures

Write = Callable[..., None]


@pytest.fixture(autouse=True)
def no_threads_are_left() -> Iterator[None]:
    """Check that no thread is left after the event loop ends."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("cdc-") and thread.name != "cdc-connect":
            thread.join(PATIENCE)  # its result may arrive just before it ends
            assert not thread.is_alive(), thread.name


def options(store: CheckpointStore | None = None, **more: Any) -> dict[str, Any]:
    """Return options for a consumer that reads up to the current time."""
    settings = {"application": "app", "end": now(), "read": READ}
    return settings | {"checkpoints": store or MemoryCheckpoints()} | more


async def cancelled(work: Coroutine[Any, Any, None], at: asyncio.Event) -> None:
    """Run `work` as a task, cancel it once `at` is set, and check that it raises CancelledError."""
    task = asyncio.create_task(work)
    await at.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_iteration_yields_each_change_once_in_order(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A loop over changes ends at the end of the log, and a second loop finds no more changes."""
    write(table, 100)
    store = MemoryCheckpoints()

    async def loop() -> list[tuple[int, int]]:
        changes = AsyncChanges(connection, table, **options(store))
        return [(change.key["p"], change.key["c"]) async for change in changes]

    found = asyncio.run(loop())
    assert Counter(number for _, number in found) == Counter(range(100))
    by_partition: defaultdict[int, list[int]] = defaultdict(list)
    for partition, number in found:
        by_partition[partition].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    assert asyncio.run(loop()) == []


@pytest.mark.parametrize("interval", [timedelta(0), timedelta(seconds=1)])
def test_iteration_resumes_at_the_change_it_stopped_at(
    connection: ConnectionConfig, table: str, write: Write, interval: timedelta
) -> None:
    """The change at which a loop stops is not acknowledged, so the next loop yields it again."""
    write(table, 60)
    settings = options(MemoryCheckpoints(), config=ConsumerConfig(checkpoint_interval=interval))

    async def loop(count: int) -> list[int]:
        numbers: list[int] = []
        async with aclosing(aiter(AsyncChanges(connection, table, **settings))) as changes:
            async for change in changes:
                numbers.append(change.key["c"])
                if len(numbers) == count:
                    break
        return numbers

    first, rest = asyncio.run(loop(25)), asyncio.run(loop(100))
    assert sorted(first[:-1] + rest) == list(range(60))
    assert first[-1] in rest


def test_cancelled_iteration_leaves_no_thread(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """No thread is left if an async loop is canceled while it waits for more changes."""
    write(table, 10)
    numbers: set[int] = set()
    all_there = asyncio.Event()

    async def loop() -> None:
        async for change in AsyncChanges(connection, table, **options(end=None)):
            numbers.add(change.key["c"])
            if len(numbers) == 10:
                all_there.set()

    asyncio.run(cancelled(loop(), all_there))
    assert sorted(numbers) == list(range(10))


def test_iteration_cancelled_in_the_body_saves_acknowledged_changes(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Acknowledged changes are saved even if the event loop ends without closing the iterator."""
    write(table, 20)
    settings = options(
        MemoryCheckpoints(), config=ConsumerConfig(checkpoint_interval=timedelta(hours=1))
    )
    numbers: list[int] = []
    hanging = asyncio.Event()

    async def loop() -> None:
        async for change in AsyncChanges(connection, table, **settings):
            numbers.append(change.key["c"])
            if len(numbers) == 10:
                hanging.set()
                await asyncio.sleep(3600)

    threads = set(threading.enumerate())
    asyncio.run(cancelled(loop(), hanging))
    for thread in set(threading.enumerate()) - threads:
        thread.join(PATIENCE)  # a connection's threads may briefly outlive the connection
        assert not thread.is_alive(), thread.name

    async def rest() -> list[int]:
        return [change.key["c"] async for change in AsyncChanges(connection, table, **settings)]

    assert sorted(numbers[:-1] + asyncio.run(rest())) == list(range(20))


@pytest.mark.slow
@pytest.mark.parametrize("consumer", [False, True])
def test_sixty_in_one_loop(
    connection: ConnectionConfig, table: str, write: Write, *, consumer: bool
) -> None:
    """Sixty consumers share a loop, and leave its pool, here of one thread, to the handlers."""
    write(table, 10)
    seen: Counter[int] = Counter()

    async def handler(number: int) -> None:
        await asyncio.to_thread(lambda: None)
        seen[number] += 1

    async def follow(number: int) -> None:
        settings = options() | {"application": f"app{number}"}
        if consumer:
            await AsyncCdcConsumer(connection, table, lambda _: handler(number), **settings).run()
        else:
            async for _ in AsyncChanges(connection, table, **settings):
                await handler(number)

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await asyncio.gather(*map(follow, range(60)))

    asyncio.run(main())
    assert seen == dict.fromkeys(range(60), 10)


@pytest.mark.parametrize("consumer", [False, True])
def test_cancelled_while_it_connects(monkeypatch: pytest.MonkeyPatch, *, consumer: bool) -> None:
    """A cancellation while connecting reaches the caller instead of a connection error."""
    monkeypatch.setattr("cdc_reader.cluster.opening.CONNECT_TIMEOUT", 3_600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        nowhere = ConnectionConfig(f"127.0.0.1:{port}")
        read = ReadConfig(retry_deadline=timedelta(0))

        async def handler(_: Change) -> None: ...

        async def main() -> None:
            async with asyncio.timeout(0.2):
                if consumer:
                    await AsyncCdcConsumer(nowhere, "k.t", handler, **options(read=read)).run()
                else:
                    await anext(aiter(AsyncChanges(nowhere, "k.t", **options(read=read))))

        with pytest.raises(TimeoutError):
            asyncio.run(main())


def test_iteration_raises_errors_of_the_consumer(
    connection: ConnectionConfig, keyspace: str
) -> None:
    """An async loop over changes raises the consumer's read errors."""

    async def loop() -> None:
        async for _ in AsyncChanges(connection, f"{keyspace}.nosuch", **options()):
            pass

    with pytest.raises(TableNotFoundError):
        asyncio.run(loop())


def test_as_many_handlers_run_in_the_loop_as_there_are_workers(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Handlers run in the event loop, at most one at a time per worker and per partition."""
    write(table, 60)
    numbers: list[int] = []
    under_way: Counter[int] = Counter()
    most = 0

    async def handler(change: Change) -> None:
        nonlocal most
        assert threading.current_thread() is threading.main_thread()
        under_way[change.key["p"]] += 1
        assert under_way[change.key["p"]] == 1
        most = max(most, under_way.total())
        await asyncio.sleep(0.001)
        under_way[change.key["p"]] -= 1
        numbers.append(change.key["c"])

    config = ConsumerConfig(workers=3, attempts=1)
    asyncio.run(AsyncCdcConsumer(connection, table, handler, **options(config=config)).run())
    assert sorted(numbers) == list(range(60))
    assert 1 < most <= 3


def test_a_handler_that_fails_is_treated_as_any_other(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """A coroutine handler that fails is retried, and then the consumer ends with an error."""
    write(table, 5)
    calls = 0

    async def handler(_: Change) -> None:
        nonlocal calls
        calls += 1
        raise LookupError("no such thing")

    config = ConsumerConfig(workers=1, attempts=2)
    with pytest.raises(HandlerError, match="no such thing"):
        asyncio.run(AsyncCdcConsumer(connection, table, handler, **options(config=config)).run())
    assert calls == 2


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda: None, r"^handler is 'a function that returns NoneType': give a coroutine fun"),
        (lambda: asyncio.sleep(0, asyncio.sleep(0)), "a function that returns a coroutine"),
    ],
)
def test_a_handler_that_is_not_awaited_is_called_once(
    connection: ConnectionConfig,
    table: str,
    write: Write,
    returned: Callable[[], Any],
    message: str,
) -> None:
    """A consumer stops if a handler's result cannot be awaited, because a retry could repeat work.

    No change is acknowledged.
    """
    write(table, 1)
    seen: list[Change] = []
    store = MemoryCheckpoints()

    def handle(change: Change) -> Any:
        seen.append(change)
        return returned()

    consumer = AsyncCdcConsumer(connection, table, lambda c: handle(c), **options(store))  # noqa: PLW0108 - a lambda is tested
    with pytest.raises(ConfigurationError, match=message):
        asyncio.run(consumer.run())
    assert len(seen) == 1


def test_cancelling_a_consumer_cancels_its_handlers(
    connection: ConnectionConfig, table: str, write: Write
) -> None:
    """Canceling a consumer cancels its handlers. The next run delivers their changes again.

    This holds even with `attempts=1` and `on_error="skip"`.
    """
    write(table, 20)
    store = MemoryCheckpoints()
    config = ConsumerConfig(workers=1, attempts=1, on_error="skip")
    handled: list[int] = []
    hanging = asyncio.Event()

    async def hang_at_the_tenth(change: Change) -> None:
        if len(handled) == 10:
            hanging.set()
            await asyncio.sleep(3600)
        handled.append(change.key["c"])

    async def main() -> None:
        settings = options(store, config=config)
        running = AsyncCdcConsumer(connection, table, hang_at_the_tenth, **settings)
        await cancelled(running.run(), hanging)

    asyncio.run(main())
    assert len(handled) == 10

    async def handler(change: Change) -> None:
        handled.append(change.key["c"])

    asyncio.run(AsyncCdcConsumer(connection, table, handler, **options(store, config=config)).run())
    assert sorted(handled) == list(range(20))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("scheduled", [True, False])
def test_handlers_that_begin_while_a_consumer_is_cancelled(
    connection: ConnectionConfig,
    table: str,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    *,
    scheduled: bool,
) -> None:
    """A handler called during a cancellation is canceled too, even if it is not scheduled yet."""
    write(table, 5)
    cancelled, begun = threading.Event(), threading.Event()
    schedule = asyncio.run_coroutine_threadsafe

    def slow(coroutine: Any, loop: asyncio.AbstractEventLoop) -> Any:
        call = schedule(coroutine, loop) if scheduled else None
        begun.set()
        cancelled.wait()
        return call or schedule(coroutine, loop)

    async def hang(_: Change) -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        consumer = AsyncCdcConsumer(
            connection, table, hang, **options(config=ConsumerConfig(workers=1))
        )
        task = asyncio.create_task(consumer.run())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        asyncio.get_running_loop().call_soon(cancelled.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", slow)
    asyncio.run(main())

"""Consumers for `asyncio`: a loop over changes, and handlers that are coroutine functions.

Reading and saving happen in threads, as in `CdcConsumer`; your code runs in the event loop. The
threads are the consumer's own: the event loop's default pool is small, and a consumer that waits in
it would keep other consumers, and the handlers' own calls, from running.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import TypeVar, cast

from cdc_reader._log import get_logger
from cdc_reader._time import EARLIEST, Clock, Moment
from cdc_reader.changes.change import Change
from cdc_reader.checkpoints.store import CheckpointStore
from cdc_reader.config import ConnectionConfig, ReadConfig, SnapshotMode
from cdc_reader.consumer.config import ConsumerConfig
from cdc_reader.consumer.consumer import CdcConsumer
from cdc_reader.consumer.events import OnEvent
from cdc_reader.consumer.handling import DeadLetter, NotAwaitable
from cdc_reader.consumer.runtime import ConsumerRuntime
from cdc_reader.consumer.subscription import Subscription
from cdc_reader.consumer.table_progress import Share
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CdcError, DataLossError
from cdc_reader.metrics import Recorder
from cdc_reader.reading.retry import Stop
from cdc_reader.streams.shard import Shard

log = get_logger(__name__)

T = TypeVar("T")

AsyncHandler = Callable[[Change], Awaitable[object]]
"""A coroutine function that handles a change; once it completes, the change is acknowledged."""


class AsyncChanges:
    """An asynchronous iterable of the changes to one or several tables.

        async for change in AsyncChanges(connection, "shop.orders", application="printer"):
            print(change)

    A change is acknowledged when the next one is requested; if the loop ends at a change, the next
    loop delivers that change again. Changes of one partition key are yielded in order. Leaving the
    loop, even by cancellation, saves the acknowledged progress and ends the threads. If the loop
    may end early, run it within ``async with contextlib.aclosing(aiter(changes))``; otherwise the
    threads may outlive the loop for a while. Each loop resumes where the previous loop ended.

    Takes the options of `CdcConsumer`, except for workers and attempts, and raises its errors.
    Before its first change, a loop waits while another consumer with the same application, table
    and shard runs. The loop ends with LeaseLostError if another consumer took over while this
    process was suspended.
    """

    def __init__(
        self,
        connection: ConnectionConfig | str,
        tables: str | TableName | Iterable[str | TableName],
        *,
        application: str,
        start: Moment = EARLIEST,
        snapshot: SnapshotMode | str = SnapshotMode.NONE,
        end: Moment | None = None,
        checkpoints: CheckpointStore | None = None,
        config: ConsumerConfig | None = None,
        read: ReadConfig | None = None,
        shard: str | Shard | None = None,
        on_event: OnEvent | None = None,
        clock: Clock | None = None,
        metrics: Recorder | None = None,
    ) -> None:
        self._subscription = Subscription(
            connection=connection,
            tables=tables,
            application=application,
            start=start,
            snapshot=snapshot,
            end=end,
            checkpoints=checkpoints,
            config=config,
            read=read,
            shard=shard,
            on_event=on_event,
            clock=clock,
            metrics=metrics,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._subscription}>"

    async def __aiter__(self) -> AsyncGenerator[Change, None]:
        while True:
            try:
                async with aclosing(self._run()) as changes:
                    async for change in changes:
                        yield change
            except DataLossError:
                if not self._subscription.takes_new_snapshots:
                    raise
            else:
                return

    async def _run(self) -> AsyncGenerator[Change, None]:
        inbox = _Inbox(asyncio.get_running_loop())
        runtime = ConsumerRuntime(self._subscription, 1, inbox.put, Stop(), tolerant=False)
        try:
            await _in_thread(runtime.start)
            ended = _in_thread(runtime.wait)
            ended.add_done_callback(lambda _: inbox.close())
            while (share := await inbox.get()) is not None:
                for change in share:
                    if not await self._permits(runtime, share):
                        break
                    yield change
                    await self._acknowledge(runtime, share)
        except BaseException as error:
            runtime.stop()
            try:
                await self._close(runtime)
            except CdcError as failure:
                if not isinstance(error, asyncio.CancelledError):
                    raise
                log.warning("failed_while_cancelled", error=str(failure))
            raise
        await self._close(runtime)

    async def _close(self, runtime: ConsumerRuntime) -> None:
        """Close the runtime even if the task is canceled, but then do not wait for a failing store.

        The runtime is closed in a thread rather than in a new task, which the end of the loop could
        cancel before its first step.
        """
        try:
            await asyncio.shield(_in_thread(runtime.close))
        except asyncio.CancelledError:
            runtime.stop()
            raise

    async def _permits(self, runtime: ConsumerRuntime, share: Share) -> bool:
        """Call `ConsumerRuntime.permits`, in a thread if it has to wait."""
        if share.progress.lease.is_sure:
            return not runtime.has_ended
        return await _in_thread(partial(runtime.permits, share))

    async def _acknowledge(self, runtime: ConsumerRuntime, share: Share) -> None:
        share.handled += 1
        if runtime.saves_each:  # saving may block
            await _in_thread(partial(runtime.record, share))
        elif share.handled == share.count:
            runtime.record(share)


class AsyncCdcConsumer:
    """A `CdcConsumer` whose handler is a coroutine function, run in the event loop.

    At most `workers` handlers run at a time. To stop the consumer on a signal, call
    ``loop.add_signal_handler(signal.SIGTERM, consumer.stop)``.

    If the handler returns something that cannot be awaited, as a plain function does, `run` raises
    ConfigurationError at the first change.
    """

    def __init__(
        self,
        connection: ConnectionConfig | str,
        tables: str | TableName | Iterable[str | TableName],
        handler: AsyncHandler,
        *,
        dead_letter: DeadLetter | None = None,
        application: str,
        start: Moment = EARLIEST,
        snapshot: SnapshotMode | str = SnapshotMode.NONE,
        end: Moment | None = None,
        checkpoints: CheckpointStore | None = None,
        config: ConsumerConfig | None = None,
        read: ReadConfig | None = None,
        shard: str | Shard | None = None,
        on_event: OnEvent | None = None,
        clock: Clock | None = None,
        metrics: Recorder | None = None,
    ) -> None:
        self._handler = handler
        self._loop: asyncio.AbstractEventLoop  # the loop of `run`
        self._under_way: set[asyncio.Task[object]] = set()
        self._is_cancelled = False
        self._consumer = CdcConsumer(
            connection,
            tables,
            self._call,
            dead_letter=dead_letter,
            application=application,
            start=start,
            snapshot=snapshot,
            end=end,
            checkpoints=checkpoints,
            config=config,
            read=read,
            shard=shard,
            on_event=on_event,
            clock=clock,
            metrics=metrics,
        )

    def __repr__(self) -> str:
        return repr(self._consumer).replace(CdcConsumer.__name__, type(self).__name__, 1)

    async def run(self) -> None:
        """Follow the tables until `stop`, the end position, or a failure; see `CdcConsumer.run`.

        Canceling `run` cancels the running handlers and saves the acknowledged progress. The next
        run delivers the changes of canceled handlers again.
        """
        self._loop, self._is_cancelled = asyncio.get_running_loop(), False
        running = _in_thread(self._consumer.run)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            self._cancel()
            await asyncio.wait([running])
            raise

    def stop(self) -> None:
        """Make `run` return once the running handlers have returned; see `CdcConsumer.stop`."""
        self._consumer.stop()

    def _cancel(self) -> None:
        """Cancel the running handlers, and the handlers that workers have not started yet.

        Handlers are tracked and canceled only in the loop's thread, because worker threads see
        the state of handlers too late.
        """
        self._is_cancelled = True
        for task in self._under_way:
            task.cancel()

    def _call(self, change: Change) -> object:
        """Run the handler in the loop and wait for its result; called in a worker's thread."""
        return asyncio.run_coroutine_threadsafe(self._coroutine(change), self._loop).result()

    async def _coroutine(self, change: Change) -> object:
        if self._is_cancelled:
            raise asyncio.CancelledError
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._under_way.add(task)
        try:
            returned: object = self._handler(change)
            return await returned if isinstance(returned, Awaitable) else NotAwaitable(returned)
        finally:
            self._under_way.discard(task)


def _in_thread(action: Callable[[], T]) -> asyncio.Future[T]:
    """Run `action` in a new thread, and return its result to the running event loop.

    The interpreter waits for the thread at exit, so closing a consumer is never cut short.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    with_one_thread = ThreadPoolExecutor(1, "cdc-async")
    try:
        return loop.run_in_executor(with_one_thread, context.run, action)
    finally:
        with_one_thread.shutdown(wait=False)


class _Inbox:
    """A queue that threads fill and one coroutine reads; `get` returns None after `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[Share] = deque()
        self._more = asyncio.Event()
        self._is_closed = False

    def put(self, _worker: int, item: Share) -> None:
        """Add an item, from any thread. The loop is woken only if it may be waiting."""
        self._items.append(item)
        if not self._more.is_set():
            self._loop.call_soon_threadsafe(self._more.set)

    def close(self) -> None:
        """Make `get` return None, even if items are still queued."""
        self._is_closed = True
        self._more.set()

    async def get(self) -> Share | None:
        """Wait for the next item and return it; return None after `close`."""
        while not self._is_closed:
            if self._items:
                return self._items.popleft()
            self._more.clear()
            if not self._items:
                await self._more.wait()
        return None

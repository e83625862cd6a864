"""The faces of a consumer for `asyncio`: a loop over changes, and handlers that are coroutines.

Reading and saving happen in threads, as in `CdcConsumer`; what is yours runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from threading import Event
from typing import Unpack, cast

from cdc_reader.change import Change
from cdc_reader.config import ConnectionConfig
from cdc_reader.consumer.consumer import CdcConsumer
from cdc_reader.consumer.following import Following, Handed
from cdc_reader.consumer.handling import DeadLetter
from cdc_reader.consumer.subscription import Options, Subscription
from cdc_reader.errors import CdcError
from cdc_reader.ids import TableName
from cdc_reader.logs import get_logger

log = get_logger(__name__)

AsyncHandler = Callable[[Change], Awaitable[object]]


class AsyncChanges:
    """The changes of some tables, one after the other.

        async for change in AsyncChanges(connection, "shop.orders", application="printer"):
            print(change)

    A change is acknowledged when the next one is asked for; one at which the loop is left
    comes again. Order is kept by partition key. Leaving the loop, also by cancellation, saves
    what is acknowledged and ends the threads; a loop that is left early does so at once within
    ``async with contextlib.aclosing(aiter(changes))``. Each loop goes on where the last one
    ended, if `checkpoints` are given. Options and errors are those of `CdcConsumer`; there are
    no workers, and no attempts.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        tables: str | Iterable[str | TableName],
        **options: Unpack[Options],
    ) -> None:
        self._subscription = Subscription(connection=connection, tables=tables, **options)

    async def __aiter__(self) -> AsyncGenerator[Change, None]:
        inbox = _Inbox(asyncio.get_running_loop())
        following = Following(self._subscription, inbox.put, Event())
        try:
            await asyncio.to_thread(following.start)
            ended = asyncio.ensure_future(asyncio.to_thread(following.wait))
            ended.add_done_callback(lambda _: inbox.close())
            while (handed := await inbox.get()) is not None:
                yield handed.change
                await self._acknowledge(following, handed)
        except asyncio.CancelledError:
            try:
                await self._close(following)
            except CdcError as error:
                log.warning("failed_while_cancelled", error=str(error))
            raise
        except BaseException:
            await self._close(following)
            raise
        await self._close(following)

    async def _close(self, following: Following) -> None:
        """Whatever is cancelled meanwhile. A task for it could be so before its first step, when
        the loop ends; what a thread was given is done.
        """
        following.stop()
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(None, following.close))

    async def _acknowledge(self, following: Following, handed: Handed) -> None:
        if self._subscription.config.checkpoint_interval:
            following.acknowledge(handed)
        else:  # it is saved at once, which takes its time
            await asyncio.to_thread(following.acknowledge, handed)


class AsyncCdcConsumer:
    """A `CdcConsumer` whose handler is a coroutine function, run in the event loop.

    As many handlers are under way at a time as there are workers. For a signal to stop it:
    ``loop.add_signal_handler(signal.SIGTERM, consumer.stop)``.
    """

    def __init__(
        self,
        connection: ConnectionConfig,
        tables: str | Iterable[str | TableName],
        handler: AsyncHandler,
        *,
        dead_letter: DeadLetter | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._handler = handler
        self._loop: asyncio.AbstractEventLoop  # that of `run`
        self._under_way: set[asyncio.Task[object]] = set()
        self._is_cancelled = False
        self._consumer = CdcConsumer(
            connection, tables, self._call, dead_letter=dead_letter, **options
        )

    async def run(self) -> None:
        """See `CdcConsumer.run`. Cancelling it cancels the handlers under way, whose changes
        come again, and saves what is acknowledged.
        """
        self._loop, self._is_cancelled = asyncio.get_running_loop(), False
        running = asyncio.ensure_future(asyncio.to_thread(self._consumer.run))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            self._cancel()
            await asyncio.wait([running])
            raise

    def stop(self) -> None:
        """See `CdcConsumer.stop`."""
        self._consumer.stop()

    def _cancel(self) -> None:
        """Cancel the handlers under way, and those that workers have yet to begin.

        Handlers are known and cancelled in the loop alone: what a worker knows of one comes late.
        """
        self._is_cancelled = True
        for task in self._under_way:
            task.cancel()

    def _call(self, change: Change) -> None:
        """In a worker's thread: have the loop run the handler, and wait for it."""
        asyncio.run_coroutine_threadsafe(self._coroutine(change), self._loop).result()

    async def _coroutine(self, change: Change) -> object:
        if self._is_cancelled:
            raise asyncio.CancelledError
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._under_way.add(task)
        try:
            return await self._handler(change)
        finally:
            self._under_way.discard(task)


class _Inbox:
    """What threads have put in, for one coroutine to get; None once it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: deque[Handed] = deque()
        self._more = asyncio.Event()
        self._is_closed = False

    def put(self, items: list[Handed]) -> None:
        """From any thread. The loop is woken only if it may wait, which costs much more."""
        self._items.extend(items)
        if not self._more.is_set():
            self._loop.call_soon_threadsafe(self._more.set)

    def close(self) -> None:
        """Hand out nothing more, whatever there is."""
        self._is_closed = True
        self._more.set()

    async def get(self) -> Handed | None:
        """The next item."""
        while not self._is_closed:
            if self._items:
                return self._items.popleft()
            self._more.clear()
            if not self._items:
                await self._more.wait()
        return None

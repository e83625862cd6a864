"""Calls the handler in threads, retries failed calls, and disposes of changes that keep failing."""

from __future__ import annotations

import inspect
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import tenacity
from attrs import frozen

from cdc_reader._log import get_logger
from cdc_reader.changes.change import Change, reasons_of
from cdc_reader.consumer.config import ConsumerConfig, OnError
from cdc_reader.consumer.tracebacks import of_user
from cdc_reader.errors import (
    CdcError,
    ColumnDecodeError,
    ConfigurationError,
    HandlerError,
    in_one_line,
)
from cdc_reader.metrics import HANDLER_ERRORS, HANDLER_RETRIES, Recorder
from cdc_reader.reading.retry import GRACE, Interruption, Stop, failed_once, interrupted, retrying

log = get_logger(__name__)

T = TypeVar("T")

Handler = Callable[[Change], object]
"""Handles a change; when it returns, the change is acknowledged."""
DeadLetter = Callable[[Change, Exception], object]
"""Receives a change that the handler failed on, and the handler's last error.

It also receives changes with values that cannot be decoded, and an error that says which: see
`Change.undecoded`.
"""

_PAUSES = 0.5, 60.0
"""Limits of the first and the longest pause between attempts, in seconds."""


@frozen
class Together:
    """A handler that takes at most `most` changes at a time, in order.

    If the handler fails, it is called with each of these changes alone, so that attempts, dead
    letters and skips apply to single changes. Handling a change twice must therefore be safe.
    """

    handle: Callable[[Sequence[Change]], object]
    most: int

    def __call__(self, change: Change) -> object:
        return self.handle([change])

    def interrupted_by(self, interruption: Interruption) -> Together:
        """Return the handler with waits that `interruption` ends."""
        return Together(interrupted(self.handle, interruption), self.most)


@frozen
class TakesUndecoded:
    """A handler that also takes changes with values that cannot be decoded."""

    handle: Callable[[Change], object]

    def __call__(self, change: Change) -> object:
        return self.handle(change)


class Workers(Generic[T]):
    """`count` threads that call `work`, which must not raise, until `stopping` is set.

    The first is the thread that calls `run`. The others are daemons, so the interpreter can exit
    while a handler hangs. Each thread has an unbounded queue, so the caller must limit the number
    of items.
    """

    def __init__(self, count: int, work: Callable[[T], None], stopping: Stop) -> None:
        self._work = work
        self._stopping = stopping
        self._queues: list[queue.SimpleQueue[T | None]] = [
            queue.SimpleQueue() for _ in range(count)
        ]
        self._threads = [
            threading.Thread(
                target=self._run, args=(items,), name=f"cdc-worker-{number}", daemon=True
            )
            for number, items in enumerate(self._queues[1:], 1)
        ]

    def run(self) -> None:
        """Process items, until `stopping` is set; queued items are dropped."""
        for thread in self._threads:
            thread.start()
        with self._stopping.calling(self._wake):
            self._run(self._queues[0])

    def put(self, number: int, item: T) -> None:
        """Queue an item for a thread, which processes it after earlier ones."""
        self._queues[number].put(item)

    def join(self) -> None:
        """Wait until each thread has finished its current item, once `stopping` is set."""
        self._wake()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _wake(self) -> None:
        for items in self._queues:
            items.put(None)

    def _run(self, items: queue.SimpleQueue[T | None]) -> None:
        while (item := items.get()) is not None and not self._stopping.is_set():
            self._work(item)


class Handling:
    """Handles changes with retries; thread-safe.

    Once `stopping` is set, a failed attempt is repeated at most once. Waits of the handler and of
    `dead_letter` end after `GRACE`, if they have a method `interrupted_by`; see `interrupted`.
    """

    def __init__(
        self,
        handler: Handler,
        dead_letter: DeadLetter | None,
        config: ConsumerConfig,
        recorder: Recorder,
        stopping: Stop,
    ) -> None:
        interruption = Interruption(stopping, GRACE)
        self.handler = interrupted(handler, interruption)
        self._dead_letter = interrupted(dead_letter, interruption)
        self._stopping = stopping
        self._config = config
        self._recorder = recorder

    def handle_together(self, together: Together, changes: Sequence[Change]) -> bool:
        """Handle the changes with one call; return False if each must be handled alone."""
        try:
            returned = together.handle(changes)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            log.warning("handled_singly", changes=len(changes), error=repr(error))
            return False
        check_done("handler", returned)
        return True

    def handle(self, change: Change) -> bool:
        """Handle the change; return False if it failed while the consumer was stopping.

        Raises HandlerError if the change must stop the consumer.
        """
        try:
            returned = self.handler(change)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            failure = error
        else:
            if returned is not None:
                check_done("handler", returned)
            return True
        return self._try_again(change, failure)  # not in the `except`: errors would be chained

    def handle_if_decoded(self, change: Change) -> bool:
        """Handle the change as `handle` does, unless some of its values could not be decoded.

        Such a change is given up at once. Raises ColumnDecodeError if it must stop the consumer.
        """
        if isinstance(self.handler, TakesUndecoded) or not change.undecoded:
            return self.handle(change)
        reasons = "; ".join(reasons_of(change))
        error = ColumnDecodeError(
            f"{_text(change)} cannot be decoded: {reasons}; in a consumer, give "
            "dead_letter, which receives such changes, or on_error 'skip'"
        )
        return self._give_up(change, error, error)

    def _try_again(self, change: Change, first: Exception) -> bool:
        try:
            returned = self._attempts(change)(failed_once(partial(self.handler, change), first))
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            last = error
        else:
            check_done("handler", returned)
            return True
        is_told = self._config.attempts > 1 and repr(last) == repr(first) and _warnings_show()
        last = last.with_traceback(None) if is_told else of_user(last)
        if self._stopping.is_set():
            log.warning("handler_given_up_to_stop", **_failure(change, last))
            return False
        fatal = HandlerError(
            f"the handler failed {self._config.attempts} times on {_text(change)}: {last!r}; in a "
            "consumer, give dead_letter, which receives such changes, or on_error 'skip'"
        )
        return self._give_up(change, last, fatal)

    def _attempts(self, change: Change) -> tenacity.Retrying:
        return retrying(
            tenacity.stop_after_attempt(self._config.attempts),
            *_PAUSES,
            self._stopping,
            before_sleep=partial(self._report_retry, change),
            reraise=True,
        )

    def _report_retry(self, change: Change, state: tenacity.RetryCallState) -> None:
        self._recorder.add(HANDLER_RETRIES, change.table)
        error = state.outcome.exception() if state.outcome else None
        failure = _failure(change, error)
        if state.attempt_number > 1:  # the first failure has shown where it happened
            failure.pop("exc_info", None)
        log.warning("handler_retry", **failure, attempt=state.attempt_number)

    def _give_up(self, change: Change, error: Exception, fatal: CdcError) -> bool:
        """Dispose of the change; raise `fatal` if neither `dead_letter` nor `on_error` does."""
        self._recorder.add(HANDLER_ERRORS, change.table)
        if self._dead_letter is not None:
            return self._bury(self._dead_letter, change, error)
        if self._config.on_error is not OnError.SKIP:
            raise fatal from (None if fatal is error else error)
        log.error("change_skipped", **_failure(change, error))
        return True

    def _bury(self, dead_letter: DeadLetter, change: Change, error: Exception) -> bool:
        log.warning("change_dead_lettered", **_failure(change, error))
        try:
            returned = dead_letter(change, error)
        except Exception as its_error:  # noqa: BLE001 - whatever it raises
            if self._stopping.is_set():
                log.warning("dead_letter_given_up_to_stop", **_failure(change, its_error))
                return False
            raise HandlerError(
                f"dead_letter failed on {_text(change)}: {its_error!r}"
            ) from of_user(its_error)
        check_done("dead_letter", returned)
        return True


def check_functions(handler: object, dead_letter: object) -> None:
    """Raise ConfigurationError for coroutine functions, and for a handler that is no function.

    A coroutine that nobody awaits would count as a handled change. Whether a plain function returns
    a coroutine or a generator is known only once it is called: see `check_done`.
    """
    for option, function in (("handler", handler), ("dead_letter", dead_letter)):
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - whether calling it awaits
        ):
            raise ConfigurationError(
                option,
                function,
                "give a plain function, or use AsyncCdcConsumer for a coroutine function",
            )
    if not callable(handler):
        raise ConfigurationError("handler", handler, "give a function that takes a change")


@frozen
class NotAwaitable:
    """What a handler of `AsyncCdcConsumer` returned instead of a coroutine."""

    returned: object


def check_done(option: str, returned: object) -> None:
    """Raise ConfigurationError if the returned value shows that a function has not done its work.

    This is the case if a plain function returns a coroutine or a generator, or if the handler of
    an `AsyncCdcConsumer` returns something that cannot be awaited.
    """
    if returned is None:
        return
    if isinstance(returned, NotAwaitable):
        kind = type(returned.returned).__name__
        raise ConfigurationError(
            option,
            f"a function that returns {kind}",
            "give a coroutine function (async def), or use CdcConsumer for a plain function",
        )
    if inspect.iscoroutine(returned):
        returned.close()
        kind, remedy = "a coroutine", "AsyncCdcConsumer awaits its handler"
    elif inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        kind, remedy = "a generator", "leave out `yield`"
    else:
        return
    raise ConfigurationError(
        option,
        f"a function that returns {kind}",
        f"give a function that has done its work when it returns; {remedy}",
    )


def _facts(change: Change) -> dict[str, str]:
    """Return fields that identify the change in log messages, without values outside its key."""
    key = (f"{name!r}: {in_one_line(value)}" for name, value in change.key.items())
    return {
        "table": str(change.table),
        "key": f"{{{', '.join(key)}}}",
        "written_at": change.written_at.isoformat(),
    }


def _failure(change: Change, error: BaseException | None) -> dict[str, Any]:
    """Return fields that describe the change and the error, with the user's part of its traceback.

    An error without a traceback was shown before.
    """
    fields = {**_facts(change), "error": repr(error)}
    if error is None or error.__traceback__ is None:
        return fields
    return {**fields, "exc_info": of_user(error)}


def _warnings_show() -> bool:
    return logging.getLogger(__name__).isEnabledFor(logging.WARNING)


def _text(change: Change) -> str:
    facts = _facts(change)
    return f"{change.operation} of {facts['table']} {facts['key']} at {facts['written_at']}"

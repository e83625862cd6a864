"""The shared retry policy, and stops, which interrupt retries and waits.

Functions that wait or retry take an `Interruption` or a `Stop`. Objects whose methods wait have a
method `interrupted_by` instead, which returns the same object with waits that can be interrupted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from copy import copy
from datetime import timedelta
from functools import partial
from itertools import chain
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, Self, TypeAlias, TypeVar

from attrs import frozen

from cdc_reader._log import get_logger
from cdc_reader._time import Clock
from cdc_reader.errors import RetriesExhaustedError, StoppedError, TransientError

if TYPE_CHECKING:
    import tenacity  # imported at the first retry: many programs need none

log = get_logger(__name__)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Subscribe = Callable[[Callable[..., None]], object]
"""Registers a function to be called, with any arguments, when the response arrives."""
StopWhen: TypeAlias = "Callable[[tenacity.RetryCallState], bool]"

GRACE = 0.4
"""Seconds that a save, or a handler's own request, may still take after a stop.

Two of these periods in a row still end within a second."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
"""Limits of the first and the longest pause, in seconds.

Each pause is random, up to a limit that doubles, so that clients spread out."""


class Stop(threading.Event):
    """An event that also wakes threads, and ends iterators. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        self._actions: set[Callable[[], object]] = set()
        # A generator may exit `calling` when it is garbage collected: in any thread, at any time.
        self._registering = threading.RLock()

    def set(self) -> None:
        """Set this event, and call the actions registered with `calling`."""
        super().set()
        with self._registering:
            for action in [*self._actions]:
                action()

    def check(self) -> None:
        """Raise StoppedError if this event is set."""
        if self.is_set():
            raise StoppedError("stopped before everything was read")

    @contextmanager
    def calling(self, action: Callable[[], object]) -> Iterator[None]:
        """Within this context, call `action` once this stop is set, or now if it is already set."""
        with self._registering:
            self._actions.add(action)
            if self.is_set():
                action()
        try:
            yield
        finally:
            with self._registering:
                self._actions.discard(action)


def _nothing() -> None:
    pass


@frozen
class Interruption:
    """Ends waits and retries, and observes retries.

    Once `stop` is set, a wait has `grace` seconds left, and a failed attempt is not repeated.
    `on_retry` is called before each retry.
    """

    stop: Stop
    grace: float = 0.0
    on_retry: Callable[[], object] = _nothing

    def check(self) -> None:
        """Raise StoppedError if `stop` is set, unless work has a grace period to be finished in."""
        if not self.grace:
            self.stop.check()


NEVER = Interruption(Stop())
"""Interrupts nothing, because nobody sets its stop."""


def interrupted(waiting: T, interruption: Interruption) -> T:
    """Return `waiting` with waits that `interruption` ends, if it has a method `interrupted_by`.

    Otherwise, returns `waiting` itself. A method is bound to its object with interruptible waits.
    """
    if isinstance(waiting, MethodType):
        its_object = interrupted(waiting.__self__, interruption)
        return MethodType(waiting.__func__, its_object)  # type: ignore[return-value]
    bind: Callable[[Interruption], T] | None = getattr(waiting, "interrupted_by", None)
    return waiting if bind is None else bind(interruption)


class Viewable:
    """An object whose views share its `__dict__`, and have their own attributes in `__slots__`.

    What an object learns through one view, all of its views know.
    """

    __slots__ = ("__dict__", "__weakref__", "_first")

    def _view(self, **own: object) -> Self:
        """Return a view of this object with the attributes `own`, which must be in `__slots__`."""
        view = copy(self)  # copies the attributes in `__slots__`
        view.__dict__ = self.__dict__
        # The first object may be registered by a weak reference: it lives as long as its views.
        own.setdefault("_first", getattr(self, "_first", self))
        for name, value in own.items():
            setattr(view, name, value)
        return view


class Interruptible(Viewable):
    """An object all of whose waits are in one attribute, which is in `__slots__`.

    `_waiting` is the name of the attribute.
    """

    __slots__ = ()
    _waiting: ClassVar[str]

    def interrupted_by(self, interruption: Interruption) -> Self:
        """Return a view of this object whose waits `interruption` ends."""
        name = self._waiting
        return self._view(**{name: interrupted(getattr(self, name), interruption)})


class Ending(Protocol[T_co]):
    """An iterator that yields nothing more once any thread has called `end`."""

    def __iter__(self) -> Iterator[T_co]: ...

    def end(self) -> object: ...


def each_until(stop: Stop, parts: Iterable[Ending[T]]) -> Iterator[T]:
    """Yield the items of all parts, and raise StoppedError once `stop` is set.

    The stop ends the current part, so `stop` need not be checked before each item.
    """
    return chain.from_iterable(_until(stop, parts))


def _until(stop: Stop, parts: Iterable[Ending[T]]) -> Iterator[Ending[T]]:
    for part in parts:
        with stop.calling(part.end):
            yield part
        stop.check()


def sleep(clock: Clock, micros: int, stop: Stop) -> None:
    """Sleep for `micros` µs by `clock`; raise StoppedError as soon as `stop` is set."""
    clock.sleep(micros, stop)
    stop.check()


def wait_for(
    subscribe: Subscribe, interruption: Interruption, timeout: float | None = None
) -> bool:
    """Wait at most `timeout` seconds for a response, and return whether it arrived.

    Raises StoppedError if a stop is set and the grace period passes first.
    """
    stop = interruption.stop
    answered, woken = threading.Event(), threading.Event()

    def answer(*_: object) -> None:
        answered.set()
        woken.set()

    subscribe(answer)
    with stop.calling(woken.set):
        woken.wait(timeout)
    if answered.is_set() or (stop.is_set() and answered.wait(interruption.grace)):
        return True
    if stop.is_set():
        raise StoppedError("stopped while waiting for an answer from the cluster")
    return False


def in_background(action: Callable[[], T], name: str) -> Future[T]:
    """Run `action` in a daemon thread, so that the process can exit without waiting for it."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:  # noqa: BLE001 - raised where the outcome is requested
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


def interruptibly(action: Callable[[], T], name: str, interruption: Interruption) -> T:
    """Return the result of `action`, run in a thread called `name` if a stop may interrupt it.

    Raises StoppedError after a stop and its grace period; `action` then keeps running, and its
    result is dropped.
    """
    if interruption.stop is NEVER.stop:
        return action()
    outcome = in_background(action, name)
    wait_for(outcome.add_done_callback, interruption)
    return outcome.result()


def retrying(
    until: StopWhen, first_pause: float, longest_pause: float, stop: Stop, **settings: Any
) -> tenacity.Retrying:
    """Return the retry policy: random pauses, in seconds, up to a limit that doubles.

    Retrying ends when `until` is true. `stop` ends a pause immediately, and the attempt after that
    pause is the last. `settings` are passed to tenacity.
    """
    import tenacity

    return tenacity.Retrying(
        stop=lambda state: until(state) or stop.is_set(),
        **{
            "wait": tenacity.wait_random_exponential(first_pause, longest_pause),
            "sleep": tenacity.sleep_using_event(stop),
            **settings,
        },
    )


def retry(
    action: Callable[[], T],
    deadline: timedelta,
    interruption: Interruption,
    sleep: Callable[[float], None] | None = None,
) -> T:
    """Call `action` until it raises no TransientError, and return its result.

    `deadline` limits the time from the start of the first call to the start of the last. Raises
    RetriesExhaustedError, or StoppedError if the stop is set, with the last TransientError as the
    cause. Other errors are raised immediately. `sleep` replaces the pauses.
    """
    began = time.monotonic()
    try:
        return action()  # the usual case, without tenacity's bookkeeping of 15 µs per call
    except TransientError as error:
        again = failed_once(action, error)
    from tenacity import retry_if_exception_type

    left = deadline - timedelta(seconds=time.monotonic() - began)
    attempts = retrying(
        _before(left),
        _FIRST_PAUSE,
        _LONGEST_PAUSE,
        interruption.stop,
        retry=retry_if_exception_type(TransientError),
        before_sleep=partial(_report_retry, interruption.on_retry),
        retry_error_callback=partial(_give_up, interruption.stop),
        **({"sleep": sleep} if sleep else {}),
    )
    return attempts(again)


def failed_once(action: Callable[[], T], error: Exception) -> Callable[[], T]:
    """Wrap `action`, so that its first call raises `error`, which an earlier call raised."""
    known = [error]

    def attempt() -> T:
        if known:
            raise known.pop()
        return action()

    return attempt


def _before(deadline: timedelta) -> StopWhen:
    """Return a condition that is true if the next attempt would start after the deadline.

    The elapsed time is the real time, or the sum of the pauses if that is larger, because a `sleep`
    that advances a test's clock takes no real time.
    """
    limit = deadline.total_seconds()

    def stop(state: tenacity.RetryCallState) -> bool:
        passed = max(state.seconds_since_start or 0.0, state.idle_for)
        return passed + state.upcoming_sleep >= limit

    return stop


def _report_retry(on_retry: Callable[[], object], state: tenacity.RetryCallState) -> None:
    log.warning("retry", attempt=state.attempt_number, error=str(_error(state)))
    on_retry()


def _give_up(stop: Stop, state: tenacity.RetryCallState) -> NoReturn:
    error, attempts = _error(state), f"after {state.attempt_number} attempts"
    if stop.is_set():
        raise StoppedError(f"stopped {attempts}: {error}") from error
    raise RetriesExhaustedError(f"gave up {attempts}: {error}") from error


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None

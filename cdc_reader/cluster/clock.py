"""The cluster's clock, used for every decision that depends on write times.

Servers decide by their own clocks when rows expire and when generations begin. Writers' clocks are
kept close to the servers' clocks. The clock of the reader's machine may be wrong, so it is used
only while it agrees with the cluster's clock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Self
from uuid import UUID
from weakref import WeakSet

from attrs import evolve, frozen

from cdc_reader._log import get_logger
from cdc_reader._time import Clock, Micros, SteadyClock, SystemClock
from cdc_reader.cluster.queries import Asking, Queries, Query
from cdc_reader.cql import timeuuid
from cdc_reader.decoding import decode
from cdc_reader.errors import CdcError
from cdc_reader.reading.retry import sleep

log = get_logger(__name__)

_NOW = Query("SELECT now() FROM system.local", consistency="ONE", doing="reading a node's clock")
TOLERANCE = 500_000
"""The machine's clock is used if it differs from the cluster's clock by at most this many µs."""
_PRECISE = 250_000
"""The largest error, in µs, of a precise measurement: half the time that the response took."""
_INTERVAL, _SOON = 300_000_000, 10_000_000
"""µs until the next measurement: after a precise one, and after an imprecise or failed one."""
_PAUSE = 100_000
"""µs between queries; meanwhile a driver that has just connected opens its other connections."""
_NODES = 3
"""The maximum number of nodes to query. The driver sends the queries to the nodes in turn."""


@frozen
class _Measured:
    """A node's clock, relative to the steady clock. All values are in µs."""

    offset: int
    """The node's time minus the steady clock's; the error is at most `error` either way."""
    error: int
    ahead: int
    """The machine's time minus the node's."""
    until: Micros
    """When to measure again, by the steady clock."""

    @property
    def is_precise(self) -> bool:
        return self.error <= _PRECISE

    @property
    def agrees(self) -> bool:
        return self.allows(self.ahead)

    def allows(self, ahead: int) -> bool:
        """Return True if a clock that is `ahead` µs ahead of the node's clock may be used."""
        return abs(ahead) <= TOLERANCE + self.error


_clocks: WeakSet[ClusterClock] = WeakSet()


def _renew_locks() -> None:
    for clock in [*_clocks]:
        clock.renew_lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew_locks)


class ClusterClock(Asking):
    """The cluster's clock, which is the machine's clock while the two agree. Thread-safe.

    The first `now` queries the time of a node, and later calls repeat this every few minutes. If a
    node's clock differs from the machine's by more than `TOLERANCE`, other nodes are queried too.
    The smallest difference counts, so that one wrong node does not override a correct clock.
    Between measurements a steady clock is used, so changing the machine's clock does no harm.

    Logs one warning if the machine's clock is ahead, and one if it is behind. A clock passed as
    `own` replaces both the machine's clock and the steady clock.
    """

    def __init__(self, queries: Queries, own: Clock | None = None) -> None:
        is_given = own is not None and not isinstance(own, SystemClock)
        self._queries = queries
        self._own: Clock = own if own is not None else SystemClock()
        self._steady: Clock = self._own if is_given else SteadyClock()
        self._measured: _Measured | None = None
        self.renew_lock()
        _clocks.add(self)
        self._told: set[str] = set()

    def renew_lock(self) -> None:
        """Replace the lock, which another thread may have held when this process was forked."""
        self._measuring = threading.Lock()

    @classmethod
    def of(cls, queries: Queries, clock: Clock | None) -> Self:
        """Return `clock` if it is already a `ClusterClock`, else a new one that is based on it."""
        return clock if isinstance(clock, cls) else cls(queries, clock)

    def now(self) -> Micros:
        """Return the cluster's time, in µs since 1970; queries a node if a measurement is due.

        The first measurement is retried, and raises errors of `cdc_reader.errors`. If a later
        measurement fails, the previous one is used.
        """
        if self._measured is None:
            with self._measuring:
                if self._measured is None:
                    self._measured = self._measure(self._queries.retry)
        elif self._steady.now() >= self._measured.until and self._measuring.acquire(blocking=False):
            try:
                self._measured = self._measured_again(self._measured)
            finally:
                self._measuring.release()
        return self.estimate()

    def estimate(self) -> Micros:
        """Return the cluster's time as `now` does, but without a query."""
        own = self._own.now()
        return own + self._correction(own)

    def correction(self) -> int:
        """Return the cluster's time minus the machine's, in µs; 0 while they agree."""
        self.now()
        return self._correction(self._own.now())

    def sleep(self, micros: int, wake: threading.Event) -> None:
        """Return after `micros` µs, or as soon as `wake` is set."""
        self._own.sleep(micros, wake)

    def _correction(self, own: Micros) -> int:
        if (measured := self._measured) is None:
            return 0
        ahead = own - self._steady.now() - measured.offset
        return 0 if measured.allows(ahead) else -ahead

    def _measure(self, attempt: Callable[[Callable[[], _Measured]], _Measured]) -> _Measured:
        """Query one node, or several if the first disagrees or is slow; return the best result."""
        found: list[_Measured] = []
        for number in range(_NODES):
            if number:
                sleep(self._own, _PAUSE, self._queries.interruption.stop)
            found.append(attempt(self._ask))
            if found[-1].is_precise and found[-1].agrees:
                break
        precise = [each for each in found if each.is_precise]
        best = min(precise or found, key=lambda each: abs(each.ahead) if precise else each.error)
        self._tell(best)
        return best

    def _measured_again(self, last: _Measured) -> _Measured:
        try:
            return self._measure(lambda ask: ask())
        except CdcError:
            return evolve(last, until=self._steady.now() + _SOON)

    def _ask(self) -> _Measured:
        """Query the time of a node. Time spent on connecting or throttling is not measured."""
        answer = self._queries.request(_NOW)(None)
        sent = self._steady.now()
        text = decode(answer()).column(0)[0].as_py()
        received, own = self._steady.now(), self._own.now()
        offset = timeuuid.micros(UUID(text).bytes) - (sent + received) // 2
        error = (received - sent) // 2
        until = received + (_INTERVAL if error <= _PRECISE else _SOON)
        return _Measured(offset, error, own - received - offset, until)

    def _tell(self, measured: _Measured) -> None:
        """Warn if the machine's clock is wrong: once if it is ahead, and once if it is behind."""
        event = "clock_ahead" if measured.ahead > 0 else "clock_behind"
        if not measured.agrees and event not in self._told:
            self._told.add(event)
            log.warning(
                event,
                hosts=self._queries.hosts,
                seconds=round(abs(measured.ahead) / 1_000_000, 1),
                remedy="set this machine's clock; until then the cluster's is used",
            )

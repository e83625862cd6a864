"""The faults in force, and how often each has struck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

from cdc_reader.testing.embedded.faults.fault import Fault, Statement, Strike


@define(eq=False)
class _Armed:
    """A fault in force: how many statements it could have befallen, how many it did."""

    fault: Fault
    matched: int = 0
    struck: int = 0

    def strikes(self, statement: Statement) -> bool:
        fault = self.fault
        if self.struck == fault.times or not fault.befalls(statement):
            return False
        self.matched += 1
        if self.matched <= fault.after:
            return False
        self.struck += 1
        return True


class FaultPlan:
    """Which statements fail; from any thread. Of several faults that fit the first one strikes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[_Armed] = []

    def add(self, *faults: Fault) -> None:
        """Have these strike from now on."""
        with self._lock:
            self._armed += map(_Armed, faults)

    def remove(self, *faults: Fault) -> None:
        """Have these strike no more; how often they did is forgotten."""
        with self._lock:
            self._armed = [armed for armed in self._armed if armed.fault not in faults]

    def clear(self) -> None:
        """Have nothing strike any more."""
        with self._lock:
            self._armed.clear()

    @contextmanager
    def during(self, *faults: Fault) -> Iterator[None]:
        """Have these strike as long as the context lasts."""
        self.add(*faults)
        try:
            yield
        finally:
            self.remove(*faults)

    def struck(self, fault: Fault) -> int:
        """How often a fault in force has struck, one that has run out included."""
        with self._lock:
            return sum(armed.struck for armed in self._armed if armed.fault == fault)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._armed)

    def strike(self, statement: Statement) -> Strike | None:
        """What befalls this statement, if anything does: with it a fault is used up by one."""
        with self._lock:
            for armed in self._armed:
                if armed.strikes(statement):
                    return Strike(armed.fault, statement)
        return None

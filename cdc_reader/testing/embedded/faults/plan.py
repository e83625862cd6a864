"""The active faults, and the number of statements that each has affected."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

from cdc_reader.testing.embedded.faults.fault import Fault, Statement, Strike


@define(eq=False)
class _Armed:
    """An active fault, with the numbers of statements that it matched and affected."""

    fault: Fault
    matched: int = 0
    struck: int = 0

    def strikes(self, statement: Statement) -> bool:
        fault = self.fault
        if self.struck == fault.times or not statement.matches(fault):
            return False
        self.matched += 1
        if self.matched <= fault.after:
            return False
        self.struck += 1
        return True


class FaultPlan:
    """A server's active faults; each statement is affected by at most one of them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[_Armed] = []

    def add(self, *faults: Fault) -> None:
        """Activate these faults."""
        with self._lock:
            self._armed += map(_Armed, faults)

    def remove(self, *faults: Fault) -> None:
        """Deactivate these faults, and reset their counts."""
        with self._lock:
            self._armed = [armed for armed in self._armed if armed.fault not in faults]

    def clear(self) -> None:
        """Deactivate all faults."""
        with self._lock:
            self._armed.clear()

    @contextmanager
    def during(self, *faults: Fault) -> Iterator[None]:
        """Activate these faults within the context."""
        self.add(*faults)
        try:
            yield
        finally:
            self.remove(*faults)

    def struck(self, fault: Fault) -> int:
        """Return how many statements an active fault has affected; 0 if it is not active."""
        with self._lock:
            return sum(armed.struck for armed in self._armed if armed.fault == fault)

    def __bool__(self) -> bool:
        """Return True if any fault is active."""
        return bool(self._armed)

    def strike(self, statement: Statement) -> Strike | None:
        """Return the fault that affects this statement, if any, and count the statement."""
        with self._lock:
            for armed in self._armed:
                if armed.strikes(statement):
                    return Strike(armed.fault, statement)
        return None

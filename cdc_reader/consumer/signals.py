"""Stops a consumer on SIGTERM and SIGINT."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within this context, call `stop` on the first SIGTERM or SIGINT.

    A second signal has the effect that it would have outside this context. Outside the main thread,
    nothing happens, because only the main thread can handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: object) -> None:
        restore()
        # Use another thread, because the interrupted code may hold the lock that `stop` takes.
        threading.Thread(target=stop, name="cdc-stop", daemon=True).start()

    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()

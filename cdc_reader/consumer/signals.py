"""Stops a consumer on SIGTERM and SIGINT."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Within this context, call `stop` in another thread on the first SIGTERM or SIGINT.

    `stop` must return without waiting for the end of the context. A second signal has the effect
    that it would have outside this context. Outside the main thread, nothing happens, because only
    the main thread can handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in _SIGNALS}

    def restore(*_: object) -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    with _watched(stop):
        for number in _SIGNALS:
            signal.signal(number, restore)
        try:
            yield
        finally:
            restore()


@contextmanager
def _watched(stop: Callable[[], object]) -> Iterator[None]:
    """Within this context, call `stop` in another thread when SIGTERM or SIGINT arrives.

    A handler alone could come too late. Python calls it in the main thread, and does not wake that
    thread if the signal arrives just before it begins to wait, or in another thread; see
    `signal.set_wakeup_fd`.
    """
    numbers, sender = socket.socketpair()
    sender.setblocking(False)
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    watching = threading.Thread(
        target=_stop_on_signal, args=(numbers, stop), name="cdc-stop", daemon=True
    )
    watching.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sender.shutdown(socket.SHUT_RDWR)  # also for a child process that has inherited it
        sender.close()
        watching.join()


def _stop_on_signal(numbers: socket.socket, stop: Callable[[], object]) -> None:
    """Call `stop` once the number of one of the signals arrives."""
    with numbers:
        for number in iter(partial(numbers.recv, 1), b""):
            if number[0] in _SIGNALS:
                stop()
                return

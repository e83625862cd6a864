"""Structured logging that follows the application's logging configuration.

If structlog is configured, events go to structlog, like the application's own. Otherwise they go
to `logging`, to loggers named after this library's modules; without handlers, `logging` writes
warnings and errors to stderr. The choice is made for each event.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol, cast

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


class _Log(Protocol):
    """Logs the event, at the level of this name, with any facts about it."""

    def __call__(self, event: str, /, **facts: Any) -> object: ...


class Logger(Protocol):
    """What both destinations have."""

    debug: _Log
    info: _Log
    warning: _Log
    error: _Log


def get_logger(name: str) -> Logger:
    """Return a module's logger, whose messages look like ``event='window_read' rows=3``."""
    return cast("Logger", _Logger(name))


class _Logger:
    """Finds the destination of each event; structlog, which is slow to import, is not imported."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        structlog: Any = sys.modules.get("structlog")
        # Another thread may be importing structlog, which then lacks names.
        if getattr(structlog, "is_configured", bool)():
            return getattr(structlog.get_logger(self._name), method)
        logger, level = logging.getLogger(self._name), _LEVELS.get(method, logging.ERROR)

        def log(event: str, /, *, exc_info: BaseException | None = None, **facts: Any) -> None:
            if logger.isEnabledFor(level):
                shown = {"event": event, **facts}.items()
                text = " ".join(f"{key}={value!r}" for key, value in shown)
                logger.log(level, "%s", text, exc_info=exc_info, stacklevel=2)

        return log

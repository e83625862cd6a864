"""Structured logging that follows the application's logging configuration.

- If structlog is configured, events go to structlog, like the application's own events.
- Otherwise, if Python's `logging` has handlers, events go to loggers named after this library's
  modules. The message contains the event's fields, and `exc_info` contains a failure's traceback.
- Otherwise, warnings and errors go to stderr, with the time and the level.

The choice is made for each event, so an application may set up logging at any time.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import MutableMapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s"


def get_logger(name: str) -> FilteringBoundLogger:
    """Return a module's logger, whose messages look like ``event='window_read' rows=3``."""
    _keep_last_resort(name.partition(".")[0])
    return cast("FilteringBoundLogger", _Logger(name))


class _Logger:
    """Delegates to the logger that the application's current logging configuration requires."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if _is_structlog_configured():
            return getattr(self._configured, method)
        level = _LEVELS.get(method)
        if level is not None and not logging.getLogger(self._name).isEnabledFor(level):
            return _ignore
        return getattr(self._own, method)

    @cached_property
    def _configured(self) -> Any:
        return import_module("structlog").get_logger(self._name)

    @cached_property
    def _own(self) -> Any:
        structlog = import_module("structlog")
        return structlog.wrap_logger(
            logging.getLogger(self._name),
            processors=[structlog.stdlib.filter_by_level, _rendered],
            wrapper_class=structlog.stdlib.BoundLogger,
        )


def _is_structlog_configured() -> bool:
    """Return whether structlog is configured. Does not import it, because the import is slow."""
    is_configured = getattr(sys.modules.get("structlog"), "is_configured", None)
    return is_configured is not None and is_configured()


def _ignore(*_: object, **_fields: object) -> None:
    """Discard an event whose level is disabled."""


class _LastResort(logging.StreamHandler[Any]):
    """Writes events to the current stderr if no other handler receives them."""

    def __init__(self) -> None:
        super().__init__()
        formatter = logging.Formatter(_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)
        self.setLevel(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        if not self._has_others(logging.getLogger(record.name)):
            self.stream = sys.stderr
            super().emit(record)

    def _has_others(self, logger: logging.Logger | None) -> bool:
        """Return True if other handlers receive the logger's records."""
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


def _keep_last_resort(package: str) -> None:
    """Install the last-resort handler on the package's logger, unless it is already there."""
    logger = logging.getLogger(package)
    if not any(isinstance(handler, _LastResort) for handler in logger.handlers):
        logger.addHandler(_LastResort())


def _rendered(
    logger: Any, method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    """Render the event as a message, without the exception, which handlers format themselves."""
    failure = event.pop("exc_info", None)
    render = import_module("structlog.processors").KeyValueRenderer(key_order=["event"])
    return (render(logger, method, event),), {"exc_info": failure}

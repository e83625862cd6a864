"""Structured logging that follows the application's logging configuration.

If structlog is configured, events go to structlog, like the application's own. Otherwise they go
to `logging`, to loggers named after this library's modules; without handlers, `logging` writes
warnings and errors to stderr. The choice is made for each event.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


def get_logger(name: str) -> FilteringBoundLogger:
    """Return a module's logger, whose messages look like ``event='window_read' rows=3``."""
    return cast("FilteringBoundLogger", _Logger(name))


class _Logger:
    """Imports structlog, which is slow, only for an event that is not discarded."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        structlog: Any = sys.modules.get("structlog")
        # Another thread may be importing structlog, which then lacks names.
        if getattr(structlog, "is_configured", bool)():
            return getattr(structlog.get_logger(self._name), method)
        if not logging.getLogger(self._name).isEnabledFor(_LEVELS.get(method, logging.ERROR)):
            return lambda *_, **_fields: None
        return getattr(self._own, method)

    @cached_property
    def _own(self) -> Any:
        logger = logging.getLogger(self._name)
        return import_module("structlog").wrap_logger(logger, processors=[_rendered])


def _rendered(logger: Any, method: str, event: MutableMapping[str, Any]) -> tuple[Any, Any]:
    """Render the event as a message, without the exception, which handlers format themselves."""
    failure = event.pop("exc_info", None)
    render = import_module("structlog.processors").KeyValueRenderer(key_order=["event"])
    return (render(logger, method, event),), {"exc_info": failure}

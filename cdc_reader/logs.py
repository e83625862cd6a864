"""Log events of this package, through Python's own `logging`.

A library must not print: an application sets levels and handlers for ``cdc_reader`` as for any
other logger, and without them only warnings show, on stderr.
"""

from __future__ import annotations

import logging

import structlog
from structlog.typing import FilteringBoundLogger


def get_logger(name: str) -> FilteringBoundLogger:
    """The logger of a module; events render as ``event='window_read' rows=3``."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger

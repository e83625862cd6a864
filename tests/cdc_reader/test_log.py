"""The destination of log events in each configuration of structlog and logging."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

EVENTS = """
from cdc_reader._log import get_logger
log = get_logger("cdc_reader.some.module")
log.debug("unseen", rows=1)
log.info("read", rows=2)
log.warning("lost", rows=3, table="ks.t")
try:
    raise ValueError("why")
except ValueError as error:
    log.error("failed", exc_info=error)
"""


def stderr_of(setup: str, *, after: str = "") -> str:
    """Return the stderr of a process that configures logging, imports the package and logs."""
    code = f"{setup}\nimport cdc_reader._log\n{after}\n{EVENTS}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr


def test_by_default_warnings_reach_stderr() -> None:
    """By default, stderr shows warnings and errors, one line each, and any tracebacks."""
    first, second, third, *rest = stderr_of("").splitlines()
    assert first == "event='lost' rows=3 table='ks.t'"
    assert second == "event='failed'"
    assert third == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: why"


@pytest.mark.parametrize("late", [False, True])
def test_log_lines_follow_the_applications_logging(late: bool) -> None:
    """Events follow the application's logging configuration, set before or after the import.

    Each event appears once.
    """
    setup = (
        "import logging\n"
        "logging.basicConfig(format='%(levelname)s|%(name)s|%(message)s', level='INFO')"
    )
    lines = stderr_of("", after=setup) if late else stderr_of(setup)
    first, second, third, *rest = lines.splitlines()
    assert first == "INFO|cdc_reader.some.module|event='read' rows=2"
    assert second == "WARNING|cdc_reader.some.module|event='lost' rows=3 table='ks.t'"
    assert third == "ERROR|cdc_reader.some.module|event='failed'"
    assert rest[-1] == "ValueError: why"


def test_an_application_can_silence_the_log() -> None:
    """An application can silence the log with a level or a handler, as usual for libraries."""
    assert stderr_of("import logging\nlogging.getLogger('cdc_reader').setLevel('CRITICAL')") == ""
    quiet = "import logging\nlogging.getLogger('cdc_reader').addHandler(logging.NullHandler())"
    assert stderr_of(quiet) == ""


@pytest.mark.parametrize("late", [False, True])
def test_log_lines_follow_the_applications_structlog(late: bool) -> None:
    """Events go through the processors of the application's structlog configuration."""
    setup = (
        "import sys, structlog\n"
        "structlog.configure(\n"
        "    processors=[structlog.processors.add_log_level,\n"
        "                structlog.processors.format_exc_info,\n"
        "                structlog.processors.JSONRenderer()],\n"
        "    wrapper_class=structlog.make_filtering_bound_logger(20),\n"
        "    logger_factory=structlog.PrintLoggerFactory(sys.stderr),\n"
        ")"
    )
    lines = stderr_of("", after=setup) if late else stderr_of(setup)
    first, second, third = map(json.loads, lines.splitlines())
    assert first == {"event": "read", "level": "info", "rows": 2}
    assert second == {"event": "lost", "level": "warning", "rows": 3, "table": "ks.t"}
    assert third["exception"].endswith("ValueError: why")

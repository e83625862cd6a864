"""Finds the line that states the reason in the errors of Spark and in the output of a Python."""

from __future__ import annotations

import re
from textwrap import dedent

from py4j.protocol import Py4JJavaError

_TRACEBACK = "Traceback (most recent call last):\n"
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[\w$]+: *")
_LOST_TASK = re.compile(r"\(TID \d+\) \((?P<where>[^)]+)\): (?P<why>.*)", re.DOTALL)
_OUTPUT = re.compile(
    r"Error from python worker:\n(?P<output>.*?)(?=\nPYTHONPATH was:|\Z)", re.DOTALL
)
_OTHER_VERSION = re.compile(r"\[PYTHON_VERSION_MISMATCH\]\D*(?P<version>\d+\.\d+)")


def reason(error: Exception) -> str:
    """Return the reason that Java or PySpark gave for an error, without the name of its class."""
    return _stated(_message(error))


def lost_task(error: Exception) -> tuple[str, str]:
    """Return where the task ran that made a job fail, and the reason.

    Some versions of Spark do not say where a Python error occurred; it is then "an executor".
    """
    message = _message(error)
    lost = _LOST_TASK.search(message)
    return (lost["where"], _stated(lost["why"])) if lost else ("an executor", _stated(message))


def worker_version(error: Exception) -> str:
    """Return the minor version of an executor's Python that Spark refused; otherwise ""."""
    found = _OTHER_VERSION.search(_message(error))
    return found["version"] if found else ""


def reason_in_output(output: str) -> str:
    """Return the message of the last Python traceback; without one, return the last line."""
    _, traceback, last = dedent(output.strip("\n")).rpartition(_TRACEBACK)
    lines = [line for line in last.splitlines() if line.strip()]
    if traceback:
        lines = [line for line in lines if not line[0].isspace()][:1]
    return lines[-1].strip() if lines else ""


def _message(error: Exception) -> str:
    """Return what an error says; for an error in Java, without the call that PySpark made."""
    message = str(error)
    if isinstance(error, Py4JJavaError):
        message = message.partition("\n: ")[2] or message
    return message.strip() or type(error).__name__


def _stated(message: str) -> str:
    """Return the line of a message that states the reason."""
    message = message.partition("\n\tat ")[0]  # the rest says where in Java the error occurred
    if worker := _OUTPUT.search(message):
        line = reason_in_output(worker["output"])
    elif _TRACEBACK in message:
        line = reason_in_output(message)
    else:
        line = next(iter(_JAVA_CLASS.sub("", message).strip().splitlines()), "")
    return _JAVA_CLASS.sub("", line) or message

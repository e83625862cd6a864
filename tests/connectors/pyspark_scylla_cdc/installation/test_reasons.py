"""The reason in messages recorded from Spark 4.0 and 4.3, and in the output of Pythons."""

from __future__ import annotations

import pytest

from pyspark_scylla_cdc.installation.pythons import reason

ABORTED = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed "
    "1 times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.1 executor 3): "
)
FRAMES = """
	at org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:382)
Caused by: java.io.IOException: error=2
"""
OTHER_PYTHON = """Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1972, in main
    check_python_version(infile)
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has \
different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.
"""
MISMATCH = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: "
    "3.11, PySpark cannot run with different minor versions."
)
CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
ZeroDivisionError: division by zero

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in g
    raise ValueError(text)
          ^^^^^^^^^^^^^^^^
ValueError: first
second
"""
NO_PACKAGE = """
Error from python worker:
  Traceback (most recent call last):
    File "/usr/lib/python3.6/runpy.py", line 183, in _run_module_as_main
      mod_name, mod_spec, code = _get_module_details(mod_name, _Error)
  ModuleNotFoundError: No module named 'importlib.resources'
PYTHONPATH was:
  /spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number."""
NO_OUTPUT = """
Error from python worker:
  warning: no default
  conda: no such env
PYTHONPATH was:
  /spark/python/lib/pyspark.zip"""
NOISE = """
Bad data in pyspark.daemon's standard output. Invalid port number/socket path:
  1751477356 (0x68656c6c)"""


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        (f"org.apache.spark.api.python.PythonException: {OTHER_PYTHON}", MISMATCH),
        (f"org.apache.spark.api.python.PythonException: {CHAINED}", "ValueError: first"),
        (
            f"org.apache.spark.SparkException: {NO_PACKAGE}",
            "ModuleNotFoundError: No module named 'importlib.resources'",
        ),
        (f"org.apache.spark.SparkException: {NO_OUTPUT}", "conda: no such env"),
        (
            f"org.apache.spark.SparkException: {NOISE}",
            "Bad data in pyspark.daemon's standard output. Invalid port number/socket path:",
        ),
        (
            'java.io.IOException: Cannot run program "x": error=2, No such file or directory',
            'Cannot run program "x": error=2, No such file or directory',
        ),
    ],
)
def test_lost_task(why: str, expected: str) -> None:
    """The reason is found in the messages of Spark 4.0 to 4.3, for an error in a task."""
    assert reason(ABORTED + why + FRAMES) == expected


def test_error_in_python_of_spark_4_3() -> None:
    """Spark 4.3 does not say where a Python error occurred."""
    assert reason(f"An exception was thrown from the Python worker:\n{OTHER_PYTHON}") == MISMATCH


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("org.apache.spark.SparkException: Master must be a URL", "Master must be a URL"),
        ("java.lang.IllegalStateException: ", "java.lang.IllegalStateException:"),
        ("An error occurred while calling x.\n: a.b.C: No.\n\tat d", "No."),
        ("", ""),
        ("\n\n", ""),
        ("Error from python worker:\na\nb\n\n", "b"),
        (CHAINED, "ValueError: first"),
    ],
)
def test_reason(told: str, expected: str) -> None:
    """The reason is the message of the last traceback or of Java, or the last line."""
    assert reason(told) == expected

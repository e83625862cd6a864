"""How this package raises errors for Spark. `test_bad_input` tests the errors in Spark."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cdc_reader.errors import SchemaError
from pyspark_scylla_cdc.options.errors import RefusedStream, hide_traceback
from pyspark_scylla_cdc.spark_versions import ReadMaxFiles

VARIABLE = "SPARK_HIDE_TRACEBACK"
AS_WORKER = f"""
import os, sys
from importlib.machinery import ModuleSpec
from cdc_reader.errors import SchemaError
from pyspark_scylla_cdc.options.errors import hide_traceback
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.daemon", None)
try:
    with hide_traceback():
        raise {{error}}
except Exception:
    print(os.environ.get("{VARIABLE}"))
"""


def test_hiding_tracebacks_leaves_a_users_process_unchanged() -> None:
    """In a user's process, the error loses its stack frames. No environment variable is set."""
    with pytest.raises(SchemaError, match="so it is") as refused, hide_traceback():
        raise SchemaError("so it is")
    assert refused.value.__suppress_context__
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(("error", "hidden"), [("SchemaError('x')", "1"), ("KeyError(1)", "None")])
def test_a_worker_hides_the_frames_of_our_errors_only(error: str, hidden: str) -> None:
    """A worker hides the stack frames of this package's errors. Other errors keep theirs."""
    ran = subprocess.run(
        [sys.executable, "-c", AS_WORKER.format(error=error)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == hidden


def test_every_method_of_a_refused_stream_says_why() -> None:
    """Every method of a rejected stream raises the error.

    Spark first requests the stream's start or, after a restart, its partitions.
    """
    stream = RefusedStream(SchemaError("so it is"))
    start = {"version": 1, "position": 0}
    for ask in (
        stream.initialOffset,
        lambda: stream.latestOffset(start, ReadMaxFiles(1)),
        lambda: stream.partitions(start, start),
    ):
        with pytest.raises(SchemaError, match="so it is"):
            ask()

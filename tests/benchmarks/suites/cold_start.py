"""Whole processes, from start to exit, compared with processes that use only the driver.

Each program runs in a new process. Its files are already in the system's cache, and the package is
already compiled to bytecode, as after an installation.
"""

from __future__ import annotations

import compileall
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import cdc_reader
from tests.benchmarks.figure import Figure
from tests.benchmarks.logs import FLAT, fill, log_of
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.turns import take_turns

_TABLE = f"{KEYSPACE}.{FLAT}"
_PACKAGE = Path(cdc_reader.__file__).parent
_BATCH = """
from cdc_reader import CdcReader, ConnectionConfig
with CdcReader(ConnectionConfig("127.0.0.1:{port}", consistency="ONE"), "{table}") as reader:
    assert next(iter(reader.batches())).num_rows
"""
_CHANGE = """
from cdc_reader import CdcReader, ConnectionConfig
with CdcReader(ConnectionConfig("127.0.0.1:{port}", consistency="ONE"), "{table}") as reader:
    assert next(iter(reader.changes())).key
"""
_DRIVER = """
from cassandra.cluster import Cluster
with Cluster(["127.0.0.1"], port={port}, protocol_version=4) as cluster:
    assert cluster.connect().execute("SELECT * FROM {log}").current_rows
"""


def figures(times: int) -> Iterator[Figure]:
    """Measure importing the package, reading a first batch or change, and the command `status`.

    The driver reads the first page twice: with pyarrow imported, because any program that uses
    Arrow needs it, and alone, to show the driver's share of the time.
    """
    compileall.compile_dir(_PACKAGE, quiet=1)
    with serving() as served:
        fill(served)
        found = take_turns(
            {
                "import": partial(_python, "import cdc_reader"),
                "driver_import": partial(_python, "import cassandra.cluster"),
                "batch": partial(_python, _filled(_BATCH, served)),
                "change": partial(_python, _filled(_CHANGE, served)),
                "driver": partial(_python, f"import pyarrow.compute{_filled(_DRIVER, served)}"),
                "driver_alone": partial(_python, _filled(_DRIVER, served)),
                "status": partial(_status, served),
            },
            times,
        )
    took = {way: turn.wall * 1_000 for way, turn in found.items()}
    imported = "import cassandra.cluster"
    first_page = "the driver's first page of the same log, with pyarrow imported"
    yield Figure("cold_import", took["import"], "ms", took["driver_import"], imported, at_most=0.5)
    yield Figure("cold_start", took["batch"], "ms", took["driver"], first_page, at_most=1.5)
    yield Figure("cold_change", took["change"], "ms", took["driver"], first_page, at_most=1.5)
    alone = "the driver's first page of the same log"
    yield Figure("cold_start_driver", took["batch"], "ms", took["driver_alone"], alone)
    yield Figure("cold_change_driver", took["change"], "ms", took["driver_alone"], alone)
    yield Figure("cold_status", took["status"], "ms", took["driver"], first_page, at_most=1.75)


def _filled(program: str, served: Served) -> str:
    return program.format(port=served.port, table=_TABLE, log=f"{KEYSPACE}.{log_of(FLAT)}")


def _python(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)


def _status(served: Served) -> None:
    command = Path(sys.executable).with_name("scylla-cdc")
    words = ["status", _TABLE, "--hosts", f"127.0.0.1:{served.port}"]
    subprocess.run([command, *words], check=True, stdout=subprocess.DEVNULL)

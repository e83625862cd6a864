"""Other clients connect and work: scylla-driver, and cqlsh from the package registry.

Each is installed in a separate environment, because both bring the package `cassandra`. The
environments are created once, in the user's cache directory.
"""

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_reader.testing import EmbeddedScylla

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "scylla-cdc-tests"
SCYLLA_DRIVER = ("scylla-driver==3.29.*",)
CQLSH = ("cqlsh==6.2.*",)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedScylla]:
    """A server of two nodes."""
    with EmbeddedScylla(nodes=2, shards=3) as server:
        yield server


def environment(requirements: tuple[str, ...]) -> Path:
    """Return the bin directory of an environment with `requirements`."""
    wanted = "\n".join((sys.version, *requirements))
    home = CACHE / hashlib.sha256(wanted.encode()).hexdigest()[:16]
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        command = [
            str(home / "bin" / "pip"),
            "install",
            "--quiet",
            "--timeout",
            "30",
            *requirements,
        ]
        installed = subprocess.run(command, capture_output=True, text=True, check=False)
        if installed.returncode:
            reason = (installed.stderr.strip().splitlines() or ["no reason given"])[-1]
            pytest.skip(f"{' '.join(requirements)} cannot be installed: {reason}")
        (home / "ready").touch()
    return home / "bin"


def run(*command: object) -> str:
    """Return a program's output; it must succeed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SCRIPT = """
import sys
from cassandra.cluster import Cluster

cluster = Cluster([sys.argv[1]], port=int(sys.argv[2]))
session = cluster.connect()
session.execute("CREATE KEYSPACE sd WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}")
session.execute("CREATE TABLE sd.t (pk int, ck int, v text, PRIMARY KEY (pk, ck)) "
                "WITH cdc = {'enabled': true}")
insert = session.prepare("INSERT INTO sd.t (pk, ck, v) VALUES (?, ?, ?)")
for number in range(100):
    session.execute(insert, (number % 7, number, str(number)))
log = session.execute("SELECT pk, ck, v FROM sd.t_scylla_cdc_log")
print(sorted((row.ck, row.v) for row in log) == [(n, str(n)) for n in range(100)])
print(cluster.metadata.keyspaces["sd"].tables["t"].primary_key[0].name)
print(sorted({row.shard_id for row in session.execute("SELECT shard_id FROM system.clients")}))
cluster.shutdown()
"""


@pytest.mark.slow
def test_scylla_driver_works(server: EmbeddedScylla) -> None:
    """It finds every shard, prepares, writes, and reads the log."""
    python = environment(SCYLLA_DRIVER) / "python"
    printed = run(python, "-c", SCRIPT, server.host, server.port)
    assert printed.split("\n")[:3] == ["True", "pk", "[0, 1, 2]"]


@pytest.mark.slow
def test_cqlsh_works(server: EmbeddedScylla) -> None:
    """It starts, changes the schema, writes, and shows results."""
    cqlsh = environment(CQLSH) / "cqlsh"
    written = run(
        cqlsh,
        server.host,
        server.port,
        "-e",
        "CREATE KEYSPACE sh WITH replication = {'class': 'SimpleStrategy', "
        "'replication_factor': 1}; USE sh; "
        "CREATE TABLE t (pk int PRIMARY KEY, v list<text>) WITH cdc = {'enabled': true}; "
        "INSERT INTO t (pk, v) VALUES (1, ['a', 'b']); SELECT * FROM t;",
    )
    assert "1 | ['a', 'b']" in written
    select = 'SELECT pk, "cdc$operation", "cdc$deleted_v" FROM sh.t_scylla_cdc_log'
    log = run(cqlsh, server.host, server.port, "-e", select)
    assert "1 |             2 |          True" in log
    assert "(1 rows)" in log

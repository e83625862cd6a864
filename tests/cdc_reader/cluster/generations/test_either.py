"""Detection of the installed driver, and a warning if two drivers are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cdc_reader.cluster.driver import DRIVERS, forget_columns, installed_drivers, keep_columns
from cdc_reader.cluster.opening import Opening
from cdc_reader.config import ConnectionConfig
from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import Native
from cdc_reader.reading.retry import NEVER
from cdc_reader.testing import EmbeddedScylla

CONNECT = """
import sys
from cdc_reader.config import ConnectionConfig
from cdc_reader.cluster.opening import Opening
from cdc_reader.reading.retry import NEVER
for _ in range(2):
    Opening(ConnectionConfig(sys.argv[1]), 100).session(NEVER).cluster.shutdown()
"""
IMPORT = "import sys; sys.modules['cassandra.cluster'] = None; import cdc_reader.cluster"


def run(code: str, *arguments: str, path: Path | None = None) -> str:
    """Run the code in a separate Python process, and return its stderr.

    `path` is an extra directory of packages.
    """
    environment = {} if path is None else {"PYTHONPATH": str(path)}
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return ran.stderr


def test_one_of_them_is_installed() -> None:
    """The test environment has exactly one driver."""
    assert len(installed_drivers()) == 1


def test_two_installed_drivers_are_reported_once(tmp_path: Path) -> None:
    """If two drivers are installed, one warning says how to repair the installation.

    The drivers overwrite each other's files.
    """
    [there] = installed_drivers()
    [other] = set(DRIVERS) - {there}
    folder = tmp_path / f"{other.replace('-', '_')}-1.2.3.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {other}\nVersion: 1.2.3\n")
    with EmbeddedScylla() as server:
        assert "two_drivers" not in run(CONNECT, server.contact_point)
        said = run(CONNECT, server.contact_point, path=tmp_path)
    [line] = [line for line in said.splitlines() if "two_drivers_installed" in line]
    assert f"{other} 1.2.3" in line
    assert "run 'pip uninstall -y cassandra-driver scylla-driver', then install one" in line


def test_a_missing_driver_is_reported_with_what_to_install() -> None:
    """The error for a missing driver says what to install.

    This holds even if a removed driver left files behind.
    """
    *_, last = run(IMPORT).splitlines()
    assert last.startswith("ImportError: no driver for ScyllaDB can be imported")
    assert last.endswith("then 'pip install cassandra-driver' or 'pip install scylla-driver'")


def test_column_metadata_is_cached() -> None:
    """Column metadata is cached, so that the server can omit it from results."""
    columns = (Column("key", Native("text")),)
    with EmbeddedScylla() as server:
        session = Opening(ConnectionConfig(server.contact_point), 100).session(NEVER)
        try:
            statement = session.prepare("SELECT key FROM system.local")
            forget_columns(statement)
            assert statement.result_metadata is None
            keep_columns(statement, columns)
            assert statement.result_metadata == columns
        finally:
            session.cluster.shutdown()

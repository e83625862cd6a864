"""Tables whose log gets no new rows are reported at `load()`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cdc_reader.testing import EmbeddedScylla

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_QUERY = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
cdc = spark.read.format("scylla_cdc").option("hosts", {hosts!r})
print("KEYS", [row["p"] for row in cdc.load("ks.t").collect()])
try:
    cdc.load("tk.t")
except Exception as error:
    print("ERROR", error)
"""


def test_load_warns_about_tables_that_log_nothing() -> None:
    """A log that gets no more rows causes a warning. A log that never gets rows is rejected."""
    with EmbeddedScylla() as server:
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        options = {"ks": "", "tk": " AND tablets = {'initial': 1} AND consistency = 'global'"}
        for keyspace, option in options.items():
            server.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}{option}")
            server.execute(
                f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
            )
            server.execute(f"INSERT INTO {keyspace}.t (p) VALUES (1)")
        server.execute("ALTER TABLE ks.t WITH cdc = {'enabled': false}")
        code = _QUERY.format(hosts=server.contact_point)
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
        )
    assert "KEYS [1]" in ran.stdout, ran.stderr[-4_000:]
    assert "its log keeps the rows it has, and gets no new ones" in ran.stderr
    assert "keyspace tk of table tk.t has consistency 'global', and ScyllaDB logs no" in ran.stdout

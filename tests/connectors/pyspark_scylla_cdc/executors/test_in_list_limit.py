"""Spark reads from a server that limits IN lists to fewer streams than a chunk."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc_reader.testing import EmbeddedScylla

COUNT = 100


@pytest.mark.slow
def test_executors_learn_how_many_streams_a_query_may_name(spark: SparkSession) -> None:
    """Each process finds the limit even if `retryTimeout` is 0, and each row is read once."""
    with EmbeddedScylla(vnodes=32, shards=2, most_partitions=7) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        server.execute("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}")
        for number in range(COUNT):
            server.execute(f"INSERT INTO ks.t (p) VALUES ({number})")
        reader = spark.read.format("scylla_cdc").option("hosts", server.contact_point)
        reader = reader.option("keyspace", "ks").option("table", "t").option("retryTimeout", "0s")
        rows = reader.option("minPartitions", 2).load().collect()
    assert sorted(row["p"] for row in rows) == list(range(COUNT))

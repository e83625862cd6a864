"""A process of Spark keeps few connections open."""

from __future__ import annotations

import multiprocessing
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe
from typing import Any

from cdc_reader.config import ConnectionConfig, ReadConfig
from cdc_reader.testing import EmbeddedScylla, ManualClock
from pyspark_scylla_cdc import clusters
from pyspark_scylla_cdc.clusters import LONGEST_UNUSED, MOST, Cluster, Clusters

READ = ReadConfig()


def connected(cluster: Cluster) -> bool:
    """Connect if the cluster has no connection, and return whether it had one."""
    was_open = cluster.connection._opening is not None
    cluster.connection.session()
    return was_open


def test_at_most_four_stay_open() -> None:
    """A fifth cluster closes the connection that was used longest ago; it opens when used again."""
    with EmbeddedScylla() as server:
        few = Clusters(ManualClock(0))
        configs = [
            ConnectionConfig(server.contact_point, username=f"u{number}", password="p")
            for number in range(MOST + 1)
        ]
        opened = [few.get(config, READ) for config in configs[:MOST]]
        assert not any(map(connected, opened))
        assert few.get(configs[0], READ) is opened[0]
        opened.append(few.get(configs[-1], READ))
        assert list(map(connected, opened)) == [True, False, True, True, False]
        assert few.get(configs[1], READ) is not opened[1]
        for cluster in opened:
            cluster.connection.close()


def test_queries_share_a_connection_unless_it_must_differ() -> None:
    """Only the page size, the retry deadline and the rate limit belong to a connection."""
    few, config = Clusters(ManualClock(0)), ConnectionConfig("localhost")
    reads: list[dict[str, Any]] = [
        {},
        {
            "confidence_window": timedelta(seconds=1),
            "late_rows": "deliver",
            "data_loss": "continue",
        },
        {"fetch_size": 7},
        {"retry_deadline": timedelta(seconds=7)},
        {"max_queries_per_second": 7},
    ]
    found = [few.get(config, ReadConfig(**read)) for read in reads]
    assert found[1] is found[0]
    assert len({id(cluster) for cluster in found}) == 4


def test_an_unused_one_is_closed() -> None:
    """A connection that is not used for ten minutes is closed when another is used."""
    with EmbeddedScylla() as server:
        clock = ManualClock(0)
        clusters = Clusters(clock)
        first, second = (
            clusters.get(ConnectionConfig(server.contact_point, consistency=level), READ)
            for level in ("ONE", "QUORUM")
        )
        assert not connected(first)
        assert not connected(second)
        clock.advance(LONGEST_UNUSED)
        config = ConnectionConfig(server.contact_point, consistency="ONE")
        assert clusters.get(config, READ) is first
        clock.advance(1)
        assert clusters.get(config, READ) is first
        assert (connected(first), connected(second)) == (True, False)
        first.connection.close()
        second.connection.close()


def test_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    """The clusters and their clocks can be used while a thread of the parent holds their locks."""
    config = ConnectionConfig("localhost")
    cluster = clusters.cluster_of(config, READ)

    def ask(answer: Pipe) -> None:
        is_free = clusters.cluster_of(config, READ).clock._measuring.acquire(timeout=0)
        answer.send(is_free)

    ours, theirs = multiprocessing.Pipe()
    with clusters._clusters._lock, cluster.clock._measuring:
        child = multiprocessing.get_context("fork").Process(target=ask, args=(theirs,))
        child.start()
        try:
            assert ours.poll(60), "the child hangs"
            assert ours.recv()
        finally:
            child.kill()

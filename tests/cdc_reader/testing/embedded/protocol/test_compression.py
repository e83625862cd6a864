"""Tests frame compression with both algorithms, in both directions, and with invalid bytes."""

import sys

import pytest
from cassandra.cluster import Cluster
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.testing import EmbeddedScylla
from cdc_reader.testing.embedded.errors import ProtocolError
from cdc_reader.testing.embedded.protocol.compression import compression_of, compressions
from cdc_reader.testing.embedded.protocol.frame import MAX_BODY
from tests.drivers import PATIENT

algorithms = pytest.mark.parametrize("algorithm", sorted(compressions()))


@algorithms
@given(body=st.binary(max_size=2000))
def test_a_body_comes_back_as_it_was(algorithm: str, body: bytes) -> None:
    """A compressed body, even an empty one, is decompressed to the original."""
    compression = compressions()[algorithm]
    assert compression.decompress(compression.compress(body)) == body


@algorithms
@given(garbage=st.binary(max_size=60))
def test_garbage_is_a_protocol_error(algorithm: str, garbage: bytes) -> None:
    """Decompressing any bytes either succeeds or raises ProtocolError."""
    try:
        body = compressions()[algorithm].decompress(garbage)
    except ProtocolError:
        return
    assert isinstance(body, bytes)


def test_a_body_that_would_be_too_large_is_refused_before_it_is_made() -> None:
    """A body whose stated size exceeds the limit is rejected before memory is allocated."""
    claim = (MAX_BODY + 1).to_bytes(4, "big") + b"\x00"
    with pytest.raises(ProtocolError, match="request size too large"):
        compressions()["lz4"].decompress(claim)
    with pytest.raises(ProtocolError, match="request size too large"):
        compressions()["snappy"].decompress(b"\xff\xff\xff\xff\x0f\x00")


@algorithms
def test_a_driver_that_compresses_writes_and_reads(algorithm: str) -> None:
    """A driver with compression reads back a large value that it has written."""
    text = "what goes in comes out " * 1000
    with EmbeddedScylla() as server:
        cluster = Cluster([server.host], port=server.port, compression=algorithm, **PATIENT)
        try:
            session = cluster.connect()
            session.execute(
                "CREATE KEYSPACE ks WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
            session.execute("CREATE TABLE ks.t (pk int PRIMARY KEY, v text)")
            session.execute("INSERT INTO ks.t (pk, v) VALUES (1, %s)", (text,))
            assert session.execute("SELECT v FROM ks.t").one().v == text
        finally:
            cluster.shutdown()


def test_without_the_library_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `cramjam`, no compression is offered, and clients that request it are rejected."""
    monkeypatch.setitem(sys.modules, "cramjam", None)
    compressions.cache_clear()
    try:
        assert compressions() == {}
        with pytest.raises(ProtocolError, match="Unknown compression algorithm: lz4"):
            compression_of("lz4")
    finally:
        compressions.cache_clear()

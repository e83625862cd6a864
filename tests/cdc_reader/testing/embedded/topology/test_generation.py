"""Tests that generations and the choice of streams equal those recorded from a real cluster."""

import gzip
import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cassandra.cqltypes import Int32Type, UTF8Type
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql import timeuuid
from cdc_reader.streams.stream import StreamId
from cdc_reader.testing.embedded.codec.order import read_fields
from cdc_reader.testing.embedded.codec.token import MAX_TOKEN, MIN_TOKEN, token_of
from cdc_reader.testing.embedded.profile import profile
from cdc_reader.testing.embedded.schema.table import MURMUR3
from cdc_reader.testing.embedded.topology.generation import Generation, StreamRange
from cdc_reader.testing.embedded.topology.ring import Node, Ring, draw_tokens
from cdc_reader.testing.embedded.topology.shards import first_token_of, shard_of
from cdc_reader.testing.embedded.topology.streams import Streams

DATA = Path(__file__).parents[4] / "data"
NOBODY = UUID(int=0)

tokens = st.integers(MIN_TOKEN + 1, MAX_TOKEN)
shard_counts = st.integers(1, 40)
ignored_bits = st.integers(1, 16)


def recorded() -> Any:
    """Load the recording of a cluster with three generations."""
    with gzip.open(DATA / "scylla-5.2-generations.json.gz", "rt") as file:
        return json.load(file)


def signed(number: str) -> int:
    """Decode a recorded bigint."""
    return int.from_bytes(bytes.fromhex(number), "big", signed=True)


def generations() -> Iterator[Generation]:
    """Yield the recorded generations, oldest first."""
    rows = recorded()["phases"][-1]["streams"]["rows"]
    for time in sorted({row[0] for row in rows}):
        ranges = [
            StreamRange(signed(end), tuple(s for s in read_fields(bytes.fromhex(ids)[4:]) if s))
            for when, end, ids in rows
            if when == time
        ]
        yield Generation(
            signed(time), NOBODY, tuple(sorted(ranges, key=lambda span: span.range_end))
        )


def toy_ring() -> Ring:
    """Return the ring of the worked examples: one node with four token ranges and three shards."""
    ends = (-6 * 10**18, -15 * 10**17, 25 * 10**17, 7 * 10**18)
    return Ring((Node(NOBODY, ends, 3),))


class NoRandom(random.Random):
    """A random source whose bits are all zero."""

    def getrandbits(self, k: int, /) -> int:  # noqa: ARG002 - the signature of Random
        return 0


@pytest.mark.parametrize("generation", list(generations()), ids=lambda g: str(g.timestamp))
def test_a_recorded_generation_has_the_tokens_we_would_give_it(generation: Generation) -> None:
    """The recorded streams have the tokens, indexes and versions that the algorithm computes."""
    starts = [generation.range_ends[-1], *generation.range_ends]
    for index, (span, (start, end)) in enumerate(
        zip(generation.ranges, pairwise(starts), strict=True)
    ):
        shards = len(span.streams)
        for shard, stream in enumerate(map(StreamId, span.streams)):
            assert stream.token == first_token_of(shard, start, end, shards, 12)
            assert (stream.index, stream.version) == (index, 1)


@pytest.mark.parametrize(
    ("log", "columns", "key"), [("log_t", ("pk",), "t"), ("log_c", ("a", "b"), "c")]
)
def test_every_recorded_row_is_in_the_stream_we_would_choose(
    log: str, columns: tuple[str, ...], key: str
) -> None:
    """Each recorded row, in any of the generations, is in the stream that the algorithm chooses."""
    cluster = recorded()
    streams = Streams(profile("5.2"), list(generations()))
    known = {tuple(row[:-1]): signed(row[-1]) for row in cluster[f"tokens_{key}"]["rows"]}
    names = [name for name, _ in cluster[log]["columns"]]
    used = set()
    for row in cluster[log]["rows"]:
        cells = dict(zip(names, row, strict=True))
        values = tuple(bytes.fromhex(cells[column]) for column in columns)
        write_us = timeuuid.micros(bytes.fromhex(cells["cdc$time"]))
        generation = streams.generation_for(write_us, now_us=write_us)
        used.add(generation.timestamp)
        assert token_of(MURMUR3, values) == known[tuple(cells[column] for column in columns)]
        assert streams.stream_id(values, write_us, write_us).hex() == cells["cdc$stream_id"]
    assert len(used) == 3


@pytest.mark.parametrize(
    ("vnode", "expected"),
    [
        (
            (0x7FFE0C687FCCE86D, 0x807AE73E07DBD411),
            ("8000000000000001", "8005555555555556", "7ffe0c687fcce86e"),
        ),
        (
            (0x807AE73E07DBD411, 0x80838C6B76E19A1B),
            ("8080000000000000", "80838c6b76e19a1b", "807ae73e07dbd412"),
        ),
    ],
)
def test_the_ids_of_scylladbs_own_documentation(
    vnode: tuple[int, int], expected: tuple[str, ...]
) -> None:
    """The tokens equal those in ScyllaDB's documentation.

    The second shard owns no token in the second range, so its stream gets the range's last token.
    """
    start, end = (token - 2**64 if token >> 63 else token for token in vnode)
    found = [first_token_of(shard, start, end, 3, 12) % 2**64 for shard in range(3)]
    assert [f"{token:016x}" for token in found] == list(expected)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ((0,), "acc00000000000000000000000000011"),
        ((2,), "acc55555555555560000000000000011"),
        ((3,), "612aaaaaaaaaaaab0000000000000001"),
        (("scylla",), "eb2eedf284ea00010000000000000021"),
        ((1, 11), "6124fee993bc00010000000000000001"),
    ],
)
def test_the_worked_examples(key: tuple[int | str, ...], expected: str) -> None:
    """Keys of one and two columns, in any token range, go to the expected streams."""
    streams = Streams(generations=[Generation.of(toy_ring(), 0, NoRandom())])
    values = tuple(
        Int32Type.serialize(v, 4) if isinstance(v, int) else UTF8Type.serialize(v, 4) for v in key
    )
    assert streams.stream_id(values, 0, 0).hex() == expected


@given(tokens, tokens, shard_counts, ignored_bits)
def test_a_streams_token_is_the_first_of_its_shard(
    start: int, end: int, shards: int, ignore_msb: int
) -> None:
    """A stream's token is its shard's first token in the range or, without one, the range's end."""
    for shard in range(shards):
        token = first_token_of(shard, start, end, shards, ignore_msb)
        assert (token - start - 1) % 2**64 <= (end - start - 1) % 2**64
        if token != end:
            assert shard_of(token, shards, ignore_msb) == shard
            before_is_start = token - 1 in (start, MIN_TOKEN)
            assert before_is_start or shard_of(token - 1, shards, ignore_msb) != shard


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 8), st.integers(1, 5), tokens)
def test_a_key_goes_to_its_owners_shard(
    seed: int, nodes: int, vnodes: int, shards: int, token: int
) -> None:
    """A key's stream belongs to the shard that owns the key."""
    source = random.Random(seed)
    drawn = draw_tokens(source, nodes * vnodes)
    ring = Ring(tuple(Node(NOBODY, drawn[n::nodes], shards + n) for n in range(nodes)))
    generation = Generation.of(ring, 0, source)
    owner = ring.owner(token)
    stream = generation.stream_for(token)
    (span,) = (span for span in generation.ranges if stream in span.streams)
    assert span.range_end in owner.tokens
    assert span.streams.index(stream) == shard_of(token, owner.shards, 12)


def test_the_same_seed_gives_the_same_generation() -> None:
    """The same seed produces the same generation, and a different seed a different generation."""
    first, second = (
        Generation.of(toy_ring(), 1, random.Random(7)),
        Generation.of(toy_ring(), 1, random.Random(7)),
    )
    assert first == second
    assert first != Generation.of(toy_ring(), 1, random.Random(8))


def test_a_ring_needs_tokens_that_differ() -> None:
    """A ring is rejected if it has no tokens, or if two nodes own the same token."""
    with pytest.raises(ValueError, match="two owners"):
        Ring((Node(NOBODY, (1,), 1), Node(NOBODY, (1,), 1)))
    with pytest.raises(ValueError, match="without tokens"):
        Ring(())

"""The choice of a key's stream, in worked examples and for all rows of a recorded cluster."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from cdc_reader._time import BEGINNING, FOREVER
from cdc_reader.cluster.values import token_of
from cdc_reader.cql.names import TableName
from cdc_reader.cql.schema import Column, ColumnKind, TableSchema
from cdc_reader.cql.timeuuid import micros
from cdc_reader.cql.types import parse
from cdc_reader.streams.generation import (
    Generation,
    StreamGroup,
    Timeline,
    group_of,
    shard_of,
    stream_of,
)
from cdc_reader.streams.stream import StreamId
from cdc_reader.streams.window import Window
from tests.recordings.comparison import Result
from tests.recordings.decoding import decoded
from tests.recordings.loading import read_recording

DATA = Path(__file__).parents[2] / "data" / "scylla-5.2-generations.json.gz"
ALWAYS = Window(BEGINNING, FOREVER)
TOKENS = {
    -6_000_000_000_000_000_000: "6124fee993bc0001 6125555555555556 612aaaaaaaaaaaab",
    -1_500_000_000_000_000_000: "acc0000000000000 acc5555555555556 acbbb7ca13a80001",
    2_500_000_000_000_000_000: "eb30000000000000 eb35555555555556 eb2eedf284ea0001",
    7_000_000_000_000_000_000: "22b1c8c1227a0001 22b5555555555556 22baaaaaaaaaaaab",
}
"""The upper half of each stream id, by range end, in a ring of four ranges with three shards."""
VNODES = Generation(
    ALWAYS,
    tuple(
        StreamGroup(
            range_end,
            tuple(
                StreamId(bytes.fromhex(f"{head}{index * 16 + 1:016x}")) for head in heads.split()
            ),
        )
        for index, (range_end, heads) in enumerate(TOKENS.items())
    ),
)
TABLETS = Generation(
    ALWAYS,
    tuple(
        StreamGroup(token, (StreamId.from_parts(token, 7, 0),))
        for token in (-(2**62) - 1, -1, 2**62 - 1, 2**63 - 1)
    ),
)


def table(*types: str) -> TableSchema:
    """Return a table whose partition key has these types. Its columns are k0, k1 and so on."""
    columns = (
        Column(f"k{place}", parse(text), ColumnKind.PARTITION_KEY, place)
        for place, text in enumerate(types)
    )
    return TableSchema(TableName("ks", "t"), tuple(columns))


@pytest.mark.parametrize(
    ("types", "values", "token", "range_end", "shard", "stream", "tablet"),
    [
        (["int"], [0], -3485513579396041028, -15 * 10**17, 0, "acc0000000000000", -1),
        (["int"], [2], -3248873570005575792, -15 * 10**17, 1, "acc5555555555556", -1),
        (["int"], [3], 9010454139840013625, -6 * 10**18, 2, "612aaaaaaaaaaaab", 2**63 - 1),
        (
            ["text"], ["scylla"], 1571565190859066209,
            25 * 10**17, 2, "eb2eedf284ea0001", 2**62 - 1,
        ),
        (
            ["int", "int"], [1, 11], 8088644489627462037,
            -6 * 10**18, 0, "6124fee993bc0001", 2**63 - 1,
        ),
    ],
)  # fmt: skip
def test_worked_examples(
    types: list[str],
    values: list[object],
    token: int,
    range_end: int,
    shard: int,
    stream: str,
    tablet: int,
) -> None:
    """Each key's stream equals the stream that was worked out from the server's source code."""
    key = {f"k{place}": value for place, value in enumerate(values)}
    assert token_of(table(*types), key) == token
    assert group_of(VNODES, token).range_end == range_end
    assert shard_of(token, 3) == shard
    assert stream_of(VNODES, token)[:8].hex() == stream
    assert stream_of(TABLETS, token).token == tablet


@pytest.mark.parametrize(("key", "token"), [(5, -7509452495886106294), (2, -3248873570005575792)])
def test_the_ends_of_ranges(key: int, token: int) -> None:
    """A range includes its end but not its start. A group of one stream has a single shard."""
    assert token_of(table("int"), {"k0": key}) == token
    one = Generation(ALWAYS, tuple(StreamGroup(t, (StreamId(bytes(16)),)) for t in (token, 2**60)))
    assert group_of(one, token).range_end == token
    assert group_of(one, token + 1).range_end == 2**60
    assert group_of(one, 2**60 + 1).range_end == token
    assert shard_of(token, 1) == 0


def test_a_generation_without_streams_has_none_for_a_token() -> None:
    """Looking up the stream of a token in a generation without streams raises an error."""
    with pytest.raises(ValueError, match="without streams"):
        stream_of(Generation(ALWAYS, ()), 0)


def in_shard_order(cell: str) -> tuple[StreamId, ...]:
    """Return the streams of a serialized set in wire order, which the driver does not keep."""
    raw = bytes.fromhex(cell)
    return tuple(StreamId(raw[start : start + 16]) for start in range(8, len(raw), 20))


def recorded_generations(recorded: Any) -> list[Generation]:
    """Return the generations of the recorded cluster."""
    described: dict[int, list[StreamGroup]] = defaultdict(list)
    rows = recorded["phases"][-1]["streams"]
    place = [name for name, _ in rows["columns"]].index("streams")
    for row, raw in zip(decoded(Result.from_recording(rows)), rows["rows"], strict=True):
        start = round(row["time"].timestamp() * 1_000_000)
        described[start].append(StreamGroup(row["range_end"], in_shard_order(raw[place])))
    spans = Timeline(tuple(described)).operating()
    return [Generation(span, tuple(described[span.start])) for span in spans]


@pytest.mark.parametrize(
    ("name", "types", "key", "count"),
    [("log_t", ["int"], ["pk"], 450), ("log_c", ["int", "text"], ["a", "b"], 60)],
)
def test_every_row_of_a_real_cluster_is_in_the_stream_of_its_key(
    name: str, types: list[str], key: list[str], count: int
) -> None:
    """Each of 510 real rows is in its key's stream, in three generations on one or two nodes."""
    recorded = read_recording(DATA)
    generations = recorded_generations(recorded)
    log = Result.from_recording(recorded[name])
    assert (len(generations), len(log.rows)) == (3, count)
    for raw, row in zip(log.rows, decoded(log), strict=True):
        at = micros(bytes(raw[1] or b""))
        [generation] = [each for each in generations if at in each.operates]
        values = {f"k{place}": row[column] for place, column in enumerate(key)}
        assert stream_of(generation, token_of(table(*types), values)) == raw[0]

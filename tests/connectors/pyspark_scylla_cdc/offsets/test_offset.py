"""Offsets in a checkpoint."""

from __future__ import annotations

import json
import math
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql import timeuuid
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.offset import Offset, SnapshotState, snapshot_until

ID = UUID("5c2e7e9a-2f0b-11f0-8080-808080808080")
HISTORY = TtlHistory([(1_795_000_000_000_000, 86_400), (1_795_221_000_000_000, 3_600)])
PLAIN = (
    '{"version": 1, "position": 1795221125091067, "table": "shop.orders", '
    '"id": "5c2e7e9a-2f0b-11f0-8080-808080808080", "snapshot": "done", '
    '"ttl": [[1795000000000000, 86400], [1795221000000000, 3600]]'
)
FULL = (
    f'{PLAIN}, "logs": ["5c2e7e9a-2f0b-11f0-8080-808080808081"], '
    '"generations": {"since": 1795000000000000, "known": [1794000000000000, 1795100000000000]}, '
    '"began": 1795000000000000, "lost": [1795000000000000, 1795100000000000]}'
)
IN_SNAPSHOT = (
    '{"version": 1, "position": 1795221125091067, "table": "shop.orders", '
    '"id": "5c2e7e9a-2f0b-11f0-8080-808080808080", "snapshot": "pending", '
    '"token": -4611686018427387904, "ttl": []}'
)
MOMENTS = st.integers(0, timeuuid.MAX_MICROS)
TOKENS = st.integers(MIN_TOKEN, MAX_TOKEN)
LATE = {
    "since": 7,
    "ends": [7],
    "reads": [7],
    "readAt": 7,
    "confidence": 7,
    "known": [],
    "rows": [],
}
CURSOR = Checkpoint(1795221125091067, table_id=ID, ttls=HISTORY)
OFFSET = Offset(CURSOR, "shop.orders", has_snapshot=True)
KNOWN = KnownGenerations(1795000000000000, (1794000000000000, 1795100000000000))
FORMATS = {
    f"{PLAIN}}}": OFFSET,
    FULL: evolve(
        OFFSET,
        cursor=evolve(CURSOR, ttls=evolve(HISTORY, logs=[UUID(int=ID.int + 1)]), generations=KNOWN),
        began=1795000000000000,
        lost=Window(1795000000000000, 1795100000000000),
    ),
    IN_SNAPSHOT: evolve(
        OFFSET,
        cursor=evolve(
            CURSOR, ttls=TtlHistory(), snapshot=snapshot_until(-(1 << 62), CURSOR.position)
        ),
    ),
}


@pytest.mark.parametrize(("text", "offset"), FORMATS.items())
def test_format_is_fixed(text: str, offset: Offset) -> None:
    """Spark compares offsets as text, so a released format never changes."""
    assert json.dumps(offset.to_json()) == text
    assert Offset.from_json(json.loads(text)) == offset


histories = st.lists(st.tuples(MOMENTS, MOMENTS)).map(lambda changes: TtlHistory(sorted(changes)))


CURSORS = st.builds(Checkpoint, MOMENTS, table_id=st.uuids(), ttls=histories)


@given(
    st.builds(Offset, CURSORS, st.text(), st.booleans())
    | st.builds(
        lambda cursor, token: Offset(
            evolve(cursor, snapshot=snapshot_until(token, cursor.position)), "ks.t", True
        ),
        CURSORS,
        TOKENS,
    )
)
def test_there_and_back(offset: Offset) -> None:
    """An offset survives serialization."""
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"version": 1, "position": 1},
        json.loads(FULL) | {"version": 2},
        json.loads(FULL) | {"position": True},
        json.loads(FULL) | {"position": 10**30},
        json.loads(FULL) | {"position": -1},
        json.loads(FULL) | {"position": timeuuid.MAX_MICROS + 1},
        json.loads(FULL) | {"began": "now"},
        json.loads(FULL) | {"late": LATE | {"ends": [10**30]}},
        json.loads(FULL) | {"late": LATE | {"reads": [-1]}},
        json.loads(FULL) | {"late": LATE | {"rows": ["A" * 48]}},
        json.loads(FULL) | {"generations": {"since": 1}},
        json.loads(FULL) | {"generations": {"since": -1, "known": []}},
        json.loads(FULL) | {"generations": {"since": 1, "known": [10**30]}},
        json.loads(FULL) | {"id": "none"},
        json.loads(FULL) | {"snapshot": "maybe"},
        json.loads(FULL) | {"ttl": [[1]]},
        json.loads(FULL) | {"logs": ["none"]},
        json.loads(IN_SNAPSHOT) | {"token": "1"},
        json.loads(IN_SNAPSHOT) | {"snapshot": "done"},
        json.loads(FULL) | {"lost": [1]},
        json.loads(FULL) | {"lost": [1, math.inf]},
        json.loads(FULL) | {"version": True},
        json.loads(FULL) | {"ttl": [[1, 10**30]]},
        json.loads(FULL) | {"log_lost": 10**30, "logs": [str(ID), str(ID)]},
        json.loads(FULL) | {"lateRows": math.inf},
        json.loads(FULL) | {"late": LATE | {"confidence": math.inf}},
        json.loads(FULL) | {"late": LATE | {"confidence": -1}},
        json.loads(IN_SNAPSHOT) | {"token": 1 << 70},
        [],
    ],
)
def test_what_this_version_did_not_write_is_refused(stored: Any) -> None:
    """An offset with unknown contents raises an error."""
    with pytest.raises(ConfigurationError, match=r"^checkpointLocation .* no offset of version 1 "):
        Offset.from_json(stored)


@given(st.lists(TOKENS, max_size=5).map(sorted))
def test_a_snapshot_goes_on_to_its_end(tokens: list[int]) -> None:
    """In a snapshot, only the token advances. At the last token, the snapshot is complete."""
    cursor = Checkpoint(7, table_id=ID, ttls=HISTORY)
    begun = Offset(evolve(cursor, snapshot=snapshot_until(MIN_TOKEN, 7)), "shop.orders", True)
    assert (begun.done, begun.is_before_snapshot) == (MIN_TOKEN, True)
    for token in tokens:
        offset = evolve(begun, cursor=evolve(cursor, snapshot=snapshot_until(token, 7)))
        assert (offset.position, offset.done) == (7, token)
        assert offset.snapshot is SnapshotState.PENDING
    complete = evolve(begun, cursor=cursor)
    assert (complete.done, complete.snapshot) == (MAX_TOKEN, SnapshotState.DONE)

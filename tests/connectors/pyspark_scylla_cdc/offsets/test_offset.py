"""Offsets in a checkpoint."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.cql import timeuuid
from cdc_reader.cql.schema import CdcOptions, TableState
from cdc_reader.errors import ConfigurationError
from cdc_reader.reading.expiry import TtlHistory
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN
from cdc_reader.streams.window import Window
from pyspark_scylla_cdc.offsets.generations import KnownGenerations
from pyspark_scylla_cdc.offsets.offset import Offset, SnapshotState

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
LATE = {"since": 7, "ends": [7], "reads": [7], "known": [], "rows": []}
OFFSET = Offset(1795221125091067, SnapshotState.DONE, "shop.orders", ID, HISTORY)
FORMATS = {
    f"{PLAIN}}}": OFFSET,
    FULL: evolve(
        OFFSET,
        ttls=evolve(HISTORY, logs=[UUID(int=ID.int + 1)]),
        generations=KnownGenerations(1795000000000000, (1794000000000000, 1795100000000000)),
        began=1795000000000000,
        lost=Window(1795000000000000, 1795100000000000),
    ),
    IN_SNAPSHOT: evolve(
        OFFSET, snapshot=SnapshotState.PENDING, ttls=TtlHistory(), token=-(1 << 62)
    ),
}


@pytest.mark.parametrize(("text", "offset"), FORMATS.items())
def test_format_is_fixed(text: str, offset: Offset) -> None:
    """Spark compares offsets as text, so a released format never changes."""
    assert json.dumps(offset.to_json()) == text
    assert Offset.from_json(json.loads(text)) == offset


histories = st.lists(st.tuples(st.integers(), st.integers(0))).map(
    lambda changes: TtlHistory(sorted(changes))
)


@given(
    st.builds(Offset, MOMENTS, st.sampled_from(SnapshotState), st.text(), st.uuids(), histories)
    | st.builds(
        Offset,
        MOMENTS,
        st.just(SnapshotState.PENDING),
        st.text(),
        st.uuids(),
        histories,
        token=TOKENS,
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
    offset = Offset(7, SnapshotState.PENDING, "shop.orders", ID, HISTORY)
    state = TableState(ID, CdcOptions())
    assert (offset.done, offset.is_before_snapshot) == (MIN_TOKEN, True)
    for token in [*tokens, MAX_TOKEN]:
        offset = offset.moved(7, state, 8, done=token)
        assert (offset.position, offset.done) == (7, token)
        assert offset.is_before_snapshot == (token < MAX_TOKEN)
    assert offset.snapshot is SnapshotState.DONE
    assert offset.token is None

"""A cursor that was not written by this library is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from cdc_reader.checkpoints.encoding import pack_cursor, unpack_cursor
from cdc_reader.cql.names import TableName
from cdc_reader.errors import CheckpointError
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations, LateState
from cdc_reader.reading.expiry import TtlHistory
from tests.cdc_reader.support.followed import EPOCH

CURSOR = Checkpoint(
    EPOCH,
    KnownGenerations(EPOCH, (EPOCH,)),
    late=LateState.begin_snapshot(EPOCH, EPOCH, 7),
    ttls=TtlHistory([(EPOCH, 60)]),
)
WRITTEN = json.loads(pack_cursor(CURSOR))


def unpack(text: str) -> Checkpoint:
    """Unpack a cursor of the table ks.t."""
    return unpack_cursor(text, EPOCH, {}, TableName("ks", "t"))


def test_what_was_packed() -> None:
    """A cursor survives packing."""
    assert unpack(json.dumps(WRITTEN)) == CURSOR


@pytest.mark.parametrize(
    "wrong",
    [
        {"late": WRITTEN["late"] | {"confidence": math.inf}},
        {"late": WRITTEN["late"] | {"confidence": -1}},
        {"late": WRITTEN["late"] | {"snapshot": -1}},
        {"ttl": [[EPOCH, 10**30]]},
        {"ttl": [[10**30, 60]]},
        {"logs": ["5c2e7e9a-2f0b-11f0-8080-808080808081"] * 2, "log_lost": math.inf},
        {"logs": ["5c2e7e9a-2f0b-11f0-8080-808080808081"] * 2, "log_lost": 10**30},
        {"snapshot": {"began": EPOCH, "generation": None, "rows": 0, "done": [[0, math.inf]]}},
        {"generations": {"since": EPOCH, "known": [EPOCH], "dropped": "x"}},
    ],
)
def test_impossible_values(wrong: dict[str, Any]) -> None:
    """Values that no reader writes are refused."""
    with pytest.raises(CheckpointError, match=r"^the checkpoint's .* was not written by scylla-cd"):
        unpack(json.dumps(WRITTEN | wrong))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"ttl":' * 5_000, "", "null", "\x00"])
def test_other_text(text: str) -> None:
    """Text that is no cursor is refused, however deeply it is nested."""
    with pytest.raises(CheckpointError, match=r"^the checkpoint's cursor is "):
        unpack(text)

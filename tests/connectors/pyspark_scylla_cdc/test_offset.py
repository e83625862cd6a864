"""Offsets as a checkpoint holds them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc.offset import Offset


def test_format_is_fixed() -> None:
    """Spark compares offsets as text: the format of a release is the format for good."""
    text = '{"version": 1, "position": 1795221125091067}'
    assert json.dumps(Offset(1795221125091067).to_json()) == text
    with_snapshot = '{"version": 2, "position": 7}'
    assert json.dumps(Offset(7, snapshot=True).to_json()) == with_snapshot


@given(st.builds(Offset, st.integers(), st.booleans()))
def test_there_and_back(offset: Offset) -> None:
    """An offset survives its way through a checkpoint."""
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize("stored", [{}, {"version": 3, "position": 1}, {"version": 1}])
def test_other_versions_are_refused(stored: dict[str, int]) -> None:
    """An offset that this version did not write is never guessed at."""
    with pytest.raises(ConfigurationError, match="checkpointLocation"):
        Offset.from_json(stored)

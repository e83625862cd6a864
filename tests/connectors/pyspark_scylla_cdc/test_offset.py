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


@given(st.integers())
def test_there_and_back(position: int) -> None:
    """An offset survives its way through a checkpoint."""
    stored = json.dumps(Offset(position).to_json())
    assert Offset.from_json(json.loads(stored)) == Offset(position)


@pytest.mark.parametrize("stored", [{}, {"version": 2, "position": 1}, {"version": 1}])
def test_other_versions_are_refused(stored: dict[str, int]) -> None:
    """An offset that this version did not write is never guessed at."""
    with pytest.raises(ConfigurationError, match="checkpointLocation"):
        Offset.from_json(stored)

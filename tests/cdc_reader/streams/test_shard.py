"""Shards, which are equal parts of the ring."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader.errors import ConfigurationError
from cdc_reader.streams.shard import MAX_TOKEN, MIN_TOKEN, Shard


@given(st.integers(MIN_TOKEN + 1, MAX_TOKEN), st.integers(1, 1_000))
def test_each_token_is_in_one_shard(token: int, count: int) -> None:
    """Each token is in exactly one shard, for any number of shards."""
    assert sum(token in Shard(number, count) for number in range(1, count + 1)) == 1


def test_a_shard_has_a_text_form() -> None:
    """A shard's text, which options and checkpoint names use, parses to the same shard."""
    assert Shard.parse("2/4") == Shard(2, 4)
    assert str(Shard(2, 4)) == "2/4"


@pytest.mark.parametrize("text", ["", "0/4", "5/4", "4", "1/0", "-1/4", "a/b", "1/4/2"])
def test_malformed_shards_are_refused(text: str) -> None:
    """The error for a malformed shard shows the valid form."""
    with pytest.raises(ConfigurationError, match="give it as '1/4' to '4/4'"):
        Shard.parse(text)

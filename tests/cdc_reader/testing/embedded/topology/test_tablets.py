"""Tests how the streams of tables that use tablets are chosen for writes, and how they expire."""

import pytest

from cdc_reader.testing.embedded.topology.tablets import last_tokens


@pytest.mark.parametrize("tablets", [0, -1, 3, 12])
def test_tablets_are_a_power_of_two(tablets: int) -> None:
    """The number of tablets must be a power of two."""
    with pytest.raises(ValueError, match=f"{tablets} tablets: expected a power of two"):
        list(last_tokens(tablets))

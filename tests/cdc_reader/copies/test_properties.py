"""What a copy says about itself."""

from __future__ import annotations

import pytest

from cdc_reader.copies.properties import COPY, refuse_copy_of_command
from cdc_reader.errors import CheckpointError


def test_spark_refuses_a_copy_of_the_command() -> None:
    """Even an empty one: `mirror` in Spark would not see that it has a position of its own."""
    refuse_copy_of_command("/data/orders", {})
    with pytest.raises(CheckpointError, match="is a copy that 'scylla-cdc mirror' keeps: "):
        refuse_copy_of_command("/data/orders", {COPY: "00"})

"""How far a micro-batch may reach according to the options."""

from __future__ import annotations

import pytest

from cdc_reader.reading.advance import Limits
from pyspark_scylla_cdc.options.source_options import SourceOptions
from pyspark_scylla_cdc.streaming.micro_batch import limits_of

GIVEN = {"hosts": "h", "keyspace": "k", "table": "t"}


def test_limits_of_options() -> None:
    """The durations given as options are converted to microseconds."""
    options = SourceOptions.parse(
        {
            **GIVEN,
            "confidenceWindow": "1s",
            "maxWindowPerTrigger": "3s",
            "endingTimestamp": "1795239000000",
        }
    )
    assert limits_of(options) == Limits(1_000_000, 1_795_239_000_000_000, 3_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("confidence", "step"), [("0s", 1_000), ("200ms", 200_000), ("30s", 1_000_000)]
)
def test_the_step_follows_the_confidence_window(confidence: str, step: int) -> None:
    """Who shortens the confidence window wants rows sooner, so the step is no longer than it."""
    options = SourceOptions.parse({**GIVEN, "confidenceWindow": confidence})
    assert limits_of(options).shortest == step

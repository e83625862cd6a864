"""What a copy in a table format says about itself: its properties, and who has written to it."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_reader.copies.columns import CopyColumns
from cdc_reader.errors import CheckpointError

APPLICATION = "scylla_cdc_mirror"
"""The name under which targets record the micro-batches or commits that they contain."""
OWN = "scylla_cdc."
"""What the names of a copy's properties begin with."""
STATE = f"{OWN}row_state"
"""The property in which a target keeps the name of its column of states."""
BUCKET = f"{OWN}bucket"
"""The property in which a target keeps the name of its column of buckets."""
NO_BUCKETS = "none"
"""The value of `BUCKET` for a target without buckets."""
COPY = f"{OWN}copy"
"""The property in which a copy that `scylla-cdc mirror` keeps has its id."""


def application(query: str) -> str:
    """Return the name under which a query, or a copy of the command, records what it has done."""
    return f"{APPLICATION}.{query}"


def own_properties(columns: CopyColumns) -> dict[str, str]:
    """Return the properties by which a target knows its own columns."""
    return {STATE: columns.state, BUCKET: columns.bucket or NO_BUCKETS}


def refuse_copy_of_command(target: str, properties: Mapping[str, str]) -> None:
    """Raise CheckpointError for a copy that `scylla-cdc mirror` keeps."""
    if COPY in properties:
        raise CheckpointError(
            f"{target} is a copy that 'scylla-cdc mirror' keeps: continue with that command, or "
            "give another target"
        )

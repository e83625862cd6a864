"""What a copy in a table format says about itself: its properties, and who has written to it."""

from __future__ import annotations

from cdc_reader.copies.columns import CopyColumns

APPLICATION = "scylla_cdc_mirror"
"""The name under which targets record the micro-batches or commits that they contain."""
MARKER = "scylla_cdc.inserted"
"""The property in which a target keeps the name of its marker."""
BUCKET = "scylla_cdc.bucket"
"""The property in which a target keeps the name of its column of buckets."""
NO_BUCKETS = "none"
"""The value of `BUCKET` for a target without buckets."""


def application(query: str) -> str:
    """Return the name under which a query records what it has done."""
    return f"{APPLICATION}.{query}"


def own_properties(columns: CopyColumns) -> dict[str, str]:
    """Return the properties by which a target knows its own columns."""
    return {MARKER: columns.marker, BUCKET: columns.bucket or NO_BUCKETS}

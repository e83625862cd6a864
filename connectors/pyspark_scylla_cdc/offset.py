"""Offsets of a stream: one position in write time, as Spark stores it in a checkpoint."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from cdc_reader.errors import ConfigurationError

VERSION = 1
WITH_SNAPSHOT = 2
"""The version of offsets that say that the table itself is still to be read: a reader that does
not know of it must not go on without."""


@frozen(order=True)
class Offset:
    """Every log row with a write time before `position` (µs since 1970) has been handed on.

    Spark compares offsets as JSON text: the keys' order is part of the format.
    """

    position: int
    snapshot: bool = False
    """Whether the base table is still to be read, as of `position`."""

    def to_json(self) -> dict[str, int]:
        """The offset as Spark stores it."""
        return {"version": WITH_SNAPSHOT if self.snapshot else VERSION, "position": self.position}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Offset:
        """The offset of a checkpoint; raises ConfigurationError if it is of another version."""
        version, position = stored.get("version"), stored.get("position")
        if version not in (VERSION, WITH_SNAPSHOT) or not isinstance(position, int):
            remedy = (
                f"expected an offset of version {VERSION} or {WITH_SNAPSHOT}; read the checkpoint "
                "with the version of scylla-cdc that wrote it, or start with a new "
                "checkpointLocation"
            )
            raise ConfigurationError("checkpointLocation", stored, remedy)
        return cls(position, version == WITH_SNAPSHOT)

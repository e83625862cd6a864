"""What `mirror` tells the listeners of its process, and they cannot learn from Spark."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

from cdc_reader.errors import TableAlteredError
from pyspark_scylla_cdc.monitoring.status import CopyFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Expecting(Protocol):
    """A listener that can be told of a query before it starts."""

    def expect(self, spark: SparkSession, checkpoint: str) -> None:
        """Read the position of the query from its checkpoint."""
        ...


COPIES: dict[str, CopyFiles] = {}
"""The files of the copies that this process maintains, by the ids of their queries."""
LISTENERS: weakref.WeakSet[Expecting] = weakref.WeakSet()
"""All listeners of this process."""
RESTARTED: set[str] = set()
"""The ids of queries that are started again if their table was altered."""
ALTERED = f"{TableAlteredError.__module__}.{TableAlteredError.__qualname__}: "
"""What Spark's text of an error contains if the altered table has ended the query."""

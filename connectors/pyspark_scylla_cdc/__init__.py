"""Spark data source ``scylla_cdc``: a ScyllaDB CDC log as a DataFrame, batch and streaming.

Spark imports every top-level module named ``pyspark_*`` to look for a `DefaultSource`, in
sessions that never use this one too, and one failure hides the data sources of all. So the
import is light and always succeeds: where there is no Spark, or one too old for Python data
sources, there is simply no source to find.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_scylla_cdc.folding import fold as fold

__all__ = ["DefaultSource", "ScyllaCdcDataSource", "fold"]

with suppress(ImportError):
    from pyspark_scylla_cdc.source import ScyllaCdcDataSource

    DefaultSource = ScyllaCdcDataSource


def __getattr__(name: str) -> Any:
    """`fold`, imported when it is wanted."""
    if name == "fold":
        from pyspark_scylla_cdc.folding import fold

        return fold
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

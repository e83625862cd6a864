"""Spark data source ``scylla_cdc``: a ScyllaDB CDC log as a DataFrame, batch and streaming.

Spark imports every top-level module named ``pyspark_*`` to look for a `DefaultSource`, even in
sessions that never use this one, and one failing import hides the data sources of all. So the
import is light and always succeeds: without Spark, or with a Spark too old for Python data sources,
the module defines no source.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_scylla_cdc.installation.session import session as session
    from pyspark_scylla_cdc.tables.fold import fold as fold

__all__ = ["DefaultSource", "ScyllaCdcDataSource", "fold", "session"]

with suppress(ImportError):
    from pyspark_scylla_cdc.source import ScyllaCdcDataSource

    DefaultSource = ScyllaCdcDataSource


def __getattr__(name: str) -> Any:
    """Import `fold` and `session` on first use."""
    if name == "fold":
        from pyspark_scylla_cdc.tables.fold import fold

        return fold
    if name == "session":
        from pyspark_scylla_cdc.installation.session import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

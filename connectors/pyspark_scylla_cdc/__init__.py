"""Spark data source ``scylla_cdc``: a ScyllaDB CDC log as a DataFrame, batch and streaming.

Spark imports every top-level module named ``pyspark_*`` to look for a `DefaultSource`, in
sessions that never use this one too, and one failure hides the data sources of all. So the
import is light and always succeeds: where there is no Spark, or one too old for Python data
sources, there is simply no source to find.
"""

from contextlib import suppress

__all__ = ["DefaultSource", "ScyllaCdcDataSource"]

with suppress(ImportError):
    from pyspark_scylla_cdc.source import ScyllaCdcDataSource

    DefaultSource = ScyllaCdcDataSource

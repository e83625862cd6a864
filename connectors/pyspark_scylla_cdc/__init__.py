"""Spark data source ``scylla_cdc``: a ScyllaDB CDC log as a DataFrame, batch and streaming.

Spark imports every top-level module named ``pyspark_*`` to look for a `DefaultSource`, even in
sessions that never use this data source. If one import fails, Spark finds no data source in any of
the modules. Importing this package is therefore cheap and always succeeds: without Spark, or with a
Spark too old for Python data sources, the module defines no source.

For maintainers: the package may import `cdc_reader`. Begin with `source`, which Spark calls.
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from cdc_reader._lazy import lazily

if TYPE_CHECKING:
    from pyspark_scylla_cdc.installation.session import session as session
    from pyspark_scylla_cdc.mirroring.comparison import CopyComparison as CopyComparison
    from pyspark_scylla_cdc.mirroring.mirror import Mirror as Mirror
    from pyspark_scylla_cdc.mirroring.mirror import mirror as mirror
    from pyspark_scylla_cdc.mirroring.status import CopyStatus as CopyStatus
    from pyspark_scylla_cdc.mirroring.status import CopyStatuses as CopyStatuses
    from pyspark_scylla_cdc.monitoring.listener import ScyllaCdcListener as ScyllaCdcListener
    from pyspark_scylla_cdc.monitoring.status import CopyFiles as CopyFiles
    from pyspark_scylla_cdc.monitoring.status import StreamStatus as StreamStatus
    from pyspark_scylla_cdc.tables.fold import fold as fold

with suppress(ImportError):
    from pyspark_scylla_cdc.source import ScyllaCdcDataSource

    DefaultSource = ScyllaCdcDataSource
    """The name under which Spark finds the data source."""

_HOMES = {
    "CopyComparison": "pyspark_scylla_cdc.mirroring.comparison",
    "CopyFiles": "pyspark_scylla_cdc.monitoring.status",
    "CopyStatus": "pyspark_scylla_cdc.mirroring.status",
    "CopyStatuses": "pyspark_scylla_cdc.mirroring.status",
    "Mirror": "pyspark_scylla_cdc.mirroring.mirror",
    "ScyllaCdcListener": "pyspark_scylla_cdc.monitoring.listener",
    "StreamStatus": "pyspark_scylla_cdc.monitoring.status",
    "fold": "pyspark_scylla_cdc.tables.fold",
    "mirror": "pyspark_scylla_cdc.mirroring.mirror",
    "session": "pyspark_scylla_cdc.installation.session",
}

__all__ = ["DefaultSource", "ScyllaCdcDataSource"]
__all__ += list(_HOMES)

# Where `source` could not be imported, its name says which extra is missing.
__getattr__ = lazily(__name__, {**_HOMES, "ScyllaCdcDataSource": "pyspark_scylla_cdc.source"})

"""Access to the cluster through the driver, which only this package and `testing` import.

The driver is cassandra-driver or scylla-driver: see `cdc_reader.cluster.driver`. This package may
import `reading`, `decoding` and the packages below them. Begin with `connection`; `log`,
`generations` and `schema` implement the ports of the engine.
"""

import logging

try:
    import cassandra.cluster  # noqa: F401 - fails if no driver is installed
except ImportError as error:
    raise ImportError(
        f"no driver for ScyllaDB can be imported ({error}): run 'pip uninstall -y "
        "cassandra-driver scylla-driver' in case parts of one are left, then 'pip install "
        "cassandra-driver' or 'pip install scylla-driver'"
    ) from error

from cdc_reader.cluster.clock import ClusterClock
from cdc_reader.cluster.connection import Connection
from cdc_reader.cluster.generations import TableGenerations
from cdc_reader.cluster.log import CdcTable, CqlLogSource
from cdc_reader.cluster.queries import Query
from cdc_reader.cluster.rows import CqlRowSource
from cdc_reader.cluster.schema import SchemaSource
from cdc_reader.cluster.write import CqlWriter

__all__ = [
    "CdcTable",
    "ClusterClock",
    "Connection",
    "CqlLogSource",
    "CqlRowSource",
    "CqlWriter",
    "Query",
    "SchemaSource",
    "TableGenerations",
]

# The driver also raises the errors that it logs. In an application that does not configure logging,
# this handler keeps Python's last-resort handler from printing them to stderr.
logging.getLogger("cassandra").addHandler(logging.NullHandler())

"""The cluster through cassandra-driver, which nothing outside of this package imports."""

import logging

from cdc_reader.driver.generations import TableGenerations
from cdc_reader.driver.log_source import CqlLogSource
from cdc_reader.driver.log_table import CdcTable
from cdc_reader.driver.queries import Query
from cdc_reader.driver.schema_source import SchemaSource
from cdc_reader.driver.session import Connection
from cdc_reader.driver.writer import CqlWriter

__all__ = [
    "CdcTable",
    "Connection",
    "CqlLogSource",
    "CqlWriter",
    "Query",
    "SchemaSource",
    "TableGenerations",
]

# What the driver logs is raised as an error too: without a handler of the application's own it
# must not land on stderr, where Python's handler of last resort would put it.
logging.getLogger("cassandra").addHandler(logging.NullHandler())

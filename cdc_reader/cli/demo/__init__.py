"""`scylla-cdc demo`: fills a Spark DataFrame from a CDC log, and compares the counts.

This package may import all packages, and the Spark source. Begin with `run`; `orders` defines the
demo's table and the writes to it.
"""

from cdc_reader.cli.demo.run import command

__all__ = ["command"]

"""`scylla-cdc demo`: a Spark DataFrame fills from a CDC log, and the counts are compared.

Begin with `run`; `orders` is the table and its traffic.
"""

from cdc_reader.cli.demo.run import command

__all__ = ["command"]

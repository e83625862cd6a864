"""`scylla-cdc mirror`: keeps a copy of a table in a Delta table, without Spark.

Begin with `run`, the command. `cdc_reader.copies` keeps the copy.
"""

from cdc_reader.cli.mirror.run import command

__all__ = ["command"]

"""`scylla-cdc status`: shows what logs contain, and how far applications have read them.

This package may import all packages except `testing`. Begin with `run`, the command. `state` reads
the status, and `screen` and `report` show it.
"""

from cdc_reader.cli.status.run import command

__all__ = ["command"]

"""`scylla-cdc status`: shows what logs contain, and how far applications have read them.

This package may import all packages except `testing`. Begin with `run`, the command. `state` reads
the current status, `watch` reads it repeatedly, `history` stores the results, and `screen` and
`report` show them over time.
"""

from cdc_reader.cli.status.run import command

__all__ = ["command"]

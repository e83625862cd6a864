"""`scylla-cdc status`: shows what logs hold, and how far applications have read them.

May import all packages except `testing`. Begin with `run`, the command; `state` reads what is
shown, `watch` repeats it, `history` keeps it, `screen` and `report` show it over time.
"""

from cdc_reader.cli.status.run import command

__all__ = ["command"]

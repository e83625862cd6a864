"""Turns a window of the log into Spark partitions by arithmetic, without sending a query.

May import `options` and `offsets`. Begin with `plan`; `partition` is what Spark sends to an
executor.
"""

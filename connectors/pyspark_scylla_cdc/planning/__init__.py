"""Turns a window of the log into Spark partitions by arithmetic, without sending a query.

This package may import `options` and `offsets`. Begin with `plan`. `partition` defines what Spark
sends to an executor.
"""

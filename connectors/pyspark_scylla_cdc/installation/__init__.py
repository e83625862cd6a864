"""Checks whether Spark finds the data source, on the driver and on every executor.

This package may import `local_session`. Begin with `doctor`, the command, or with `session`, which
creates a Spark session that finds the source.
"""

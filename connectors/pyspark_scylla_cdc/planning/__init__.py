"""Turns a window of the log into Spark partitions.

Begin with `log_plan`, which queries the cluster; `plan` is pure arithmetic.
"""

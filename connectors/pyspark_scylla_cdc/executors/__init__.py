"""Runs on Spark's executors: reads a partition's rows in the requested format.

May import `sessions`, `planning` and the packages below. Begin with `partitions`.
"""

"""Runs on Spark's executors: reads a partition's rows in the requested format.

It may import `sessions`, `planning` and the packages below them. Begin with `partitions`.
"""

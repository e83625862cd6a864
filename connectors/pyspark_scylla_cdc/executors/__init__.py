"""Runs on Spark's executors: reads a partition's rows in the requested format.

This package may import `sessions`, `planning` and the packages below them in the diagram on the
design page. Begin with `partitions`.
"""

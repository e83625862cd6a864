"""Cells, rows and partitions with timestamps, merged so that the last write wins.

A mutation is a `Partition`, like stored data. Applying a mutation merges it into the stored
partition. This package contains no logic for CQL statements or CDC.

It may import `schema` and `codec`. Begin with `partition`.
"""

"""Cells, rows and partitions with timestamps, merged so that the last write wins.

A mutation is a `Partition`, like stored data. Applying a mutation merges it into the stored
partition. Nothing in this package knows CQL or CDC.

May import `schema` and `codec`. Begin with `partition`.
"""

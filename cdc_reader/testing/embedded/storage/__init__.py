"""Cells, rows and partitions: data with timestamps, merged so that the last write wins.

A mutation is a `Partition`, like stored data; storing a mutation merges it into the stored
partition. Nothing in this package knows CQL or CDC.

May import `schema` and `codec`. Begin with `partition`.
"""

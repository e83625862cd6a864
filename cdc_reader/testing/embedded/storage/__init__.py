"""Cells, rows, partitions: data with timestamps, merged so that the last write wins.

A mutation and a stored partition are the same thing, a `Partition`; storing one is merging it
into what is there. Nothing in this room knows CQL or CDC.
"""
